"""Evaluating optimizers: the same networks for all, every step of the horizon, tuned baselines."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from unf.lab.lopt import GRIDS, evaluate, tune
from unf.lab.lopt._evaluate import at_edge, part_ends
from unf.lab.tasks import MLPTask
from unf.optim import init_theta, learned_optimizer

TASK = MLPTask(dataset="digits", hidden=(4,), batch_size=8)
THETA = init_theta("sgdm", key=jax.random.key(0), alpha=0.05)


def test_a_meta_learned_sgd_is_evaluated_like_the_hand_made_one():
    """The same networks, data and updates give the same curves."""
    data = TASK.data()
    learned = evaluate(TASK, data, learned_optimizer, THETA, seeds=[3, 4], horizon=10)
    options = {"learning_rate": 0.05, "momentum": 0.9}
    by_hand = evaluate(TASK, data, GRIDS["sgdm-tuned"][0], options, seeds=[3, 4], horizon=10)
    np.testing.assert_allclose(learned.train, by_hand.train, rtol=1e-4)
    np.testing.assert_allclose(learned.heldout, by_hand.heldout, rtol=1e-4)
    assert (learned.train[0] != learned.train[1]).any()


def test_tuning_finds_the_best_of_the_grid(monkeypatch):
    """Of three learning rates one hardly moves, one diverges."""
    grid = {"learning_rate": np.array([1e-9, 1e-2, 1e9], np.float32)}
    monkeypatch.setitem(GRIDS, "adam", (GRIDS["adam"][0], grid))
    assert tune(TASK, TASK.data(), "adam", horizon=40) == {"learning_rate": np.float32(1e-2)}
    assert at_edge(GRIDS["adam"], {"learning_rate": 1e-2}) == []
    assert at_edge(GRIDS["adam"], {"learning_rate": 1e9}) == ["learning_rate"]
    grid = {"learning_rate": np.array([np.nan, np.nan], np.float32)}
    monkeypatch.setitem(GRIDS, "adam", (GRIDS["adam"][0], grid))
    with pytest.raises(ValueError, match="adam: training diverges at every point"):
        tune(TASK, TASK.data(), "adam", horizon=4)


def test_adams_default_is_not_tuned(monkeypatch):
    monkeypatch.setattr("unf.lab.lopt._evaluate._grid_curves", None)
    chosen = tune(TASK, TASK.data(), "adam-default", horizon=40)
    assert chosen == {"learning_rate": pytest.approx(1e-3)}
    assert at_edge(GRIDS["adam-default"], chosen) == []


@pytest.mark.parametrize("horizon", [7, 100, 150, 199])
def test_every_step_of_the_horizon_is_made(horizon):
    """SGD with a learning rate of zero but for the last step: only the last part tells."""
    assert part_ends(horizon)[-1] == horizon and len(part_ends(horizon)) <= 100
    late = {"from": float(horizon - 1)}

    def make(options):
        return optax.sgd(lambda step: jnp.where(step >= options["from"], 10.0, 0.0))

    run = {"seeds": [0], "horizon": horizon}
    curves = evaluate(TASK, TASK.data(), make, late, **run)
    never = evaluate(TASK, TASK.data(), make, {"from": 1e9}, **run)
    assert curves.train.shape == (1, len(part_ends(horizon)))
    np.testing.assert_allclose(curves.heldout[:, :-1], never.heldout[:, :-1], rtol=1e-6)
    assert curves.heldout[0, -1] != pytest.approx(never.heldout[0, -1], rel=1e-3)
