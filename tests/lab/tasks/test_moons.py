"""Two moons."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import unf
from unf.lab.tasks._moons import POOL, TwoMoons

TASK = TwoMoons(width=4, batch_size=2000)
DATA = TASK.data()


def test_moons_are_two_half_circles():
    points, labels, _ = DATA.heldout
    centers = jnp.where(labels[:, None], jnp.array([[0.5, 0.25]]), jnp.array([[-0.5, -0.25]]))
    radii = jnp.linalg.norm(points - centers, axis=1)
    assert abs(radii.mean() - 1) < 0.03 and radii.std() < 0.2
    assert 0.45 < labels.mean() < 0.55 and len(labels) == 2 * POOL


def test_training_sees_some_examples_and_some_wrong_labels():
    task = dataclasses.replace(TASK, first_example=POOL - 10.0, num_examples=30.0, label_noise=0.3)
    batch = task.batch(DATA.train, key=jax.random.key(0))
    rows = (POOL - 10 + np.arange(30)) % POOL
    points, labels, rank = (np.asarray(x)[rows] for x in DATA.train)
    expected = {(*x, y) for x, y in zip(points.tolist(), labels ^ (rank < 0.3), strict=True)}
    found = {(*x, y) for x, y in zip(batch.x.tolist(), np.asarray(batch.labels), strict=True)}
    assert found == expected
    assert 0.1 < np.mean(labels ^ np.array([y for *_, y in expected])) or np.any(rank < 0.3)


def test_the_space_is_a_symmetry_and_accuracy_is_measured():
    params = TASK.init(key=jax.random.key(0))
    unf.verify(TASK.logits, params, TASK.space, DATA.heldout.x[:5], key=jax.random.key(2))
    assert list(TASK.space.sizes.values()) == [4]
    half = jax.tree.map(lambda x: x[:1000], DATA.heldout)
    measured = TASK.measure(params, half, key=jax.random.key(1))
    hidden = np.maximum(np.asarray(half.x) @ np.asarray(params["w0"]), 0)
    right = ((hidden @ np.asarray(params["w1"]))[:, 0] > 0) == np.asarray(half.labels)
    assert np.isclose(measured["success"], right.mean(), atol=2e-3)
