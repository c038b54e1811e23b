"""Meta-training: learning θ from unrolls of inner problems (§4.2)."""

from ._estimators import Estimator, EvolutionStrategies, FullUnroll
from ._problem import InnerTraining, Problem, training_step
from ._task import Data, Task
from ._train import MetaState, advance, begin, shard

__all__ = [
    "Data",
    "Estimator",
    "EvolutionStrategies",
    "FullUnroll",
    "InnerTraining",
    "MetaState",
    "Problem",
    "Task",
    "advance",
    "begin",
    "shard",
    "training_step",
]
