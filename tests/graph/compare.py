"""Comparing specifications up to names, and breaking symmetries one axis at a time."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from unf import WeightSpace
from unf.spec import Leaf
from unf.spec._grammar import ByIndex, Concat, Name, Number, Product, braces_in, children, names_in


def canonical(space: WeightSpace) -> dict[str, str]:
    """Each leaf's specification with names numbered by appearance and fixed axes by size."""
    names: dict[str, str] = {}

    def name(path: str) -> str:
        if path in space.fixed:
            return f"[{space.axis_sizes[path]}]"
        parent = path.rpartition(".")[0]
        prefix = f"{name(parent)}." if parent else ""
        return prefix + names.setdefault(path, f"n{len(names)}")

    def write(axis: Any) -> str:
        if isinstance(axis, Number):
            return f"[{axis.size}]"
        if isinstance(axis, Name):
            return name(axis.path)
        if isinstance(axis, Product):
            return f"({' '.join(map(write, axis.factors))})"
        if isinstance(axis, ByIndex):
            return f"{{{' | '.join(map(write, axis.options))}}}"
        return f"({' + '.join(map(write, axis.parts))})"

    return {leaf.path: " ".join(map(write, leaf.axes)) for leaf in space.leaves}


def expected_space(space: WeightSpace, network: Any, params: Any) -> WeightSpace:
    """The space that the table gives for a network."""
    paths = [leaf.path for leaf in space.leaves]
    assert sorted(paths) == sorted(network.expected)
    spec = jax.tree_util.tree_unflatten(space.treedef, [network.expected[p] for p in paths])
    return WeightSpace.from_spec(spec, params, sizes=network.sizes)


def single_axes(space: WeightSpace) -> Iterator[tuple[str, WeightSpace]]:
    """For every place where an axis stands, a space in which that place alone permutes.

    Except the fixed axes whose indices are told apart, `kv` in `kv{a | b}`.
    """
    sizes = space.axis_sizes
    for i, leaf in enumerate(space.leaves):
        count = sum(1 for axis in leaf.axes for _ in _places(axis))
        for place in range(count):
            axes, size = _free_only(leaf, place, sizes)
            if size == 1 or axes is None:
                continue
            leaves = [
                Leaf(x.path, tuple(Number(n) for n in x.shape), x.shape) for x in space.leaves
            ]
            leaves[i] = Leaf(leaf.path, axes, leaf.shape)
            found = WeightSpace.from_leaves(space.treedef, tuple(leaves), {"moved": size})
            yield f"{leaf.path} place {place} of {leaf}", found


def _places(axis: Any) -> Iterator[Any]:
    if isinstance(axis, Name | Number):
        yield axis
    for child in children(axis):
        yield from _places(child)


def _free_only(leaf: Leaf, place: int, sizes: dict[str, int]) -> tuple[tuple | None, int]:
    position, found = iter(range(10**6)), []
    indices = {braces.index for axis in leaf.axes for braces in braces_in(axis)}

    def change(axis: Any) -> Any:
        if isinstance(axis, Product | Concat):
            return type(axis)(tuple(change(child) for child in children(axis)))
        if isinstance(axis, ByIndex):
            return ByIndex(axis.index, tuple(change(option) for option in axis.options))
        size = axis.size if isinstance(axis, Number) else sizes[axis.path]
        if next(position) == place:
            found.append(size)
            return Name("moved") if size > 1 else Number(1)
        return axis if isinstance(axis, Name) and axis.path in indices else Number(size)

    axes = tuple(change(axis) for axis in leaf.axes)
    names = {name.path for axis in axes for name in names_in(axis)}
    return (axes if indices <= names else None), found[0]


def relative_change(run: Any, space: WeightSpace, order: Any, params: Any, *inputs: Any) -> float:
    """How much the outputs change when the one free axis of `space` is put into `order`."""
    before = jax.tree.leaves(run(params, *inputs))
    permuted = space.permute(params, {"moved": order})
    after = jax.tree.leaves(run(permuted, *inputs))
    pairs = zip(before, after, strict=True)
    return max(float(np.max(np.abs(a - b)) / (np.max(np.abs(a)) + 1e-30)) for a, b in pairs)
