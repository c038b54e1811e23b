"""Assertions for tests of equivariant and invariant functions."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from ..spec import WeightSpace


def random_features(
    space: WeightSpace, channels: int, *, key: PRNGKeyArray, dtype: Any = jnp.float32
) -> PyTree:
    """Standard normal features on a weight space."""
    shapes, treedef = jax.tree.flatten(space.to_shapes(channels, dtype))
    keys = jax.random.split(key, len(shapes))
    drawn = [jax.random.normal(k, s.shape, s.dtype) for k, s in zip(keys, shapes, strict=True)]
    return treedef.unflatten(drawn)


def assert_equivariant(
    f: Callable[[PyTree], PyTree],
    space: WeightSpace,
    *,
    key: PRNGKeyArray,
    out_space: WeightSpace | None = None,
    channels: int = 1,
    dtype: Any = jnp.float32,
    tolerance: float | None = None,
) -> None:
    """Check f(σx) = σf(x) (eq. 15) on random features and a random group element.

    Args:
        f: a function of features, with channels on inputs and outputs.
        space: the weight space of the input.
        key: draws the features and the group element.
        out_space: the weight space of the output, by default `space`.
        channels: channels of the input.
        dtype: the dtype of the input.
        tolerance: the allowed difference, relative to the output's largest entry; by default
            what rounding in `dtype` explains.

    Raises:
        AssertionError: if they differ, naming the leaf that differs most.
    """
    out_space = space if out_space is None else out_space
    features_key, group_key = jax.random.split(key)
    x = random_features(space, channels, key=features_key, dtype=dtype)
    keys = jax.random.split(group_key)
    group = {**out_space.sample_permutation(keys[1]), **space.sample_permutation(keys[0])}
    permuted = f(_permute(space, x, group))
    expected = _permute(out_space, f(x), group)
    _assert_close(
        out_space.flatten(permuted, channels=True),
        out_space.flatten(expected, channels=True),
        [leaf.path for leaf in out_space.leaves],
        _tolerance(dtype, tolerance),
        "not equivariant",
    )


def assert_invariant(
    f: Callable[[PyTree], PyTree],
    space: WeightSpace,
    *,
    key: PRNGKeyArray,
    channels: int = 1,
    dtype: Any = jnp.float32,
    tolerance: float | None = None,
) -> None:
    """Check f(σx) = f(x) (eq. 16) on random features and a random group element.

    The arguments and errors are those of `assert_equivariant`.
    """
    features_key, group_key = jax.random.split(key)
    x = random_features(space, channels, key=features_key, dtype=dtype)
    permuted = f(_permute(space, x, space.sample_permutation(group_key)))
    got, expected = jax.tree.leaves(permuted), jax.tree.leaves(f(x))
    names = [f"output {i}" for i in range(len(expected))]
    _assert_close(got, expected, names, _tolerance(dtype, tolerance), "not invariant")


def _permute(space: WeightSpace, x: PyTree, group: Mapping[str, Any]) -> PyTree:
    """Permute with the names of the space, in NumPy: that compiles nothing."""
    moved = {name: np.asarray(i) for name, i in group.items() if name in space.sizes}
    return jax.tree.map(jnp.asarray, space.permute(jax.tree.map(np.asarray, x), moved))


def _tolerance(dtype: Any, given: float | None) -> float:
    return 100 * float(jnp.finfo(dtype).eps) if given is None else given


def _assert_close(got, expected, names, tolerance, problem) -> None:
    scale = max(float(np.max(np.abs(np.asarray(y, np.float64)))) for y in expected)
    worst = {
        name: float(np.max(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64))))
        for name, a, b in zip(names, got, expected, strict=True)
    }
    name = max(worst, key=worst.__getitem__)
    if not worst[name] <= tolerance * scale:
        raise AssertionError(
            f"{problem}: {name!r} differs by {worst[name]:.2e}, "
            f"more than {tolerance:.1e} of the largest output {scale:.2e}"
        )
