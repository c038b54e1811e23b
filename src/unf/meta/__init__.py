"""Meta-training: learning θ from unrolls of inner problems (§4.2)."""

from ._estimators import Backpropagation, Estimator, EvolutionStrategies, MeanEstimator
from ._problem import Data, InnerTraining, Problem, RelativeLoss, Task
from ._train import advance, begin

__all__ = [
    "Backpropagation",
    "Data",
    "Estimator",
    "EvolutionStrategies",
    "InnerTraining",
    "MeanEstimator",
    "Problem",
    "RelativeLoss",
    "Task",
    "advance",
    "begin",
]
