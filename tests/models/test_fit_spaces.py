"""Fitting one model to networks of several architectures."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from unf.models import (
    InvariantTied,
    StatNN,
    TiedStatNN,
    fit,
    load_model,
    save_model,
)
from unf.nn import stack_channels
from unf.spec import SpecError
from unf.testing import spaces

SPACES = [spaces.mlp(2, 4, 1), spaces.mlp(2, 6, 5, 1)]
UNSEEN = spaces.mlp(2, 7, 3, 3, 1)
COUNTS = (18, 24)
KEY = jax.random.key(0)
OPTIONS = {"key": KEY, "spaces": SPACES, "epochs": 2, "batch_size": 6, "progress": False}


def make(key=KEY):
    return TiedStatNN(1, 1, key=key, mlp_width=8, mlp_layers=2)


def networks(space, count, seed=0):
    """Random networks, and a number that depends on the spread of their weights."""
    rng = np.random.default_rng([seed, count])
    spread = np.exp(rng.normal(size=count))
    leaves = [
        (spread.reshape(-1, *[1] * len(leaf.shape)) * rng.normal(size=(count, *leaf.shape))).astype(
            np.float32
        )
        for leaf in space.leaves
    ]
    return space.unflatten(leaves), np.log(spread)


PAIRS = [networks(space, count) for space, count in zip(SPACES, COUNTS, strict=True)]
WEIGHTS, TARGETS = [x for x, _ in PAIRS], [y for _, y in PAIRS]


@pytest.fixture(scope="module")
def fitted():
    options = OPTIONS | {"epochs": 30, "learning_rate": 1e-2, "patience": None}
    return fit(make(), WEIGHTS, TARGETS, **options)


def standardized(weights, space, constants):
    """Weights times √fan-in, in units of their group, as features."""
    leaves = []
    for leaf, x in zip(space.leaves, jax.tree.leaves(weights), strict=True):
        root = np.sqrt(leaf.shape[0]) if len(leaf.shape) == 2 else 1.0
        mean, deviation = constants[group(space, leaf)]
        leaves.append((root * x[..., None] - mean) / deviation)
    return space.unflatten(leaves)


def group(space, leaf):
    """Matrices w0, w1, … and biases b0, b1, …: first, last, or between."""
    kind, number = leaf.path[0], int(leaf.path[1:])
    if number == len(space.leaves) // 2 - 1:
        return kind, "last"
    return kind, "first" if kind == "w" and number == 0 else "between"


def constants():
    """The mean and the deviation of each group, where every network counts as much."""
    members = {}
    for space, weights, count in zip(SPACES, WEIGHTS, COUNTS, strict=True):
        for leaf, x in zip(space.leaves, jax.tree.leaves(weights), strict=True):
            root = np.sqrt(leaf.shape[0]) if len(leaf.shape) == 2 else 1.0
            members.setdefault(group(space, leaf), []).append((count, root * x))
    found = {}
    for name, arrays in members.items():
        counts = np.array([count for count, _ in arrays], float)
        share = counts / counts.sum()
        mean = sum(s * x.mean() for s, (_, x) in zip(share, arrays, strict=True))
        squares = sum(s * np.mean((x - mean) ** 2) for s, (_, x) in zip(share, arrays, strict=True))
        found[name] = mean, np.sqrt(squares)
    return found


def arrays(models):
    return jax.tree.leaves(eqx.filter(models, eqx.is_array))


def test_training_is_the_plain_loop_over_batches_of_one_space():
    """With batches of all networks, an epoch is a step on each space, in one order or the other."""
    options = OPTIONS | {"epochs": 1, "batch_size": 99, "optimizer": optax.sgd(0.1)}
    result = fit(make(), WEIGHTS, TARGETS, validation=(WEIGHTS, TARGETS), **options)
    every = np.concatenate(TARGETS)
    units = [(y - every.mean()) / every.std() for y in TARGETS]
    features = [
        standardized(x, space, constants()) for x, space in zip(WEIGHTS, SPACES, strict=True)
    ]

    def loss(model, i):
        outputs = jax.vmap(lambda x: model(x, SPACES[i]))(features[i])
        return jnp.mean((outputs[:, 0] - units[i]) ** 2)

    ends = []
    for order in ((0, 1), (1, 0)):
        model = make()
        for i in order:
            gradient = eqx.filter_grad(loss)(model, i)
            model = eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, gradient))
        ends.append(arrays(model))
    found = arrays(result.model.model)
    distances = [
        max(float(jnp.abs(a - b).max()) for a, b in zip(found, end, strict=True)) for end in ends
    ]
    assert min(distances) < 1e-5 < max(distances)


def test_learns_and_reads_networks_of_a_space_that_it_never_saw(fitted):
    assert fitted.model.space is None and fitted.score["tau"] > 0.6
    weights, targets = networks(UNSEEN, 30, seed=1)
    scores = fitted.model.score([weights], [targets], spaces=[UNSEEN])
    assert scores["tau"] > 0.6
    (predicted,) = fitted.model.predict([weights], spaces=[UNSEEN])
    np.testing.assert_allclose(fitted.model.on(UNSEEN).predict(weights), predicted, rtol=1e-4)


def test_a_model_for_any_network_says_that_it_needs_the_weight_space(fitted):
    weights, targets = networks(UNSEEN, 3, seed=1)
    one = stack_channels(jax.tree.map(lambda x: jnp.asarray(x[0]), weights))
    read = fitted.model(one, UNSEEN)
    np.testing.assert_array_equal(read, fitted.model.on(UNSEEN)(one))
    for call in (
        lambda: fitted.model(one),
        lambda: fitted.model.predict(weights),
        lambda: fitted.model.score(weights, targets),
        lambda: fit(make(), weights, targets, key=KEY),
    ):
        with pytest.raises(SpecError, match=r"needs the weight space\n  remedy: .*space"):
            call()


def test_a_model_for_any_network_moves_from_space_to_space(fitted):
    one = stack_channels(jax.tree.map(lambda x: jnp.asarray(x[0]), networks(UNSEEN, 3)[0]))
    expected = fitted.model(one, UNSEEN)
    for space in (*SPACES, UNSEEN):
        np.testing.assert_array_equal(fitted.model.on(space)(one, UNSEEN), expected)


def test_tied_models_stay_on_the_space_they_have():
    model = InvariantTied(1, 1, key=KEY, spaces=SPACES, mlp_width=8, mlp_layers=2).on(UNSEEN)
    one = stack_channels(jax.tree.map(lambda x: jnp.asarray(x[0]), networks(UNSEEN, 3)[0]))
    np.testing.assert_array_equal(model.on(UNSEEN)(one), model(one))


def test_the_mean_of_weights_times_root_fan_in_does_not_matter():
    def moved(weights):
        return jax.tree.map(lambda x: x + 3 / (np.sqrt(x.shape[1]) if x.ndim == 3 else 1), weights)

    before, after = (
        fit(make(), weights, TARGETS, **OPTIONS).model.predict(weights, spaces=SPACES)
        for weights in (WEIGHTS, [moved(x) for x in WEIGHTS])
    )
    for a, b in zip(before, after, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_constants_have_no_gradient(fitted):
    one = stack_channels(jax.tree.map(lambda x: jnp.asarray(x[0]), WEIGHTS[0]))
    found = eqx.filter_grad(lambda model: model(one, SPACES[0]).sum())(fitted.model)
    for name in ("shift", "scale", "out_shift", "out_scale"):
        assert all(np.all(x == 0) for x in jax.tree.leaves(getattr(found, name)))
    assert any(np.any(x != 0) for x in jax.tree.leaves(found.model))


def test_scores_are_those_of_all_spaces_together(fitted):
    predicted = fitted.model.predict(WEIGHTS, spaces=SPACES)
    assert [x.shape for x in predicted] == [(count,) for count in COUNTS]
    error = np.concatenate(predicted) - np.concatenate(TARGETS)
    r2 = 1 - np.mean(error**2) / np.var(np.concatenate(TARGETS))
    assert np.isclose(fitted.model.score(WEIGHTS, TARGETS, spaces=SPACES)["r2"], r2)


def test_saved_models_predict_the_same(fitted, tmp_path):
    save_model(tmp_path / "m.safetensors", fitted.model)
    again = load_model(tmp_path / "m.safetensors")
    for a, b in zip(
        again.predict(WEIGHTS, spaces=SPACES),
        fitted.model.predict(WEIGHTS, spaces=SPACES),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_stopped_fits_go_on_to_the_same_end(tmp_path):
    class Stop(Exception):
        pass

    def stop(epoch, metrics):
        if epoch == 2:
            raise Stop("after epoch 2")

    options = OPTIONS | {"epochs": 3}
    whole = fit([make(), make(jax.random.key(1))], WEIGHTS, TARGETS, **options)
    with pytest.raises(Stop, match="after epoch 2"):
        fit(
            [make(), make(jax.random.key(1))],
            WEIGHTS,
            TARGETS,
            checkpoints=tmp_path,
            on_epoch=stop,
            **options,
        )
    again = fit(
        [make(), make(jax.random.key(1))], WEIGHTS, TARGETS, checkpoints=tmp_path, **options
    )
    np.testing.assert_allclose(again.history["loss"], whole.history["loss"], rtol=1e-5)
    for a, b in zip(arrays(again.model), arrays(whole.model), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="a checkpoint of another job"):
        fit([make(), make()], WEIGHTS, TARGETS, checkpoints=tmp_path, **options)


@pytest.mark.nightly
def test_tied_layers_are_fitted_and_no_order_of_neurons_matters():
    sizes = {"hidden_channels": 2, "num_layers": 2, "mlp_width": 8, "mlp_layers": 2}
    model = InvariantTied(1, 1, key=KEY, spaces=SPACES, **sizes)
    result = fit(model, WEIGHTS, TARGETS, **OPTIONS)
    before = result.model.predict(WEIGHTS, spaces=SPACES)
    moved = [
        jax.vmap(lambda x, s=space: s.permute(x, s.sample_permutation(KEY)))(x)
        for space, x in zip(SPACES, WEIGHTS, strict=True)
    ]
    for a, b in zip(before, result.model.predict(moved, spaces=SPACES), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert np.isfinite(result.history["loss"]).all()


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"weights": WEIGHTS[:1]}, SpecError, "a list with a pytree for each of 2 weight spaces"),
        ({"weights": WEIGHTS[0]}, SpecError, "weights do not belong to spaces"),
        ({"weights": WEIGHTS[::-1]}, SpecError, "structure|shape|leaf"),
        ({"targets": TARGETS[:1]}, ValueError, "there are 1 arrays of targets for 2 spaces"),
        ({"targets": TARGETS[::-1]}, ValueError, r"targets have shape \(24,\); expected \(18, 1\)"),
        ({"spaces": None}, SpecError, "needs the weight space|pytree of arrays"),
        (
            {"model": StatNN(SPACES[0], 1, 1, key=KEY)},
            SpecError,
            "a model with a weight space of its own, and spaces=",
        ),
    ],
)
def test_what_does_not_fit(changed, error, message):
    given = {"model": make(), "weights": WEIGHTS, "targets": TARGETS, **OPTIONS} | changed
    with pytest.raises(error, match=message):
        fit(**given)
