"""Colors of neurons that no permutation changes: Weisfeiler–Leman refinement on exact weights.

A *coloring* gives each neuron of each node a number, equal for neurons that are not told apart. One
round of refinement replaces the color of a neuron by its rank among the pairs of its old color and
the multiset of (weight, colors of all neurons at that weight) over all weights at its index.
Weights are compared bit by bit, and the multisets by sums of 64-bit hashes modulo 2^64, which are
the same in every order. A collision of hashes leaves neurons together that could be told apart; it
does not make colors depend on the order.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from ..spec import WeightSpace
from ..spec._blocks import Block
from ..spec._group import lineage_axes
from ._elements import Node, make_trees

Coloring = Mapping[str, np.ndarray]
"""Colors of the neurons of each node, in its shape; smaller ones come first."""

_CHUNK = 2**16
"""How many hashes are made at once: few enough for the processor's cache."""


class Refinement:
    """Refines colorings of the neurons of one network, given by its blocks."""

    def __init__(self, space: WeightSpace, parts: Sequence[np.ndarray]):
        self.nodes: dict[str, Node] = {
            node.name: node for root in make_trees(space) for node in root.walk()
        }
        pairs = zip(space.blocks, parts, strict=True)
        self._pairs = [(block, part) for block, part in pairs if block.labels]

    def first_coloring(self) -> Coloring:
        """Neurons by their largest absolute weight, in descending order."""
        largest = {name: np.zeros(node.shape) for name, node in self.nodes.items()}
        for block, part in self._pairs:
            for position, label in enumerate(block.labels):
                axes = lineage_axes(block, position)
                others = tuple(i for i in range(part.ndim) if i not in axes)
                found = np.maximum(_widened(part.max(others)), -_widened(part.min(others)))
                found = found.transpose(_ranks_of(axes))
                np.maximum(largest[label.name], found, out=largest[label.name])
        return {name: _rank(-values, np.zeros(values.shape)) for name, values in largest.items()}

    def refine(self, colors: Coloring) -> Coloring:
        """Repeat rounds until no color splits, or none needs to."""
        while any(has_ties(of_node) for of_node in colors.values()):
            refined = self._round(colors)
            if _num_colors(refined) == _num_colors(colors):
                break
            colors = refined
        return colors

    def _round(self, colors: Coloring) -> Coloring:
        sums = {name: np.zeros(node.shape, np.uint64) for name, node in self.nodes.items()}
        for number, (block, codes) in enumerate(self._codes):
            of_block = _block_sums(block, codes, colors)
            for position, (label, found) in enumerate(zip(block.labels, of_block, strict=True)):
                salt = np.uint64(number * len(self._codes) * 64 + position)
                sums[label.name] += _mix(found + _mix(np.full(1, salt)))
        return {name: _rank(colors[name], sums[name]) for name in colors}

    @cached_property
    def _codes(self) -> list[tuple[Block, np.ndarray]]:
        """A code for the weights at each index of the permuted axes, in the order of these."""
        return [(block, _fold(block, bits(part))) for block, part in self._pairs]


def has_ties(colors: np.ndarray) -> bool:
    """Whether some neurons with the same parent are not told apart."""
    ordered = np.sort(colors, axis=-1)
    return bool(np.any(ordered[..., 1:] == ordered[..., :-1]))


def bits(array: np.ndarray) -> np.ndarray:
    """The bits of all entries as unsigned integers, so that equal means identical."""
    return array.view(f"uint{8 * array.dtype.itemsize}")


def _widened(array: np.ndarray) -> np.ndarray:
    return np.asarray(array, np.float64)


def _ranks_of(axes: Sequence[int]) -> list[int]:
    """How to transpose what is in ascending order of `axes` into their own order."""
    return [sorted(axes).index(axis) for axis in axes]


def _rank(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The rank of each pair of entries among the distinct pairs."""
    a, b = first.ravel(), second.ravel()
    order = np.lexsort((b, a))
    a, b = a[order], b[order]
    steps = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    ranks = np.empty(a.size, np.int64)
    ranks[order] = np.concatenate([[0], np.cumsum(steps)])
    return ranks.reshape(first.shape)


def _num_colors(colors: Coloring) -> int:
    return sum(np.unique(of_node).size for of_node in colors.values())


def _mix(x: np.ndarray) -> np.ndarray:
    """A bijection of 64-bit integers that spreads every bit (the finalizer of SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _fold(block: Block, array: np.ndarray) -> np.ndarray:
    """The bits at each index of the permuted axes; several along fixed axes as one hash."""
    count = len(block.permuted)
    array = array.transpose(*block.permuted, *block.fixed, array.ndim - 1)
    sizes = array.shape[:count]
    width = int(np.prod(array.shape[count:]))
    if width == 1:
        return array.reshape(sizes)
    salts = _mix(np.arange(1, width + 1, dtype=np.uint64)).reshape(array.shape[count:])
    codes = np.zeros(sizes, np.uint64)
    fixed = tuple(range(count, array.ndim))
    for chunk in _chunks(array):
        codes[chunk] = _mix(array[chunk].astype(np.uint64) + salts).sum(axis=fixed)
    return codes


def _chunks(array: np.ndarray) -> list[slice]:
    step = max(1, _CHUNK * array.shape[0] // array.size)
    return [slice(start, start + step) for start in range(0, array.shape[0], step)]


def _block_sums(block: Block, codes: np.ndarray, colors: Coloring) -> list[np.ndarray]:
    """For each label, the hash of the multiset of weights and colors of each of its neurons."""
    permuted = block.permuted
    every = [
        [permuted.index(axis) for axis in lineage_axes(block, position)]
        for position in range(len(block.labels))
    ]
    hashed = []
    for position, (label, axes) in enumerate(zip(block.labels, every, strict=True)):
        values = _mix(colors[label.name].astype(np.uint64) + np.uint64(position << 40))
        shape = [codes.shape[i] if i in axes else 1 for i in range(codes.ndim)]
        hashed.append(values.transpose(np.argsort(axes)).reshape(shape))
    sums = [np.zeros([codes.shape[i] for i in sorted(axes)], np.uint64) for axes in every]
    for chunk in _chunks(codes):
        entries = codes[chunk].astype(np.uint64)
        for axes, values in zip(every, hashed, strict=True):
            entries += values[chunk] if 0 in axes else values
        entries = _mix(entries)
        for axes, total in zip(every, sums, strict=True):
            others = tuple(i for i in range(codes.ndim) if i not in axes)
            total[chunk if 0 in axes else slice(None)] += entries.sum(axis=others)
    return [total.transpose(_ranks_of(axes)) for axes, total in zip(every, sums, strict=True)]
