"""Weights modulo symmetry: alignment, distances, canonical forms, the order of the group."""

from ._align import align, distance
from ._canonical import canonicalize
from ._elements import orbit_size

__all__ = ["align", "canonicalize", "distance", "orbit_size"]
