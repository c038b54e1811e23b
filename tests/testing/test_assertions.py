"""The assertions users call in their own tests."""

import jax
import jax.numpy as jnp
import pytest

from tests.laws.architectures import ARCHITECTURES
from unf.testing import assert_equivariant, assert_invariant, random_features

KEY = jax.random.key(0)
SPACE = ARCHITECTURES["rnn"]


def test_equivariant_functions_pass():
    assert_equivariant(lambda x: x, SPACE, key=KEY)
    assert_equivariant(lambda x: jax.tree.map(jnp.sin, x), SPACE, key=KEY, dtype=jnp.float64)


def test_the_leaf_at_fault_is_named():
    def first_row(x):
        return x | {"r": x["r"].at[0].set(7.0)}

    with pytest.raises(AssertionError, match="not equivariant: 'r' differs"):
        for seed in range(5):
            assert_equivariant(first_row, SPACE, key=jax.random.key(seed))


def test_invariant_functions_pass_and_others_do_not():
    assert_invariant(lambda x: jnp.sum(x["r"]), SPACE, key=KEY)
    with pytest.raises(AssertionError, match="not invariant: 'output 0' differs"):
        for seed in range(5):
            assert_invariant(lambda x: x["r"][0, 1], SPACE, key=jax.random.key(seed))


def test_nan_is_no_agreement():
    with pytest.raises(AssertionError, match="not invariant"):
        assert_invariant(lambda x: jnp.nan * jnp.sum(x["r"]), SPACE, key=KEY)


def test_random_features_have_the_space_s_shapes():
    x = random_features(SPACE, 3, key=KEY, dtype=jnp.bfloat16)
    assert jax.tree.map(jnp.shape, x) == {"b": (3, 3), "r": (3, 3, 3), "x": (2, 3, 3)}
    assert all(leaf.dtype == jnp.bfloat16 for leaf in jax.tree.leaves(x))
