"""Along which axes a weight space is cut, to spread it over devices.

If every leaf is cut along a permutation, a layer needs no leaf as a whole: a mean over the axis
that is cut is the mean of each device's part, averaged over the devices, and everything else
happens where the numbers are.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..spec import Axis, Block, Name, Number, Product, WeightSpace, axis_size, base_name
from ._plan import Stack


def spread_axes(space: WeightSpace, devices: int) -> tuple[int | None, ...]:
    """For each leaf, the axis along which to cut it into `devices` equal parts; None for none.

    An axis can be cut if `devices` divides the first factor of what it is a product of: then
    each part holds whole indices of it. A part of a concatenation would straddle blocks. Of
    these, the axis of the largest permutation is chosen, so that leaves with the same
    permutations are cut alike; a fixed axis only if there is none, and some block of the leaf
    has a permutation that `devices` divides, to be cut along instead.

    >>> import jax
    >>> shapes = [jax.ShapeDtypeStruct(s, "float32") for s in [(8, 12), (12, 8), (10,)]]
    >>> space = WeightSpace.from_spec(["d (h h.k)", "(h h.k) d", "n"], shapes, sizes={"h": 4})
    >>> spread_axes(space, 4)
    (0, 1, None)
    """
    if devices == 1:
        return (None,) * len(space.leaves)
    chosen = []
    for leaf, layout in zip(space.leaves, space.layouts, strict=True):
        candidates = []
        for position, axis in enumerate(leaf.axes):
            atom = _first_factor(axis)
            size = axis_size(atom, space.axis_sizes)
            if isinstance(atom, Name | Number) and size % devices == 0:
                permuted = isinstance(atom, Name) and not atom.fixed
                candidates.append((permuted, size, str(atom), -position))
        permuted, _, _, place = max(candidates, default=(False, 0, "", None))
        usable = permuted or any(_widest_label(b, devices) is not None for b in layout.blocks)
        chosen.append(None if place is None or not usable else -place)
    return tuple(chosen)


@dataclass(frozen=True)
class Cut:
    """Where a layer has a block cut.

    Attributes:
        label: the position of the permuted axis.
        moved: whether the leaf is stored cut along another axis, a fixed one.
    """

    label: int
    moved: bool


def spread_blocks(space: WeightSpace, devices: int) -> tuple[Cut | None, ...]:
    """For each block, where it is cut; None if every device has it whole.

    That is along the permutation along which its leaf is cut. A fixed axis is channels to a
    layer, so a block of a leaf that is cut along one is cut along its largest permutation.
    """
    axes = spread_axes(space, devices)
    return tuple(_cut(space, block, axes[block.leaf], devices) for block in space.blocks)


def _cut(space: WeightSpace, block: Block, axis: int | None, devices: int) -> Cut | None:
    if axis is None:
        return None
    atom = _first_factor(space.leaves[block.leaf].axes[axis])
    if isinstance(atom, Name) and not atom.fixed:
        names = [base_name(label.name) for label in block.labels]
        return Cut(names.index(atom.path), moved=False)
    widest = _widest_label(block, devices)
    return None if widest is None else Cut(widest, moved=True)


def _first_factor(axis: Axis) -> Axis:
    while isinstance(axis, Product):
        axis = axis.factors[0]
    return axis


def _widest_label(block: Block, devices: int) -> int | None:
    """The position of a block's largest permutation that `devices` divides."""
    sizes = [label.size for label in block.labels]
    best = max((size for size in sizes if size % devices == 0), default=None)
    return None if best is None else sizes.index(best)


def spread_stacks(
    space: WeightSpace, stacks: Sequence[Stack], devices: int
) -> tuple[int | None, ...]:
    """For each stack, the axis along which most of its blocks' entries are cut."""
    cuts = spread_blocks(space, devices)
    chosen = []
    for stack in stacks:
        votes: Counter[int] = Counter()
        for block, order, width in zip(stack.blocks, stack.orders, stack.widths, strict=True):
            cut = cuts[block]
            if cut is not None:
                votes[order.index(cut.label)] += width
        chosen.append(max(votes, key=lambda p: (votes[p], -p)) if votes else None)
    return tuple(chosen)
