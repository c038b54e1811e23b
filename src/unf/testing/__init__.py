"""For users' own tests: assertions, the paper's layer implemented literally, known spaces."""

from . import spaces
from ._assertions import assert_equivariant, assert_invariant, random_features
from ._oracle import literal_layer, valid_partitions

__all__ = [
    "assert_equivariant",
    "assert_invariant",
    "literal_layer",
    "random_features",
    "spaces",
    "valid_partitions",
]
