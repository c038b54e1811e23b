"""Meta-training: learning θ from unrolls of inner problems (§4.2)."""

from ._estimators import Estimator, EvolutionStrategies, FullUnroll, MeanEstimator
from ._problem import Data, InnerTraining, Problem, RelativeLoss, Task
from ._train import advance, begin

__all__ = [
    "Data",
    "Estimator",
    "EvolutionStrategies",
    "FullUnroll",
    "InnerTraining",
    "MeanEstimator",
    "Problem",
    "RelativeLoss",
    "Task",
    "advance",
    "begin",
]
