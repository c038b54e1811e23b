"""What no network has, and would take forever: refused before anything is made of it.

Descriptions come with files, so what is read must not cost more than the file is long.
"""

from collections.abc import Iterable, Mapping
from math import prod
from operator import index
from typing import Any

from ._errors import SpecError, shown
from ._grammar import Axis, Concat, Name, Product, names_in
from ._group import ancestors

MOST_AXES = 64
"""Of a block, as of an array of NumPy."""
MOST_CUTS = 2**12
"""Blocks of a space beyond one for each leaf; a layer of so many could not be run."""


def check_size(name: Any, size: Any) -> int:
    """A size that a caller gives for a name."""
    try:
        return index(size)
    except TypeError:
        raise SpecError(
            f"sizes= gives {shown(name)} the size {shown(size)}", expected="a whole number"
        ) from None


def check_axes(axes: tuple[Axis, ...], path: str) -> None:
    """Refuse blocks of more axes than an array may have."""
    if (count := sum(map(_count_axes, axes))) > MOST_AXES:
        raise SpecError(
            f"the specification has {count} axes, with the factors of products",
            path=path,
            expected=f"at most {MOST_AXES}, as many as an array may have",
        )


def _count_axes(axis: Axis) -> int:
    if isinstance(axis, Concat):
        return max(map(_count_axes, axis.parts))
    return sum(map(_count_axes, axis.factors)) if isinstance(axis, Product) else 1


def check_blocks(leaves: Iterable[tuple[str, tuple[Axis, ...]]], sizes: Mapping[str, int]) -> None:
    """Refuse what would be cut into too many blocks: each concatenation multiplies them."""
    total = 0
    for path, axes in leaves:
        total += count_blocks(axes, sizes) - 1
        if total > MOST_CUTS:
            raise SpecError(
                "concatenations, and fixed axes that names are nested in, cut the arrays into "
                "too many blocks",
                path=path,
                expected=f"at most {MOST_CUTS} cuts in all",
                got=f"{total} up to here",
                remedy="write fewer axes as concatenations, or name axes without the dot",
            )


def count_blocks(axes: tuple[Axis, ...], sizes: Mapping[str, int]) -> int:
    """How many blocks a leaf has, or a few more, without making them."""
    names = [name for axis in axes for name in names_in(axis)]
    parents = {above for name in names if not name.fixed for above in ancestors(name.path)}

    def count(axis: Axis) -> int:
        if isinstance(axis, Concat):
            return sum(map(count, axis.parts))
        if isinstance(axis, Product):
            return prod(map(count, axis.factors))
        if isinstance(axis, Name) and axis.fixed and axis.path in parents:
            return sizes[axis.path]
        return 1

    return prod(map(count, axes))
