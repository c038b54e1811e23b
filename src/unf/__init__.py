"""Networks that read, edit and optimize the weights of other networks, for any architecture."""

from ._version import __version__
from .spec import SpecError, SymmetryError, WeightSpace, verify

__all__ = ["SpecError", "SymmetryError", "WeightSpace", "__version__", "verify"]
