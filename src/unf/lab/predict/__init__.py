"""Predicting how well networks work from their weights alone (§4.1).

from unf.lab import predict
report = predict.train(unf.zoo.Zoo("out/zoo"), "unf", "out/unf")
"""

from ._apply import apply
from ._methods import METHODS, PredictError, Training
from ._report import Report
from ._run import train

__all__ = ["METHODS", "PredictError", "Report", "Training", "apply", "train"]
