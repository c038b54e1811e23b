"""Meta-training: learning θ from unrolls of the inner problem (§4.2)."""

from ._estimators import OBJECTIVES, Estimate, Estimator, EvolutionStrategies, FullUnroll, Pair
from ._problem import InnerTraining, Problem, training_step
from ._task import Data, Task
from ._train import MetaState, Metrics, advance, begin, spread

__all__ = [
    "OBJECTIVES",
    "Data",
    "Estimate",
    "Estimator",
    "EvolutionStrategies",
    "FullUnroll",
    "InnerTraining",
    "MetaState",
    "Metrics",
    "Pair",
    "Problem",
    "Task",
    "advance",
    "begin",
    "spread",
    "training_step",
]
