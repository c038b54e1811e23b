"""Deep models on weight spaces: equivariant, invariant, and the statistics baseline."""

from ._deepset import InvariantDeepSet
from ._io import check_layer, check_space, load_model, save_model
from ._statnn import StatNN, leaf_statistics
from ._unf import UNF, InvariantUNF

__all__ = [
    "UNF",
    "InvariantDeepSet",
    "InvariantUNF",
    "StatNN",
    "check_layer",
    "check_space",
    "leaf_statistics",
    "load_model",
    "save_model",
]
