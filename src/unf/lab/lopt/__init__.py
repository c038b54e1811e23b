"""Evaluating learned optimizers: fresh networks, tuned baselines, the paper's figure (§4.2)."""

from ._compare import TITLES, Comparison, compare, join, title
from ._evaluate import GRIDS, Curves, at_edge, evaluate, part_ends, tune
from ._folder import CONFIG, METRICS, OPTIMIZER, Row
from ._job import first_theta, meta_train
from ._options import ESTIMATORS, MetaError, MetaTraining
from ._pace import Pace
from ._setting import BUILT_IN, SMALL, make_task

__all__ = [
    "BUILT_IN",
    "CONFIG",
    "ESTIMATORS",
    "GRIDS",
    "METRICS",
    "OPTIMIZER",
    "SMALL",
    "TITLES",
    "Comparison",
    "Curves",
    "MetaError",
    "MetaTraining",
    "Pace",
    "Row",
    "at_edge",
    "compare",
    "evaluate",
    "first_theta",
    "join",
    "make_task",
    "meta_train",
    "part_ends",
    "title",
    "tune",
]
