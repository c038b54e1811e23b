"""Polar factors: of a matrix AΣBᵀ they keep ABᵀ, so that all its directions count alike."""

from collections.abc import Sequence
from functools import partial
from math import prod, sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..spec._roles import LeafRoles
from ._theta import TINY

MatrixAxes = tuple[list[int], list[int], list[int]]
"""The axes of a tensor that enumerate matrices, and those of their rows and columns."""
_ITERATIONS = 5
_LARGE = 2**18
_MOST_ROWS, _LEAST_RATIO = 256, 4
"""Matrices with at most so many rows, and so many times as many columns, count as very wide."""
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def matrix_axes(roles: LeafRoles) -> MatrixAxes | None:
    """Which axes of a tensor enumerate matrices, and which are their rows and columns.

    A matrix maps inputs, at the positions of a window, to outputs; a table maps indices to
    features. Biases, scales and learned positions are no matrices.

    >>> matrix_axes(("window", "window", "in", "out")), matrix_axes(("shift",))
    (([], [0, 1, 2], [3]), None)
    """
    if {"scale", "shift"} & set(roles):
        return None
    target = "out" if "out" in roles else "in"
    each = [i for i, role in enumerate(roles) if role == "each"]
    columns = [i for i, role in enumerate(roles) if role == target]
    rows = [i for i in range(len(roles)) if i not in (*each, *columns)]
    return (each, rows, columns) if rows and columns else None


def polar_factors(tensors: Sequence[Array], axes: Sequence[MatrixAxes]) -> list[Array]:
    """About AB⊤ √max(m, n) of every m × n matrix AΣB⊤ in tensors, with root mean square 1.

    Five Newton–Schulz iterations X ← aX + b(XX⊤)X + c(XX⊤)²X with the coefficients of Muon (Jordan
    et al., 2024), which take singular values to about 1, not precisely, in few steps. Equivariant
    to permutations of rows and columns, and invariant to the scale of a tensor. Small matrices of
    one shape, also across tensors, are multiplied together. Of very wide matrices, XX⊤ is iterated
    instead of X.
    """
    flat = [_as_wide_matrices(*pair) for pair in zip(tensors, axes, strict=True)]
    found: list[Any] = [None] * len(flat)
    groups: dict[Any, list[int]] = {}
    for i, x in enumerate(flat):
        groups.setdefault((x.shape[1:], i if x.size >= _LARGE else None), []).append(i)
    for (shape, _), places in groups.items():
        joined = _orthogonalize(jnp.concatenate([flat[i] for i in places]))
        ends = np.cumsum([len(flat[i]) for i in places])[:-1]
        for i, part in zip(places, jnp.split(joined, ends), strict=True):
            found[i] = _as_tensor(sqrt(shape[1]) * part, tensors[i].shape, axes[i])
    return found


def _as_wide_matrices(x: Array, axes: MatrixAxes) -> Float[Array, "each rows columns"]:
    """The matrices in a tensor, transposed if they have more rows than columns."""
    sizes = [prod(x.shape[i] for i in part) for part in axes]
    matrices = x.transpose([i for part in axes for i in part]).reshape(sizes)
    return jnp.swapaxes(matrices, 1, 2) if sizes[1] > sizes[2] else matrices


def _as_tensor(
    matrices: Float[Array, "each rows columns"], shape: tuple[int, ...], axes: MatrixAxes
) -> Array:
    """The tensor of this shape with these matrices."""
    _, rows, columns = (prod(shape[i] for i in part) for part in axes)
    matrices = jnp.swapaxes(matrices, 1, 2) if rows > columns else matrices
    order = [i for part in axes for i in part]
    return matrices.reshape([shape[i] for i in order]).transpose(list(np.argsort(order)))


def _orthogonalize(x: Float[Array, "each rows columns"]) -> Float[Array, "each rows columns"]:
    a, b, c = _COEFFICIENTS
    _, rows, columns = x.shape

    def iterate(_: Any, x: Array) -> Array:
        gram = x @ jnp.swapaxes(x, 1, 2)
        return a * x + (b * gram + c * gram @ gram) @ x

    x = x / jnp.sqrt(jnp.sum(jnp.square(x), axis=(1, 2), keepdims=True) + TINY)
    if rows <= _MOST_ROWS and columns >= _LEAST_RATIO * rows:
        return _iterate_gram(x) @ x
    # A loop holds one iterate at a time; small ones are faster without.
    return jax.lax.fori_loop(0, _ITERATIONS, iterate, x, unroll=x.size < _LARGE)


def _iterate_gram(x: Float[Array, "each rows columns"]) -> Float[Array, "each rows rows"]:
    """P₅P₄P₃P₂P₁, where an iteration is X ← PX, with P = aI + bG + cG² and G = XX⊤ ← PGP.

    The products that grow with the number of columns are two, and not ten. G has the squares of the
    singular values, so all products need the precision of float32.
    """
    a, b, c = _COEFFICIENTS
    times = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
    gram, unit = times(x, jnp.swapaxes(x, 1, 2)), jnp.eye(x.shape[1], dtype=x.dtype)[None]
    product = unit
    for _ in range(_ITERATIONS):
        p = a * unit + b * gram + c * times(gram, gram)
        product, gram = times(p, product), times(times(p, gram), p)
    return product
