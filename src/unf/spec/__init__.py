"""Which axes of which weight tensors permute together."""

from ._blocks import Block, Label
from ._errors import SpecError, SymmetryError
from ._grammar import AxisSpec, format_axes, parse_leaf
from ._space import Leaf, WeightSpace
from ._verify import SymmetryReport, verify

__all__ = [
    "AxisSpec",
    "Block",
    "Label",
    "Leaf",
    "SpecError",
    "SymmetryError",
    "SymmetryReport",
    "WeightSpace",
    "format_axes",
    "parse_leaf",
    "verify",
]
