"""Weights modulo symmetry: alignment, distances, canonical forms, averages, barriers."""

from ._align import align, distance
from ._canonical import canonicalize
from ._elements import orbit_size
from ._merge import Barrier, barrier, merge, reset_statistics

__all__ = [
    "Barrier",
    "align",
    "barrier",
    "canonicalize",
    "distance",
    "merge",
    "orbit_size",
    "reset_statistics",
]
