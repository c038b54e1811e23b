"""Meta-training: learning θ from unrolls of the inner problem (§4.2)."""

from ._estimators import OBJECTIVES, Estimate, Estimator, EvolutionStrategies, FullUnroll, Pair
from ._folder import CONFIG, METRICS, OPTIMIZER, Row
from ._job import first_theta, meta_train
from ._options import ESTIMATORS, MetaError, MetaTraining
from ._problem import InnerTraining, Problem, training_step
from ._train import MetaState, Metrics, advance, begin, spread

__all__ = [
    "CONFIG",
    "ESTIMATORS",
    "METRICS",
    "OBJECTIVES",
    "OPTIMIZER",
    "Estimate",
    "Estimator",
    "EvolutionStrategies",
    "FullUnroll",
    "InnerTraining",
    "MetaError",
    "MetaState",
    "MetaTraining",
    "Metrics",
    "Pair",
    "Problem",
    "Row",
    "advance",
    "begin",
    "first_theta",
    "meta_train",
    "spread",
    "training_step",
]
