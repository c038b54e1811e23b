"""Which axes of which weight tensors permute together."""

from ._errors import SpecError, SymmetryError
from ._space import Leaf, WeightSpace
from ._verify import SymmetryReport, verify

__all__ = ["Leaf", "SpecError", "SymmetryError", "SymmetryReport", "WeightSpace", "verify"]
