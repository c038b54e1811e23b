"""Predicting how well networks work from their weights alone (§4.1).

report = unf.lab.predict.train(unf.zoo.Zoo("out/zoo"), "unf", "out/unf")
"""

from ._fit import Examples, fit, invariance_gap, predict
from ._methods import METHODS, PredictError, Training
from ._run import Predictions, Report, apply, train

__all__ = [
    "METHODS",
    "Examples",
    "PredictError",
    "Predictions",
    "Report",
    "Training",
    "apply",
    "fit",
    "invariance_gap",
    "predict",
    "train",
]
