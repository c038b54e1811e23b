"""Zoos of our own: recipes, and how they are trained and stored.

zoo = unf.lab.zoos.build(unf.lab.zoos.TinyRNN(hidden=16), "out/zoo", models=256)
"""

from ._build import build
from ._recipe import (
    RECIPES,
    Recipe,
    SmallCNNZoo,
    TinyRNN,
    TwoMoonsZoo,
    log_uniform,
    recipe_of,
)
from ._train import train_chunk

__all__ = [
    "RECIPES",
    "Recipe",
    "SmallCNNZoo",
    "TinyRNN",
    "TwoMoonsZoo",
    "build",
    "log_uniform",
    "recipe_of",
    "train_chunk",
]
