"""How similar the neurons of two networks are in one block: inner products of their weights.

A neuron of an axis, or of nested axes, has all weights of the block at its index. With the other
axes in their present order, maximizing the sum of inner products over matchings minimizes the
Euclidean distance in that block.
"""

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from ..spec._blocks import Block
from ..spec._group import lineage_axes

_CHUNK = 2**22
"""How many entries are converted at once."""


def similarity(
    block: Block, position: int, a: np.ndarray, b: np.ndarray, *, unordered: Sequence[int] = ()
) -> np.ndarray:
    """The inner products of all neurons of a label in `a` with those in `b`, in float64.

    Args:
        block: the block.
        position: which of its labels.
        a: the block of one network, with a trailing channel axis.
        b: that of the other.
        unordered: axes along which weights are compared in sorted order, which no permutation of
            these axes changes; along others, those at the same index are compared.
    """
    rows = [neurons(block, position, x, unordered) for x in (a, b)]
    count, length = rows[0].shape
    total = np.zeros((count, count))
    step = max(1, _CHUNK // count)
    for start in range(0, length, step):
        # In float32, the distance of near copies would drown in rounding errors.
        left, right = (x[:, start : start + step].astype(np.float64) for x in rows)
        total += left @ right.T
    return total


def neurons(
    block: Block, position: int, x: np.ndarray, unordered: Sequence[int] = ()
) -> np.ndarray:
    """A row of weights for each neuron."""
    own = lineage_axes(block, position)
    ordered = [axis for axis in range(x.ndim) if axis not in own and axis not in unordered]
    count = prod(x.shape[axis] for axis in own)
    width = prod(x.shape[axis] for axis in ordered)
    x = x.transpose(*own, *ordered, *unordered)
    if unordered:
        if x.dtype.itemsize <= 2:
            x = x.astype(np.float32)  # NumPy sorts its own dtypes faster
        x = np.sort(x.reshape(count, width, -1), axis=-1)
    return x.reshape(count, -1)


def inner_product(a: np.ndarray, b: np.ndarray) -> float:
    """The sum of products of all entries, accumulated in float64."""
    return sum(float(np.sum(x * y)) for x, y in _chunks(a, b))


def squared_distance(a: np.ndarray, b: np.ndarray) -> float:
    """The sum of squared differences of all entries, accumulated in float64."""
    return sum(float(np.sum(np.square(x - y))) for x, y in _chunks(a, b))


def _chunks(a: np.ndarray, b: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of vectors in float64 that together are both arrays."""
    length = max(1, a.shape[0])
    step = max(1, _CHUNK * length // max(1, a.size))
    for start in range(0, length, step):
        left, right = a[start : start + step], b[start : start + step]
        yield left.astype(np.float64).ravel(), right.astype(np.float64).ravel()
