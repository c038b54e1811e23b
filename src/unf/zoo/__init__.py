"""Zoos: many networks of one kind, trained, measured and stored.

zoo = unf.zoo.build(unf.zoo.TinyRNN(hidden=16), "out/zoo", models=256)
zoo = unf.zoo.Zoo("out/zoo")
zoo.weights(), zoo.success, zoo.choices["learning_rate"]
"""

from .._option import option
from ._build import build
from ._errors import ZooError
from ._recipe import Choices, Recipe, log_uniform
from ._recipes import RECIPES, SmallCNNZoo, TinyRNN
from ._show import draw, sample_sums
from ._store import Status
from ._train import Trained, train_chunk
from ._zoo import Zoo

__all__ = [
    "RECIPES",
    "Choices",
    "Recipe",
    "SmallCNNZoo",
    "Status",
    "TinyRNN",
    "Trained",
    "Zoo",
    "ZooError",
    "build",
    "draw",
    "log_uniform",
    "option",
    "sample_sums",
    "train_chunk",
]
