"""Coordinate descent over permutations: one tree of nested names at a time, the others held.

Moving `b` onto `a` minimizes ‖a − g·b‖², or maximizes f(g) = ⟨a, g·b⟩, over the group. If a tree
occurs once in each block, f is linear in its matching while the others are held, and one exact
assignment finds the best (weight matching in Ainsworth et al., 2023, here with nested names). If it
occurs more than once, as in recurrent weights, f is a polynomial; its linear part at the present
matching proposes moves, and only those that increase f are made. So f never decreases, and the
descent ends.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from math import prod

import numpy as np

from ..spec import WeightSpace
from ..spec._group import lineage_axes, permute_block
from ._assignment import assign, assign_alone
from ._elements import Element, Node, compose, identity, make_trees, move, rows
from ._similarity import inner_product, similarity, squared_distance

_LEAST_GAIN = 1e-13
"""Relative to ‖a‖·‖b‖: smaller gains are rounding errors."""
_MANY_WEIGHTS = 32
"""How many weights of a neuron are enough to match it by these alone."""
_MOST_CYCLES = 64
"""How many cycles of a rejected move are tried alone."""


class _Tree:
    """Where the permutations of one tree occur.

    Attributes:
        occurrences: for each block with the tree, how often the similarity of each label counts.
            Where several labels are nested in one axis, the linear part of f is the sum over
            labels less what the axis itself contributes to each beyond the first.
        constant: large blocks whose similarities no other permutation changes.
        linear: whether the tree occurs once in each block.
    """

    def __init__(self, space: WeightSpace, root: Node):
        self.root = root
        self.nodes = {node.name: node for node in root.walk()}
        self.occurrences: dict[int, dict[int, int]] = {}
        self.constant: set[int] = set()
        self.linear = True
        for number, block in enumerate(space.blocks):
            found = [i for i, label in enumerate(block.labels) if label.name in self.nodes]
            if not found:
                continue
            parents = [block.labels[i].parent for i in found]
            counts = {i: 1 - parents.count(i) for i in found}
            self.occurrences[number] = {i: count for i, count in counts.items() if count}
            once = len(self.occurrences[number]) == 1
            self.linear &= once
            alone = once and len(found) == len(block.labels)
            # Similarities are worth keeping if they are smaller than the weights.
            if alone and block.width > prod(label.size for label in block.labels):
                self.constant.add(number)


class Descent:
    """Moves the blocks `b` of one network onto the blocks `a` of another."""

    def __init__(self, space: WeightSpace, a: Sequence[np.ndarray], b: Sequence[np.ndarray]):
        self.space, self.a, self.b = space, a, b
        self.trees = [_Tree(space, root) for root in make_trees(space)]
        norms = [sum(inner_product(x, x) for x in parts) for parts in (a, b)]
        self._least = _LEAST_GAIN * float(np.sqrt(norms[0] * norms[1]))

    def run(
        self,
        element: Element,
        visited: Callable[[bool], None] = lambda new: None,
        held: Container[str] = (),
    ) -> Element:
        """Improve an element until no move of any tree does.

        Args:
            element: where to start.
            visited: called after each visit of a tree, with whether it was the first.
            held: the roots of trees that do not move.
        """
        free = {i for i, tree in enumerate(self.trees) if tree.root.name not in held}
        pending = sorted(free)
        seen: set[int] = set()
        while pending:
            number = pending.pop(0)
            improved = self._improve(self.trees[number], element)
            if improved is not None:
                element = improved
                again = self._neighbors[number] | (set() if self.trees[number].linear else {number})
                pending += sorted((again & free) - set(pending))
            visited(number not in seen)
            seen.add(number)
        return element

    def from_sorted_weights(self) -> Element:
        """A matching of one tree after another that does not depend on the order of `b`.

        Neurons are compared by their weights along fixed axes and trees that are matched already,
        and by their sorted weights along others, which no permutation changes. Trees with the
        largest share of the former come first. The matching is exact for a permuted copy whose
        neurons are told apart by these weights, and close for a perturbed one.
        """
        element, known = identity(self.space), set[str]()
        remaining = list(self.trees)
        while remaining:
            tree = max(remaining, key=lambda tree: self._share_in_order(tree, known))
            remaining.remove(tree)
            assign(tree.root, self._similarities_when(tree, known, element), element)
            known |= tree.nodes.keys()
        return element

    def _share_in_order(self, tree: _Tree, known: set[str]) -> float:
        """The share of a tree's weights in blocks whose other axes are fixed or matched."""
        sizes = {number: self.a[number].size for number in tree.occurrences}
        ordered = [n for n in sizes if not any(self._unordered(tree, n, known).values())]
        return sum(sizes[number] for number in ordered) / sum(sizes.values())

    def _unordered(self, tree: _Tree, number: int, known: set[str]) -> dict[int, list[int]]:
        """For each label that counts, the other axes of its block that are not matched yet."""
        block = self.space.blocks[number]
        others = [
            axis
            for axis, label in zip(block.permuted, block.labels, strict=True)
            if label.name not in known
        ]
        return {
            position: [axis for axis in others if axis not in lineage_axes(block, position)]
            for position in tree.occurrences[number]
        }

    def _similarities_when(
        self, tree: _Tree, known: set[str], element: Element
    ) -> dict[str, np.ndarray]:
        """The similarities of a tree's neurons when only some names are matched."""
        axes = {number: self._unordered(tree, number, known) for number in tree.occurrences}
        ordered = {number for number in axes if not any(axes[number].values())}
        count = prod(max((node.shape for node in tree.nodes.values()), key=prod))
        # Sorted weights say little beside many in order, and make hard problems of assignment.
        if sum(self.a[number].size for number in ordered) < _MANY_WEIGHTS * count:
            ordered = set(axes)
        found: dict[str, np.ndarray] = {}
        for number in sorted(ordered):
            self._add(found, tree, number, self._moved(number, element), axes[number])
        return found

    def squared_distance(self, element: Element) -> float:
        """‖a − g·b‖², in float64."""
        moved = (self._moved(number, element) for number in range(len(self.b)))
        return sum(map(squared_distance, self.a, moved))

    @cached_property
    def _neighbors(self) -> list[set[int]]:
        """For each tree, the others that share a block with it."""
        found = [set(tree.occurrences) - tree.constant for tree in self.trees]
        numbers = range(len(self.trees))
        return [{j for j in numbers if j != i and found[i] & found[j]} for i in numbers]

    @cached_property
    def _constants(self) -> dict[str, np.ndarray]:
        """The similarities of nodes from large blocks that only their tree permutes, in `b`."""
        constants: dict[str, np.ndarray] = {}
        for tree in self.trees:
            for number in sorted(tree.constant):
                self._add(constants, tree, number, self.b[number])
        return constants

    def _moved(self, number: int, element: Element) -> np.ndarray:
        return permute_block(self.space.blocks[number], self.b[number], element)

    def _add(
        self,
        found: dict[str, np.ndarray],
        tree: _Tree,
        number: int,
        moved: np.ndarray,
        unordered: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        """Add the similarities from one block to those of each node."""
        block = self.space.blocks[number]
        for position, count in tree.occurrences[number].items():
            name = block.labels[position].name
            axes = unordered[position] if unordered else ()
            added = similarity(block, position, self.a[number], moved, unordered=axes)
            if count != 1:
                added *= count
            found[name] = found[name] + added if name in found else added

    def _similarities(self, tree: _Tree, element: Element) -> dict[str, np.ndarray]:
        """The similarities of a tree's neurons in a and g·b, with everything else as it is."""
        found = {}
        for name, node in tree.nodes.items():
            if name in self._constants:
                places = np.arange(prod(node.shape)).reshape(node.shape)
                moved = move(places, node.lineage, element)
                found[name] = self._constants[name][:, moved.ravel()]
        for number in sorted(tree.occurrences.keys() - tree.constant):
            self._add(found, tree, number, self._moved(number, element))
        return found

    def _improve(self, tree: _Tree, element: Element) -> Element | None:
        """A better element that differs in one tree, or None if no proposed move is better."""
        step = identity(self.space)
        gain = assign(tree.root, self._similarities(tree, element), step)
        if tree.linear:
            return compose([tree.root], step, element) if gain > self._least else None
        value = self._value(tree, element)
        trial = compose([tree.root], step, element)
        if gain > self._least and self._value(tree, trial) > value + self._least:
            return trial
        return self._improve_partly(tree, element, value)

    def _improve_partly(self, tree: _Tree, element: Element, value: float) -> Element | None:
        """Move one node alone, or only some cycles of it."""
        start = value
        for node in tree.nodes.values():
            step = identity(self.space)
            if assign_alone(node, self._alone(tree, node, element), step) <= self._least:
                continue
            for part in (step, *islice(_cycles(step, node, self.space), _MOST_CYCLES)):
                trial = compose([tree.root], part, element)
                trial_value = self._value(tree, trial)
                if trial_value > value + self._least:
                    element, value = trial, trial_value
                    if part is step:
                        break
        return element if value > start else None

    def _alone(self, tree: _Tree, node: Node, element: Element) -> np.ndarray:
        """The similarities of one node's neurons, with what is nested in them as it is."""
        total = np.zeros((prod(node.shape),) * 2)
        for number in tree.occurrences:
            block, moved = self.space.blocks[number], self._moved(number, element)
            for position, label in enumerate(block.labels):
                if label.name == node.name:
                    total += similarity(block, position, self.a[number], moved)
        return total

    def _value(self, tree: _Tree, element: Element) -> float:
        """The sum of f over the blocks with a tree."""
        numbers = tree.occurrences
        return sum(inner_product(self.a[i], self._moved(i, element)) for i in numbers)


def _cycles(step: Element, node: Node, space: WeightSpace) -> Iterator[Element]:
    """Elements with one cycle each of a node's permutations."""
    size = node.shape[-1]
    for row, indices in enumerate(rows(step, node.name).reshape(-1, size)):
        remaining = {i for i in range(size) if indices[i] != i}
        while remaining:
            cycle = [min(remaining)]
            while (following := int(indices[cycle[-1]])) != cycle[0]:
                cycle.append(following)
            remaining -= set(cycle)
            part = identity(space)
            own = rows(part, node.name).reshape(-1, size)
            own[row, cycle] = indices[cycle]
            rows(part, node.name)[...] = own.reshape(node.shape)
            yield part
