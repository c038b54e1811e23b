"""Inner trainings: reparametrized ones, and losses that compare across problems."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unf.meta import Data, EvolutionStrategies, InnerTraining, RelativeLoss, Task
from unf.optim import init_theta

KEY = jax.random.key(0)
ALPHA = 0.1
SGD = init_theta("sgdm", key=KEY, alpha=ALPHA, gamma=0.0)


@dataclass(frozen=True)
class Line(Task):
    """A network of two layers that fits a parabola."""

    name = "line"

    def init(self, *, key):
        return {"v": jnp.ones((3, 1)), "w": jax.random.normal(key, (1, 3))}

    def data(self):
        return Data(jnp.linspace(-1, 1, 20), jnp.linspace(-1, 1, 7))

    def batch(self, examples, *, key):
        return jax.random.choice(key, examples, (4, 1))

    def loss(self, params, batch):
        return jnp.mean((jnp.tanh(batch @ params["w"]) @ params["v"] - batch**2) ** 2)


PLAIN = InnerTraining(Line().data().train, Line())
SCALED = InnerTraining(PLAIN.data, Line(), reparametrize=0.7)


def effective(state):
    """The weights at which the network is evaluated."""
    params, _, factors = state
    return jax.tree.map(jnp.multiply, params, factors)


def test_a_reparametrized_network_starts_as_the_same_function():
    state, batch = SCALED.init(SGD, key=KEY), SCALED.draw(key=KEY)
    network = Line().init(key=jax.random.split(KEY)[0])
    jax.tree.map(np.testing.assert_allclose, effective(state), network)
    assert SCALED.step(SGD, state, batch)[1] == pytest.approx(float(Line().loss(network, batch)))
    factors = jax.tree.leaves(state[2])
    assert all(s.shape == () and s > 0 for s in factors) and factors[0] != factors[1]


def test_gradient_descent_moves_a_reparametrized_tensor_by_its_squared_factor():
    """V ← V − α s ∂L/∂W, so that W = sV ← W − α s² ∂L/∂W."""
    state, batch = SCALED.init(SGD, key=KEY), SCALED.draw(key=KEY)
    before, factors = effective(state), state[2]
    gradient = jax.grad(Line().loss)(before, batch)
    after = effective(SCALED.step(SGD, state, batch)[0])
    for name in before:
        step = ALPHA * factors[name] ** 2 * gradient[name]
        np.testing.assert_allclose(after[name], before[name] - step, rtol=1e-6)


def test_with_factors_of_one_nothing_changes():
    plain = PLAIN.init(SGD, key=KEY)
    scaled = (*plain, jax.tree.map(lambda p: jnp.ones(()), plain[0]))
    for key in jax.random.split(KEY, 3):
        batch = PLAIN.draw(key=key)
        plain, loss = PLAIN.step(SGD, plain, batch)
        scaled, same = SCALED.step(SGD, scaled, batch)
        assert loss == same
    jax.tree.map(np.testing.assert_array_equal, plain, scaled[:2])


def test_both_runs_of_a_pair_share_their_factors():
    estimator = EvolutionStrategies(4, window=2, pairs=3)
    _, runs = estimator.estimate(
        SCALED, SGD, estimator.init(SCALED, SGD, key=KEY), key=jax.random.key(1)
    )
    for factor in jax.tree.leaves(runs.states[2]):
        assert factor.shape == (3, 2) and (factor[:, 0] == factor[:, 1]).all()
        assert len(np.unique(factor)) == 3


def test_relative_losses_are_logarithms():
    relative = RelativeLoss(PLAIN, 0.25)
    state, batch = relative.init(SGD, key=KEY), relative.draw(key=KEY)
    (after, loss), (same, log) = PLAIN.step(SGD, state, batch), relative.step(SGD, state, batch)
    jax.tree.map(np.testing.assert_array_equal, after, same)
    assert log == pytest.approx(float(np.log(0.01 + 0.99 * loss / 0.25)))
    exact = (jax.tree.map(jnp.zeros_like, state[0]), state[1])
    best = relative.step(SGD, exact, jnp.zeros((4, 1)))[1]
    assert best == pytest.approx(np.log(0.01)), "a loss of 0"
    broken = (jax.tree.map(lambda p: p * jnp.nan, state[0]), state[1])
    assert np.isnan(relative.step(SGD, broken, batch)[1])
