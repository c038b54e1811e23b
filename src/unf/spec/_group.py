"""Elements of the symmetry group, and their action on weights (eq. 3 to 5).

A group element gives each name its indices. For `h.k`, nested in `h`, there is one row of
indices for every `h`; together they form a wreath product. The action is
`y[i, j] = x[p[i], q[i, j]]` with `p` the indices of `h` and `q` those of `h.k`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ._blocks import Block, array_module, base_name
from ._errors import SpecError
from ._grammar import parse_name

if TYPE_CHECKING:
    from ._space import WeightSpace


def ancestors(name: str) -> list[str]:
    """The names that `name` is nested in, outermost first."""
    parts = name.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def indices_shape(space: "WeightSpace", name: str) -> tuple[int, ...]:
    """The shape of a name's indices: its size, preceded by those of its ancestors."""
    return tuple(space.axis_sizes[n] for n in [*ancestors(name), name])


def sample(space: "WeightSpace", key: Any) -> dict[str, Any]:
    """A uniformly random group element."""
    permutation = {}
    for name, subkey in zip(space.sizes, jax.random.split(key, len(space.sizes)), strict=True):
        shape = indices_shape(space, name)
        identity = jnp.broadcast_to(jnp.arange(shape[-1]), shape)
        permutation[name] = jax.random.permutation(subkey, identity, axis=-1, independent=True)
    return permutation


def check(space: "WeightSpace", permutation: Mapping[Any, Any]) -> dict[str, Any]:
    """The group element with normalised names, checked against the space."""
    checked = {}
    for given, indices in permutation.items():
        name = parse_name(given)
        if name not in space.sizes:
            raise SpecError(
                f"{name!r} is not a permutation of this space",
                expected=f"some of {list(space.sizes)}",
                got=repr(given),
                remedy="relax() makes a fixed axis permutable" if name in space.fixed else None,
            )
        shape = indices_shape(space, name)
        if tuple(np.shape(indices)) != shape:
            raise SpecError(
                f"the indices of {name!r} have the wrong shape",
                expected=f"shape {shape}",
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


def permute(space: "WeightSpace", params: Any, permutation: Mapping[Any, Any]) -> Any:
    """Act on every leaf; trailing axes beyond the specification are channels.

    Leaves with none of the names stay as they are, and NumPy arrays NumPy arrays.
    """
    if not isinstance(permutation, Mapping):
        raise SpecError(
            "this is no permutation of a weight space",
            expected="indices by name, such as space.sample_permutation(key) draws",
            got=f"a {type(permutation).__name__}",
        )
    permutation = check(space, permutation)
    channels = any(
        np.ndim(array) > len(leaf.shape)
        for array, leaf in zip(jax.tree_util.tree_leaves(params), space.leaves, strict=False)
    )
    arrays = space.flatten(params, channels=channels)
    out = []
    for layout, array in zip(space.layouts, arrays, strict=True):
        if not any(base_name(x.name) in permutation for b in layout.blocks for x in b.labels):
            out.append(array)
            continue
        parts = layout.split(array if isinstance(array, np.ndarray) else jnp.asarray(array))
        permuted = [
            permute_block(block, part, permutation)
            for block, part in zip(layout.blocks, parts, strict=True)
        ]
        out.append(layout.join(permuted))
    return space.unflatten(out)


def permute_block(block: Block, array: Any, permutation: Mapping[str, Any]) -> Any:
    """Act on one block, its axes in stored order; parents move before what they hold."""
    order = sorted(range(len(block.labels)), key=lambda i: block.labels[i].name.count("."))
    for position in order:
        label = block.labels[position]
        name = base_name(label.name)
        if name not in permutation:
            continue
        indices = permutation[name]
        lineage = [position]
        while (parent := block.labels[lineage[0]].parent) is not None:
            lineage.insert(0, parent)
        axes = [block.permuted[i] for i in lineage]
        at = dict(block.indices)
        indices = indices[tuple(at.get(ancestor, slice(None)) for ancestor in ancestors(name))]
        array = _take(array, indices, axes)
    return array


def _take(array: Any, indices: Any, axes: list[int]) -> Any:
    """Index the last of `axes` with `indices`, which vary along all of them."""
    xp = array_module(array)
    if len(axes) == 1:
        return xp.take(array, indices, axis=axes[0])
    order = sorted(range(len(axes)), key=lambda i: axes[i])
    shape = [1] * array.ndim
    for axis, size in zip(axes, indices.shape, strict=True):
        shape[axis] = size
    aligned = xp.transpose(indices, order).reshape(shape)
    return xp.take_along_axis(array, aligned, axis=axes[-1])


def invert(space: "WeightSpace", permutation: Mapping[Any, Any]) -> dict[str, Any]:
    """The group element that undoes another: permuting with both gives back the weights."""
    permutation = check(space, permutation)
    inverse: dict[str, Any] = {}
    for name in sorted(permutation, key=lambda n: n.count(".")):
        rows = jnp.argsort(permutation[name], axis=-1)
        # Row i of q belongs to where i came from, so the rows move with the inverse of what
        # they are nested in.
        for depth, ancestor in enumerate(ancestors(name)):
            if ancestor in inverse:
                rows = _take(rows, inverse[ancestor], list(range(depth + 1)))
        inverse[name] = rows
    return inverse
