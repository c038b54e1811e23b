"""The seven tasks that learned optimizers are evaluated on, in small, on built-in data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen

import unf
from unf.lab.lopt import GRIDS, evaluate
from unf.lab.tasks import (
    AutoencoderTask,
    DeepMLPTask,
    GPTTask,
    GRUTask,
    LSTMTask,
    ResNetTask,
    ViTTask,
    _gru,
)
from unf.lab.tasks._attention import rotate
from unf.lab.tasks._unseen import GroupNormTask

KEY = jax.random.key(0)
IMAGES = {"dataset": "digits", "batch_size": 6}
TEXT = {"dataset": "python-docs", "batch_size": 3, "length": 5}
CELL = {**TEXT, "embedding": 4, "hidden": 6}
BLOCKS = {"width": 8, "num_heads": 2, "num_blocks": 1, "expand": 2}
TASKS = {
    task.name: task
    for task in (
        DeepMLPTask(**IMAGES, hidden=(8, 7, 6, 5)),
        ResNetTask(**IMAGES, channels=(3, 4)),
        AutoencoderTask(**IMAGES, hidden=5, code=3),
        LSTMTask(**CELL),
        GRUTask(**CELL),
        ViTTask(**IMAGES, **BLOCKS),
        GPTTask(**TEXT, **BLOCKS),
    )
}
GROUPS = {
    "deep-mlp": [5, 6, 7, 8],
    "resnet": [3, 3, 4, 4],  # the stem shares its channels with the first block's output
    "autoencoder": [3, 5, 5],
    "lstm": [4, 6],
    "gru": [4, 6],
    "vit": [2, 4, 4, 8, 16],  # heads; in each its keys and its values; the stream; the MLP
    "gpt": [2, 4, 8, 16],  # rotary positions fix the keys
}
CHOICES = {"autoencoder": 2, "lstm": 256, "gru": 256, "gpt": 256}


@pytest.fixture(params=list(TASKS), scope="module")
def task(request):
    return TASKS[request.param]


def test_the_weight_space_is_found_and_a_symmetry(task):
    params, batch = task.init(key=KEY), task.batch(task.data().train, key=KEY)
    unf.verify(task.loss, params, task.space, batch, key=KEY)
    assert sorted(task.space.sizes.values()) == GROUPS[task.name]


def test_an_untrained_network_knows_nothing_and_has_gradients(task):
    data = task.data()

    def start(key):
        batch = task.batch(data.heldout, key=key)
        return jax.value_and_grad(task.loss)(task.init(key=key), batch)

    losses, gradients = jax.jit(jax.vmap(start))(jax.random.split(KEY, 30))
    assert abs(np.mean(losses) - np.log(CHOICES.get(task.name, 10))) < 0.5
    for gradient in jax.tree.leaves(gradients):
        assert np.isfinite(gradient).all() and np.abs(gradient).max() > 0


@pytest.mark.nightly
def test_adam_trains_it(task):
    rate = {"learning_rate": 1e-2}
    curves = evaluate(task, task.data(), GRIDS["adam"][0], rate, seeds=[0, 1], horizon=100)
    assert np.isfinite(curves.train).all() and np.isfinite(curves.heldout).all()
    assert (curves.last < 0.95 * curves.train[:, :5].mean(axis=1)).all()


def test_the_sizes_are_those_of_the_comparison():
    mlp, vit, gpt = DeepMLPTask(), ViTTask(), GPTTask()
    assert mlp.hidden == (256, 256, 256, 256) and mlp.dataset == "mnist"
    assert ResNetTask().channels == (16, 32, 64) and ResNetTask().dataset == "cifar10"
    assert (vit.patch, vit.width, vit.num_blocks, vit.num_heads) == (4, 64, 4, 4)
    assert (gpt.length, gpt.width, gpt.num_blocks, gpt.num_heads) == (64, 64, 4, 4)
    assert all(2000 <= task.horizon <= 5000 for task in TASKS.values())


def test_the_lstm_is_flax_s():
    task = TASKS["lstm"]
    params, symbols = task.init(key=KEY), jax.random.randint(KEY, (3, 5), 0, 256)
    gates = params["cell"].items()
    variables = {f"i{gate}": {"kernel": layer["input"]} for gate, layer in gates}
    variables |= {f"h{g}": {"kernel": x["state"], "bias": x["bias"]} for g, x in gates}
    cell = linen.LSTMCell(task.hidden, param_dtype=jnp.float32)
    carry = (jnp.zeros((3, task.hidden)),) * 2
    for time in range(5):
        read = params["embed"][symbols[:, time]]
        carry, state = cell.apply({"params": variables}, carry, read)
        ours = task.run(params, symbols.T, jnp.zeros((3, task.hidden)))[time]
        np.testing.assert_allclose(ours, state, rtol=1e-5, atol=1e-6)


def test_accelerators_find_the_same_space_of_the_gru(monkeypatch):
    monkeypatch.setattr(_gru, "_on_accelerator", lambda: True)
    assert GRUTask(**CELL).space == TASKS["gru"].space


def test_batch_norm_forgets_the_scale_of_kernels():
    task = TASKS["resnet"]
    params, batch = task.init(key=KEY), task.batch(task.data().train, key=KEY)
    scaled = params | {"stem": params["stem"] | {"kernel": 5 * params["stem"]["kernel"]}}
    np.testing.assert_allclose(task.loss(scaled, batch), task.loss(params, batch), rtol=1e-2)


def test_rotary_positions_are_relative():
    q, k = (jnp.broadcast_to(x, (1, 6, 1, 8)) for x in jax.random.normal(KEY, (2, 8)))
    scores = np.einsum("bthc,bshc->ts", rotate(q), rotate(k))
    for distance in range(-5, 6):
        diagonal = np.diagonal(scores, distance)
        np.testing.assert_allclose(diagonal, diagonal[0], rtol=1e-6)
    assert len(np.unique(np.round(scores, 6))) == 11


@pytest.mark.parametrize("name", ["lstm", "gru", "gpt"])
def test_language_models_do_not_see_what_comes_later(name):
    task = TASKS[name]
    params, symbols = task.init(key=KEY), jax.random.randint(KEY, (2, 5), 0, 256)
    before, after = (task.logits(params, symbols.at[:, 3:].set(x))[:, :3] for x in (0, 1))
    np.testing.assert_allclose(before, after, rtol=1e-6)


def test_patches_are_pieces_of_the_images():
    task = TASKS["vit"]
    data = task.data().train
    patches = np.asarray(task.batch(data, key=KEY).images)
    images = np.asarray(super(ViTTask, task).batch(data, key=KEY).images)
    assert patches.shape == (6, 4, 16)
    np.testing.assert_array_equal(patches[2, 1], images[2, :4, 4:].reshape(-1))
    np.testing.assert_array_equal(patches[2, 2], images[2, 4:, :4].reshape(-1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GPTTask(num_heads=5), "num_heads is 5 and width 64; expected heads of an even"),
        (lambda: ViTTask(width=0), "width is 0; expected at least 1"),
        (lambda: ViTTask(**IMAGES, patch=3).grid, "patch is 3; expected a divisor of 8 and 8"),
        (lambda: LSTMTask(hidden=0), "hidden is 0; expected at least 1"),
        (lambda: AutoencoderTask(code=0), "code is 0; expected at least 1"),
        (lambda: ResNetTask(channels=()), "expected a positive number for each stage"),
    ],
)
def test_invalid_options(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_group_norm_is_flax_s_and_groups_permute():
    task = GroupNormTask(**IMAGES, channels=(4, 8), groups=2)
    params, batch = task.init(key=KEY), task.batch(task.data().train, key=KEY)
    params = jax.tree.map(lambda x: x + 0.1 * jax.random.normal(KEY, x.shape, x.dtype), params)

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            for i, channels in enumerate(task.channels):
                options = {"strides": 1 + (i > 0), "padding": 1, "use_bias": False}
                x = linen.Conv(channels, (3, 3), **options)(x)
                x = linen.relu(linen.GroupNorm(task.groups, epsilon=1e-5)(x))
            return linen.Dense(task.num_classes)(x.mean((1, 2)))

    theirs = {"Dense_0": {"kernel": params["output"]["w"], "bias": params["output"]["b"]}}
    for i in range(2):
        theirs[f"Conv_{i}"] = {"kernel": params[f"layer{i}"]["kernel"]}
        theirs[f"GroupNorm_{i}"] = params[f"layer{i}"]["norm"]
    logits = jax.nn.log_softmax(Net().apply({"params": theirs}, batch.images))
    expected = -np.mean(np.asarray(logits)[np.arange(6), np.asarray(batch.classes)])
    np.testing.assert_allclose(task.loss(params, batch), expected, rtol=1e-5)
    unf.verify(task.loss, params, task.space, batch, key=KEY)
    assert sorted(task.space.index_shapes.values()) == [(2,), (2,), (2, 2), (2, 4)]
    with pytest.raises(ValueError, match="groups 3; expected a multiple of groups"):
        GroupNormTask(**IMAGES, groups=3)
