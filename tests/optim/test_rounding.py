"""Stochastic rounding to bfloat16: its law, what it leaves alone, and why it is needed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unf.optim import FORMS, init_theta
from unf.optim._entries import Entries, accumulate
from unf.optim._rounding import round_at_random, round_momenta, salts
from unf.optim._theta import DECAYS

STEPS = 5000


def neighbors(x):
    """Those of float32 numbers in bfloat16, toward zero and away from it."""
    bits = np.asarray(x, np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32), (bits + np.uint32(1 << 16)).view(np.float32)


@pytest.mark.parametrize("gradient", [0.0, -0.37])
@pytest.mark.parametrize("value", [1.001, -1.001, 3.14159, -2.7182818, 1.9999, 5.4321e-20, 7e33])
def test_rounding_is_right_in_expectation(value, gradient):
    shape = (STEPS, len(DECAYS))
    old = jnp.full(shape, 0.5, jnp.bfloat16)
    gradients = jnp.full((STEPS, 1), gradient, jnp.float32)
    noise = jax.vmap(salts)(jnp.arange(STEPS, dtype=jnp.int32))
    found = round_momenta(jnp.full(shape, value, jnp.float32), old, gradients, noise)
    found = np.asarray(found, np.float64)
    low, high = (float(x) for x in neighbors(value))
    assert set(np.unique(found)) <= {low, high}
    share = (float(np.float32(value)) - low) / (high - low)
    for channel in range(len(DECAYS)):
        error = np.mean(found[:, channel] == high) - share
        assert abs(error) < 4 * np.sqrt(share * (1 - share) / STEPS)


def test_different_momenta_are_rounded_independently():
    shape = (STEPS, len(DECAYS))
    noise = jax.vmap(salts)(jnp.arange(STEPS, dtype=jnp.int32))
    same = jnp.full(shape, 1 + 2**-8, jnp.float32), jnp.full(shape, 0.5, jnp.bfloat16)
    columns = []
    for gradient in (0.1, 0.2):
        found = round_momenta(*same, jnp.full((STEPS, 1), gradient, jnp.float32), noise)
        columns.append(np.asarray(found == 1))
    joined = np.concatenate(columns, axis=1).astype(np.float64)
    joined = np.concatenate([joined[1:], joined[:-1]], axis=1)  # also of consecutive steps
    correlations = np.corrcoef(joined.T) - np.eye(4 * len(DECAYS))
    assert np.abs(correlations).max() < 5 / np.sqrt(STEPS)


@pytest.mark.parametrize("noise", [0, 2**31, 2**32 - 1])
def test_numbers_of_bfloat16_stay_as_they_are(noise):
    values = [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 2.0**-126, 3.3895314e38]
    x = jnp.asarray(values, jnp.float32)
    found = round_at_random(x, jnp.full(x.shape, noise, jnp.uint32))
    assert found.dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.asarray(found, np.float32), x)
    np.testing.assert_array_equal(np.signbit(np.asarray(found, np.float32)), np.signbit(x))


def test_not_a_number_whose_bits_are_low_stays_one():
    x = jnp.asarray(np.array([0x7F800001, 0xFF80FFFF], np.uint32).view(np.float32))
    assert jnp.isnan(round_at_random(x, jnp.full(2, 2**32 - 1, jnp.uint32))).all()


def test_the_derivative_is_that_of_the_exact_value():
    x, noise = jnp.asarray([0.0, 1.1, -2.3], jnp.float32), jnp.full(3, 2**31, jnp.uint32)
    slopes = jax.grad(lambda x: jnp.sum(round_at_random(3 * x, noise).astype(jnp.float32)))(x)
    np.testing.assert_array_equal(slopes, np.full(3, 3, np.float32))


def test_slow_momenta_follow_a_constant_gradient():
    """Where rounding to nearest stops, when an increment is below half of the last bit."""
    theta = init_theta("deepset", key=jax.random.key(0), form=FORMS["code"])
    g = jax.random.normal(jax.random.key(1), (200,), jnp.float32)
    nearest = jnp.zeros(200, jnp.bfloat16)
    exact = jnp.zeros((200, len(DECAYS)), jnp.float32)

    def update(carry, step):
        nearest, *momenta = carry
        new = [accumulate(theta, step, Entries(g, g, g, m)).momenta for m in momenta]
        nearest = (0.9999 * nearest.astype(jnp.float32) + 1e-4 * g).astype(jnp.bfloat16)
        return (nearest, *new), None

    first = (nearest, exact, exact.astype(jnp.bfloat16))
    steps = jnp.arange(STEPS, dtype=jnp.int32)
    (nearest, exact, rounded), _ = jax.jit(lambda: jax.lax.scan(update, first, steps))()
    assert rounded.dtype == jnp.bfloat16
    ratios = np.asarray(rounded, np.float32) / exact
    assert abs(ratios.mean(0) - 1).max() < 0.01
    assert ratios.std(0).max() < 0.1
    assert (np.abs(nearest) < 0.2 * np.abs(exact[:, -1])).all()
