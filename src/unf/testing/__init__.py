"""For users' own tests: equivariance, invariance, and the paper's layer taken literally."""

from ._assertions import assert_equivariant, assert_invariant, random_features
from ._oracle import literal_layer, valid_partitions

__all__ = [
    "assert_equivariant",
    "assert_invariant",
    "literal_layer",
    "random_features",
    "valid_partitions",
]
