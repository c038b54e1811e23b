"""Elements of the symmetry group, and their action on weights (eq. 3 to 5).

A group element gives each name its indices. For `h.k`, nested in `h`, there is one row of
indices for every `h`; together they form a wreath product. The action is
`y[i, j] = x[p[i], q[i, j]]` with `p` the indices of `h` and `q` those of `h.k`.

`shapes` below maps each permutation's name to the shape of its indices.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ._blocks import Block, Layout, array_module
from ._errors import SpecError
from ._grammar import ancestors, base_name, fixed_indices, parse_name

Shapes = Mapping[str, tuple[int, ...]]


def sample(shapes: Shapes, key: Any) -> dict[str, Any]:
    """A uniformly random group element."""
    permutation = {}
    for (name, shape), subkey in zip(
        shapes.items(), jax.random.split(key, len(shapes)), strict=True
    ):
        identity = jnp.broadcast_to(jnp.arange(shape[-1]), shape)
        permutation[name] = jax.random.permutation(subkey, identity, axis=-1, independent=True)
    return permutation


def check(permutation: Any, shapes: Shapes, fixed: Sequence[str]) -> dict[str, Any]:
    """The group element with normalized names, checked against the names of a space."""
    if not isinstance(permutation, Mapping):
        raise SpecError(
            "not a permutation of a weight space",
            expected="indices by name, such as space.sample_permutation(key) draws",
            got=f"a {type(permutation).__name__}",
        )
    checked = {}
    for given, indices in permutation.items():
        name = parse_name(given)
        if name not in shapes:
            raise SpecError(
                f"{name!r} is not a permutation of this space",
                expected=f"some of {list(shapes)}",
                got=repr(given),
                remedy="relax() makes a fixed axis permutable" if name in fixed else None,
            )
        if tuple(np.shape(indices)) != shapes[name]:
            raise SpecError(
                f"the indices of {name!r} have the wrong shape",
                expected=f"shape {shapes[name]}",
                got=f"shape {np.shape(indices)}",
            )
        if not isinstance(indices, Tracer):
            _check_values(name, np.asarray(indices))
        checked[name] = indices if isinstance(indices, np.ndarray) else jnp.asarray(indices)
    return checked


def _check_values(name: str, indices: np.ndarray) -> None:
    rows = np.broadcast_to(np.arange(indices.shape[-1]), indices.shape)
    if not np.array_equal(np.sort(indices, axis=-1), rows):
        raise SpecError(
            f"the indices of {name!r} are not a permutation",
            expected=f"each of 0 to {indices.shape[-1] - 1} once",
            got=np.array2string(indices, threshold=10),
        )


def permute_leaf(layout: Layout, array: Any, permutation: Mapping[str, Any]) -> Any:
    """Act on one leaf; trailing axes beyond the specification are channels.

    A leaf with none of the names is returned as it is, and a NumPy array stays one.
    """
    names = {base_name(label.name) for block in layout.blocks for label in block.labels}
    if not names & permutation.keys():
        return array
    parts = layout.split(array if isinstance(array, np.ndarray) else jnp.asarray(array))
    pairs = zip(layout.blocks, parts, strict=True)
    return layout.join([permute_block(block, part, permutation) for block, part in pairs])


def permute_block(block: Block, array: Any, permutation: Mapping[str, Any]) -> Any:
    """Act on one block; parents move before what is nested in them."""
    order = sorted(range(len(block.labels)), key=lambda i: block.labels[i].name.count("."))
    for position in order:
        name = base_name(block.labels[position].name)
        if name not in permutation:
            continue
        rows = permutation[name][fixed_indices(block.labels[position].name)]
        array = take(array, rows, lineage_axes(block, position))
    return array


def lineage_axes(block: Block, position: int) -> list[int]:
    """The axes of the label at `position` and of those that it is nested in, outermost first."""
    axes: list[int] = []
    at: int | None = position
    while at is not None:
        axes.insert(0, block.permuted[at])
        at = block.labels[at].parent
    return axes


def take(array: Any, indices: Any, axes: Sequence[int]) -> Any:
    """Index the last of `axes` with `indices`, which vary along all of them."""
    xp = array_module(array)
    if len(axes) == 1:
        return xp.take(array, indices, axis=axes[0])
    return xp.take_along_axis(array, align_axes(indices, axes, array.ndim), axis=axes[-1])


def align_axes(values: Any, axes: Sequence[int], ndim: int) -> Any:
    """Values that vary along some axes of an array of rank `ndim`, ready to broadcast."""
    shape = [1] * ndim
    for axis, size in zip(axes, values.shape, strict=True):
        shape[axis] = size
    order = sorted(range(len(axes)), key=lambda i: axes[i])
    return array_module(values).transpose(values, order).reshape(shape)


def invert(permutation: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of a checked group element."""
    inverse: dict[str, Any] = {}
    for name in sorted(permutation, key=lambda n: n.count(".")):
        rows = array_module(permutation[name]).argsort(permutation[name], axis=-1)
        # Row i of q belongs to the index that i came from, so the rows move with the inverse
        # of the permutation they are nested in.
        for depth, ancestor in enumerate(ancestors(name)):
            if ancestor in inverse:
                rows = take(rows, inverse[ancestor], list(range(depth + 1)))
        inverse[name] = rows
    return inverse
