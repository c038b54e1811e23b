"""One module for each kind of primitive; importing this package registers their rules."""

from . import contraction, control, elementwise, indexing, ordering, shape

__all__ = ["contraction", "control", "elementwise", "indexing", "ordering", "shape"]
