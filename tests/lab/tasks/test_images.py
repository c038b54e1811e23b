"""The small convolutional network of a zoo."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
from unf.lab.tasks._images import SmallCNN
from unf.lab.tasks._task import Labeled

TASK = SmallCNN(channels=4, batch_size=50)


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
    images = jax.random.randint(jax.random.key(1), (20, 8, 8, 1), 0, 256).astype(jnp.uint8)
    classes = jnp.arange(20) % 10
    logits = np.asarray(TASK.logits(params, images.astype(jnp.float32) / 255))
    measured = TASK.measure(params, Labeled(images, classes), key=jax.random.key(2))
    assert measured["success"] == pytest.approx(np.mean(logits.argmax(1) == np.asarray(classes)))
    chosen = logits[np.arange(20), np.asarray(classes)] - np.log(np.exp(logits).sum(1))
    assert measured["loss"] == pytest.approx(-chosen.mean(), rel=1e-5)


def test_probes_see_which_class_is_chosen_on_images_of_the_training_set():
    params = jax.tree.map(lambda x: 3 * x, TASK.init(key=jax.random.key(0)))
    network = TASK.network
    images = network.start(network.num_probes, key=jax.random.key(1))
    assert images.shape == (network.num_probes, *network.input_shape)
    known = {image.tobytes() for image in np.asarray(TASK.data().train.images)}
    found = np.round(255 * np.asarray(images)).astype(np.uint8)
    assert len({image.tobytes() for image in found} & known) == network.num_probes
    logs, chosen = np.split(np.asarray(network.fn(params, images)), 2, axis=1)
    logits = np.asarray(TASK.logits(params, images))
    np.testing.assert_allclose(logs, jax.nn.log_softmax(logits), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(chosen.argmax(1), logits.argmax(1))
    sure = np.diff(np.sort(logits, axis=1)[:, -2:], axis=1)[:, 0] > 0.5
    assert sure.any() and np.all(chosen[sure].max(axis=1) > 3.9)


def test_dropout_keeps_the_mean():
    task = dataclasses.replace(TASK, dropout=0.5)
    params = task.init(key=jax.random.key(0))
    images = jax.random.uniform(jax.random.key(1), (1, 8, 8, 1), jnp.float32)
    keys = jax.random.split(jax.random.key(2), 4000)
    dropped = jax.vmap(lambda key: task.logits(params, images, key))(keys)
    deviation = np.asarray(dropped).std(axis=0) / 4000**0.5
    error = np.abs(np.asarray(dropped).mean(0) - task.logits(params, images))
    assert np.all(error < 5 * deviation)


def test_training_sees_a_fraction_of_the_data():
    data = TASK.data()
    few = dataclasses.replace(TASK, data_fraction=0.01)
    seen = np.round(255 * np.asarray(few.batch(data.train, key=jax.random.key(0)).images))
    first = np.asarray(data.train.images[:15])
    assert all(np.any(np.all(image == first, axis=(1, 2, 3))) for image in seen)
