"""Zoos of our own: recipes, and how they are trained and stored.

from unf.lab import zoos
zoo = zoos.build(zoos.TinyRNN(hidden=16), "out/zoo", models=256)
"""

from ._build import build
from ._mixed import MixedRecipe, build_mixed
from ._recipe import (
    ClassifierZoo,
    ImplicitZoo,
    Recipe,
    SmallCNNZoo,
    TinyRNN,
    TwoMoonsZoo,
    VariedRNN,
)

__all__ = [
    "ClassifierZoo",
    "ImplicitZoo",
    "MixedRecipe",
    "Recipe",
    "SmallCNNZoo",
    "TinyRNN",
    "TwoMoonsZoo",
    "VariedRNN",
    "build",
    "build_mixed",
]
