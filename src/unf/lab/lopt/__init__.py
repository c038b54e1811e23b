"""Learned optimizers: meta-training them, and comparing them with tuned ones (§4.2)."""

from ._evaluate import GRIDS, Comparison, Curves, compare, evaluate, tune
from ._job import first_theta, meta_train
from ._options import MetaError, MetaTraining
from ._tune import Trial, tune_meta_training

__all__ = [
    "GRIDS",
    "Comparison",
    "Curves",
    "MetaError",
    "MetaTraining",
    "Trial",
    "compare",
    "evaluate",
    "first_theta",
    "meta_train",
    "tune",
    "tune_meta_training",
]
