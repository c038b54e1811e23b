"""Which axes of which weight tensors permute together."""

from ._blocks import Block, Label, base_name
from ._errors import SpecError, SymmetryError
from ._expect import check_is_space
from ._grammar import (
    Axis,
    Concat,
    Name,
    Number,
    Product,
    format_axes,
    names_in,
    parse_leaf,
    parse_name,
)
from ._picture import picture
from ._sizes import axis_size
from ._space import Leaf, Notes, Permutation, WeightSpace
from ._tree import align, flatten_params, format_path, returned_leaves
from ._verify import SymmetryReport, verify

__all__ = [
    "Axis",
    "Block",
    "Concat",
    "Label",
    "Leaf",
    "Name",
    "Notes",
    "Number",
    "Permutation",
    "Product",
    "SpecError",
    "SymmetryError",
    "SymmetryReport",
    "WeightSpace",
    "align",
    "axis_size",
    "base_name",
    "check_is_space",
    "flatten_params",
    "format_axes",
    "format_path",
    "names_in",
    "parse_leaf",
    "parse_name",
    "picture",
    "returned_leaves",
    "verify",
]
