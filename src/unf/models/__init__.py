"""Deep models on weight spaces: equivariant, invariant, and the statistics baseline."""

from ._fit import Fit, fit
from ._fitted import Fitted
from ._invariant import Invariant, InvariantDeepSet, InvariantUNF, StatNN
from ._io import load_model, save_model
from ._unf import UNF

__all__ = [
    "UNF",
    "Fit",
    "Fitted",
    "Invariant",
    "InvariantDeepSet",
    "InvariantUNF",
    "StatNN",
    "fit",
    "load_model",
    "save_model",
]
