"""One module for each kind of primitive; importing this package registers their rules."""

from . import arithmetic, control, indexing, linear_algebra, ordering, shape  # noqa: F401
