"""The group's permutations as trees of nested nodes, and computing with its elements in NumPy.

A *node* is a permutation as blocks name it, `h.k` or `layer[2].m`. Its rows of indices, one row for
every index of the nodes it is nested in, are a view of an element's indices, so that elements here
have the form that `WeightSpace.sample_permutation` gives.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import factorial, prod
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..spec import WeightSpace
from ..spec._grammar import base_name, fixed_indices
from ..spec._group import invert, take
from ..spec._space import Permutation, check_is_space

Element = dict[str, np.ndarray]


@dataclass(frozen=True)
class Node:
    """A permutation, with those that are nested in it.

    Attributes:
        lineage: the nodes from the root of its tree down to itself, by name.
        shape: their sizes, which is the shape of its rows.
        children: the nodes directly nested in it.
    """

    lineage: tuple[str, ...]
    shape: tuple[int, ...]
    children: tuple["Node", ...]

    @property
    def name(self) -> str:
        """The permutation's name in blocks."""
        return self.lineage[-1]

    def walk(self) -> Iterator["Node"]:
        """The node and everything nested in it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


def make_trees(space: WeightSpace) -> tuple[Node, ...]:
    """The permutations of a space, each tree by its root, in order of first appearance."""
    sizes: dict[str, int] = {}
    nested: dict[str | None, list[str]] = {}
    for labels in (block.labels for block in space.blocks):
        for label in labels:
            if label.name not in sizes:
                sizes[label.name] = label.size
                parent = None if label.parent is None else labels[label.parent].name
                nested.setdefault(parent, []).append(label.name)

    def make(name: str, lineage: tuple[str, ...], shape: tuple[int, ...]) -> Node:
        lineage, shape = (*lineage, name), (*shape, sizes[name])
        children = tuple(make(child, lineage, shape) for child in nested.get(name, []))
        return Node(lineage, shape, children)

    return tuple(make(name, (), ()) for name in nested.get(None, []))


def orbit_size(space: WeightSpace) -> int:
    """The order of the symmetry group, which is the size of its largest orbits.

    This is the number of ways to store one network if no two of them are equal, as for weights
    in general position; weights with equal neurons have a smaller orbit. A permutation of n
    elements contributes n!, and one that is nested in others contributes n! for each of their
    indices: `h` heads with `h.k` have h! · (k!)^h orders.

    >>> import jax, unf
    >>> params = {"w": jax.ShapeDtypeStruct((4, 6), "float32")}
    >>> unf.orbit_size(unf.WeightSpace.from_spec({"w": "[x] hidden"}, params))
    720
    >>> space = unf.WeightSpace.from_spec({"w": "[x] (h h.k)"}, params, sizes={"h": 2})
    >>> unf.orbit_size(space)  # 2! · (3!)²
    72

    Args:
        space: the weight space.

    Raises:
        SpecError: if `space` is not a weight space.
    """
    check_is_space(space)
    nodes = [node for root in make_trees(space) for node in root.walk()]
    return prod(factorial(node.shape[-1]) ** prod(node.shape[:-1]) for node in nodes)


def identity(space: WeightSpace) -> Element:
    """The neutral element."""
    shapes = space.index_shapes.items()
    return {name: np.broadcast_to(np.arange(shape[-1]), shape).copy() for name, shape in shapes}


def rows(element: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """A view of the indices of a node."""
    return element[base_name(name)][fixed_indices(name)]


def move(array: np.ndarray, lineage: Sequence[str], element: Mapping[str, np.ndarray]) -> Any:
    """Act on an array whose first axes are those of nested nodes."""
    for depth, name in enumerate(lineage):
        array = take(array, rows(element, name), range(depth + 1))
    return array


def compose(
    trees: Sequence[Node], then: Mapping[str, np.ndarray], first: Mapping[str, np.ndarray]
) -> Element:
    """The element that acts as `first` and, afterwards, as `then` on some of the trees."""
    result = {name: indices.copy() for name, indices in first.items()}
    for node in (node for root in trees for node in root.walk()):
        rows(result, node.name)[...] = move(rows(first, node.name), node.lineage, then)
    return result


def inverse(element: Mapping[str, np.ndarray]) -> Element:
    """The inverse of an element."""
    return {name: np.asarray(indices) for name, indices in invert(element).items()}


def to_permutation(element: Mapping[str, np.ndarray]) -> Permutation:
    """The element as `WeightSpace.sample_permutation` gives it, in JAX's arrays."""
    return {name: jnp.asarray(indices) for name, indices in element.items()}
