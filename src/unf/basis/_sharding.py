"""Along which axes to shard a weight space across devices.

If every leaf is sharded along a permuted axis, a layer never needs a whole leaf on one device:
a mean over the sharded axis is the mean of each device's shard, averaged across devices, and
everything else happens where the numbers are.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..spec import WeightSpace
from ..spec._blocks import Block
from ..spec._grammar import AxisSpec, Name, Number, Product, base_name
from ..spec._sizes import axis_size
from ._plan import Stack


def shard_axes(space: WeightSpace, devices: int) -> tuple[int | None, ...]:
    """For each leaf, the axis to shard into `devices` equal parts; None to replicate it.

    An axis can be sharded if `devices` divides the first factor of its product: then each
    shard holds whole indices of that factor. A shard of a concatenation would straddle
    blocks. Of the possible axes, the one with the largest permutation is chosen, so that
    leaves with the same permutations are sharded in the same way. A fixed axis is chosen only
    if there is no other and some block of the leaf has a permutation that `devices` divides,
    along which a layer can reshard it.

    >>> import jax
    >>> shapes = [jax.ShapeDtypeStruct(s, "float32") for s in [(8, 12), (12, 8), (10,)]]
    >>> space = WeightSpace.from_spec(["d (h h.k)", "(h h.k) d", "n"], shapes, sizes={"h": 4})
    >>> shard_axes(space, 4)
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
        usable = permuted or any(_largest_label(b, devices) is not None for b in layout.blocks)
        chosen.append(None if place is None or not usable else -place)
    return tuple(chosen)


@dataclass(frozen=True)
class BlockSharding:
    """How a block is sharded inside a layer.

    Attributes:
        label: the position of the sharded axis among the block's permuted axes.
        resharded: whether the leaf itself is sharded along another axis, a fixed one.
    """

    label: int
    resharded: bool


def shard_blocks(space: WeightSpace, devices: int) -> tuple[BlockSharding | None, ...]:
    """How each block is sharded inside a layer; None if every device holds all of it.

    A block is sharded along the same permutation as its leaf. To a layer, fixed axes are
    channels, so a block of a leaf that is sharded along a fixed axis is resharded along its
    largest permutation.
    """
    axes = shard_axes(space, devices)
    return tuple(_shard_block(space, block, axes[block.leaf], devices) for block in space.blocks)


def _shard_block(
    space: WeightSpace, block: Block, axis: int | None, devices: int
) -> BlockSharding | None:
    if axis is None:
        return None
    atom = _first_factor(space.leaves[block.leaf].axes[axis])
    if isinstance(atom, Name) and not atom.fixed:
        names = [base_name(label.name) for label in block.labels]
        return BlockSharding(names.index(atom.path), resharded=False)
    largest = _largest_label(block, devices)
    return None if largest is None else BlockSharding(largest, resharded=True)


def _first_factor(axis: AxisSpec) -> AxisSpec:
    while isinstance(axis, Product):
        axis = axis.factors[0]
    return axis


def _largest_label(block: Block, devices: int) -> int | None:
    """The position of a block's largest permutation that `devices` divides."""
    sizes = [label.size for label in block.labels]
    best = max((size for size in sizes if size % devices == 0), default=None)
    return None if best is None else sizes.index(best)


def shard_stacks(
    space: WeightSpace, stacks: Sequence[Stack], devices: int
) -> tuple[int | None, ...]:
    """For each stack, the axis along which most of its entries are sharded."""
    shardings = shard_blocks(space, devices)
    chosen = []
    for stack in stacks:
        votes: Counter[int] = Counter()
        for block, order, width in stack.members:
            sharding = shardings[block]
            if sharding is not None:
                votes[order.index(sharding.label)] += width
        chosen.append(most_voted(votes))
    return tuple(chosen)


def most_voted(votes: Counter[int]) -> int | None:
    """The position with most votes, the first of several; None without votes."""
    return max(votes, key=lambda p: (votes[p], -p)) if votes else None
