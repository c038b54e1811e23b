"""Zoos of our own: recipes, and how they are trained and stored.

zoo = unf.lab.zoos.build(unf.lab.zoos.TinyRNN(hidden=16), "out/zoo", models=256)
"""

from ._build import build
from ._recipe import (
    RECIPES,
    Choices,
    Recipe,
    SmallCNNZoo,
    TinyRNN,
    TwoMoonsZoo,
    log_uniform,
    recipe_of,
)
from ._train import Trained, train_chunk, train_in_parts

__all__ = [
    "RECIPES",
    "Choices",
    "Recipe",
    "SmallCNNZoo",
    "TinyRNN",
    "Trained",
    "TwoMoonsZoo",
    "build",
    "log_uniform",
    "recipe_of",
    "train_chunk",
    "train_in_parts",
]
