"""The weights of a network as NumPy arrays of its blocks, checked."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

from ..spec import SpecError, WeightSpace
from ..spec._space import check_is_space


def make_parts(space: WeightSpace, tree: PyTree, *, finite: bool) -> list[np.ndarray]:
    """The blocks of all leaves, in the order of `space.blocks`, with a trailing channel axis.

    Where JAX and the specification allow, these are views of the given arrays.

    Args:
        space: the weight space.
        tree: weights, or features with one trailing channel axis.
        finite: whether to refuse infinite values, too, instead of only NaN.

    Raises:
        SpecError: naming the leaf that is no array of real numbers, or has another shape.
    """
    check_is_space(space)
    parts = []
    leaves = space.flatten(tree, channels=None)
    for leaf, layout, given in zip(space.leaves, space.layouts, leaves, strict=True):
        array = _check(given, leaf.path, finite)
        if array.ndim == len(leaf.shape):
            array = array[..., None]
        parts += layout.split(array)
    return parts


def _check(given: Any, path: str, finite: bool) -> np.ndarray:
    if isinstance(given, Tracer | jax.ShapeDtypeStruct):
        traced = isinstance(given, Tracer)
        raise SpecError(
            "a traced array has no values to compare" if traced else "a shape without values",
            path=path,
            expected="an array",
            remedy="call this outside jit, vmap, and grad, on one network at a time"
            if traced
            else "pass the weights",
        )
    array = np.asarray(given)
    real = (jnp.floating, jnp.integer, jnp.bool_)
    if array.dtype.itemsize > 8 or not any(jnp.issubdtype(array.dtype, kind) for kind in real):
        raise SpecError(
            "not an array of real numbers",
            path=path,
            expected="floating point numbers, integers, or booleans of at most 64 bits",
            got=f"dtype {array.dtype}",
            remedy="make the real and imaginary parts two leaves of the specification"
            if array.dtype.kind == "c"
            else None,
        )
    if jnp.issubdtype(array.dtype, jnp.floating):
        allowed = np.isfinite(array) if finite else ~np.isnan(array)
        if not np.all(allowed):
            raise SpecError(
                f"{np.size(allowed) - np.count_nonzero(allowed)} of {np.size(allowed)} values "
                f"are {'not finite' if finite else 'NaN'}, so neurons cannot be compared",
                path=path,
                remedy="drop() the leaf from the space, or repair the weights",
            )
    return array
