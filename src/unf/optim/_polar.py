"""Polar factors: of a matrix AΣBᵀ they keep ABᵀ, so that all its directions count alike."""

from collections.abc import Sequence
from math import prod, sqrt

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..spec._roles import LeafRoles
from ._theta import TINY

_ITERATIONS = 5
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def matrix_axes(roles: LeafRoles) -> tuple[list[int], list[int], list[int]] | None:
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


def polar_factor(x: Array, axes: tuple[Sequence[int], Sequence[int], Sequence[int]]) -> Array:
    """About AB⊤ √max(m, n) of every m × n matrix AΣB⊤ in a tensor, with root mean square 1.

    Five Newton–Schulz iterations X ← aX + b(XX⊤)X + c(XX⊤)²X with the coefficients of Muon (Jordan
    et al., 2024), which take singular values to about 1, not precisely, in few steps. Equivariant
    to permutations of rows and columns, and invariant to the scale of x.
    """
    order = [i for part in axes for i in part]
    each, rows, columns = (prod(x.shape[i] for i in part) for part in axes)
    arranged = x.transpose(order)
    matrices = arranged.reshape(each, rows, columns)
    if rows > columns:
        matrices = jnp.swapaxes(_orthogonalize(jnp.swapaxes(matrices, 1, 2)), 1, 2)
    else:
        matrices = _orthogonalize(matrices)
    found = (sqrt(max(rows, columns)) * matrices).reshape(arranged.shape)
    return found.transpose(list(np.argsort(order)))


def _orthogonalize(x: Float[Array, "each rows columns"]) -> Float[Array, "each rows columns"]:
    a, b, c = _COEFFICIENTS
    x = x / jnp.sqrt(jnp.sum(jnp.square(x), axis=(1, 2), keepdims=True) + TINY)
    for _ in range(_ITERATIONS):
        gram = x @ jnp.swapaxes(x, 1, 2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x
