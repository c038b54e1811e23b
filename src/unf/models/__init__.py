"""Deep models on weight spaces: equivariant, invariant, and the statistics baseline."""

from ._invariant import Invariant, InvariantDeepSet, InvariantUNF, StatNN
from ._io import load_model, save_model
from ._unf import UNF

__all__ = [
    "UNF",
    "Invariant",
    "InvariantDeepSet",
    "InvariantUNF",
    "StatNN",
    "load_model",
    "save_model",
]
