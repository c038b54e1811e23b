"""The small convolutional network."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
from unf.lab.tasks import Labelled, SmallCNN

TASK = SmallCNN(channels=4, shape=(8, 8, 1))


def test_it_has_the_zoos_number_of_weights():
    params = jax.eval_shape(lambda: SmallCNN().init(key=jax.random.key(0)))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 4970


def test_the_space_is_a_symmetry():
    params = TASK.init(key=jax.random.key(0))
    images = jax.random.uniform(jax.random.key(1), (2, 8, 8, 1), jnp.float32)
    unf.verify(TASK.logits, params, TASK.space, images, key=jax.random.key(2))
    assert sorted(TASK.space.sizes.values()) == [4, 4, 4]


def test_accuracy_and_loss_are_those_of_the_logits():
    params = TASK.init(key=jax.random.key(0))
    images = jax.random.uniform(jax.random.key(1), (20, 8, 8, 1), jnp.float32)
    classes = jnp.arange(20) % 10
    logits = np.asarray(TASK.logits(params, images))
    measured = TASK.measure(params, Labelled(images, classes))
    assert measured["success"] == pytest.approx(np.mean(logits.argmax(1) == np.asarray(classes)))
    chosen = logits[np.arange(20), np.asarray(classes)] - np.log(np.exp(logits).sum(1))
    assert measured["loss"] == pytest.approx(-chosen.mean(), rel=1e-5)


def test_dropout_keeps_the_mean():
    params = TASK.init(key=jax.random.key(0))
    images = jax.random.uniform(jax.random.key(1), (1, 8, 8, 1), jnp.float32)
    keys = jax.random.split(jax.random.key(2), 4000)
    dropped = jax.vmap(lambda key: TASK.logits(params, images, dropout=0.5, key=key))(keys)
    spread = np.asarray(dropped).std(axis=0) / 4000**0.5
    assert np.all(np.abs(np.asarray(dropped).mean(0) - TASK.logits(params, images)) < 5 * spread)
