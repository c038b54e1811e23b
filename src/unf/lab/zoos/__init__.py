"""Zoos of our own: recipes, and how they are trained and stored.

zoo = unf.lab.zoos.build(unf.lab.zoos.TinyRNN(hidden=16), "out/zoo", models=256)
"""

from .._option import option
from ._build import build
from ._recipe import Choices, Recipe, log_uniform
from ._recipes import RECIPES, SmallCNNZoo, TinyRNN, recipe_of
from ._train import Trained, train_chunk

__all__ = [
    "RECIPES",
    "Choices",
    "Recipe",
    "SmallCNNZoo",
    "TinyRNN",
    "Trained",
    "build",
    "log_uniform",
    "option",
    "recipe_of",
    "train_chunk",
]
