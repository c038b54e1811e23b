"""Reading and writing diagonals, cheaply in both directions of differentiation.

There are two ways to read a diagonal and two ways to write one. Values are computed the first way
and tangents the second way: the result is the same, and the transpose of the second way, which
computes gradients, is the first way of the opposite operation. Without this, a gradient would
read or store arrays of full size.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array


def _with_tangent(value: Callable, tangent: Callable) -> Callable:
    """The linear function `value`, differentiated as `tangent`, another way to compute it."""
    function = jax.custom_jvp(value, nondiff_argnums=(1, 2))
    function.defjvp(lambda i, j, x, t: (value(x[0], i, j), tangent(t[0], i, j)))
    return function


def _strided_diagonal(square: Array, first: int, second: int) -> Array:
    """x[i] = square[i, i]: every (size + 1)-th entry of the two axes flattened."""
    size = square.shape[first]
    adjacent = jnp.moveaxis(square, second, first + 1)
    flat = adjacent.reshape(*adjacent.shape[:first], size * size, *adjacent.shape[first + 2 :])
    return jax.lax.slice_in_dim(flat, 0, size * size, stride=size + 1, axis=first)


def _masked_diagonal(square: Array, first: int, second: int) -> Array:
    return jnp.sum(_where_equal(square, first, second), axis=second)


def _masked_square(line: Array, first: int, second: int) -> Array:
    """square[i, j] = x[i] if i = j, else 0: a comparison, computed where the result is used."""
    shape = (*line.shape[:second], line.shape[first], *line.shape[second:])
    return _where_equal(jnp.broadcast_to(jnp.expand_dims(line, second), shape), first, second)


def _padded_square(line: Array, first: int, second: int) -> Array:
    size = line.shape[first]
    padding = [(0, 0, size if axis == first else 0) for axis in range(line.ndim)]
    flat = jax.lax.pad(line, jnp.zeros((), line.dtype), padding)
    square = flat.reshape(*flat.shape[:first], size, size, *flat.shape[first + 1 :])
    return jnp.moveaxis(square, first + 1, second)


def _where_equal(square: Array, first: int, second: int) -> Array:
    rows, columns = (
        jax.lax.broadcasted_iota(jnp.int32, square.shape, axis) for axis in (first, second)
    )
    return jnp.where(rows == columns, square, jnp.zeros((), square.dtype))


take_diagonal = _with_tangent(_strided_diagonal, _masked_diagonal)
place_diagonal = _with_tangent(_masked_square, _padded_square)
