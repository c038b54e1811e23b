"""Meta-training: learning θ from unrolls of inner problems (§4.2)."""

from ._estimators import Estimator, EvolutionStrategies, FullUnroll
from ._problem import Data, InnerTraining, Problem, Task
from ._train import advance, begin

__all__ = [
    "Data",
    "Estimator",
    "EvolutionStrategies",
    "FullUnroll",
    "InnerTraining",
    "Problem",
    "Task",
    "advance",
    "begin",
]
