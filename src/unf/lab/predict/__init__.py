"""Predicting how well networks work from their weights alone (§4.1).

report = unf.lab.predict.train(unf.zoo.Zoo("out/zoo"), "unf", "out/unf")
"""

from ._batches import Examples, Split, load_examples, split_models
from ._fit import Fit, fit, predict
from ._methods import METHODS, Method, PredictError, Training
from ._run import CHECKPOINT, MODELS, RESULT, Report, apply, invariance_gap, train

__all__ = [
    "CHECKPOINT",
    "METHODS",
    "MODELS",
    "RESULT",
    "Examples",
    "Fit",
    "Method",
    "PredictError",
    "Report",
    "Split",
    "Training",
    "apply",
    "fit",
    "invariance_gap",
    "load_examples",
    "predict",
    "split_models",
    "train",
]
