"""Models that write weights, losses that run what they write, augmentation, readers with probes."""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
from unf.models import Probe, StatNN, average, editor, fit, reader
from unf.models._reader import SIZES
from unf.spec import SpecError
from unf.testing import spaces

SPACE = spaces.mlp(2, 4, 1)
KEY = jax.random.key(0)
OPTIONS = {"key": KEY, "epochs": 2, "batch_size": 16, "progress": False}
PLACES = jnp.linspace(-1, 1, 10).reshape(5, 2)


def answer(params, x):
    hidden = jnp.tanh(x @ params["w0"] + params["b0"][None])
    return hidden @ params["w1"] + params["b1"][None]


def networks(count=80):
    rng = np.random.default_rng(0)
    leaves = [rng.normal(size=(count, *leaf.shape)).astype(np.float32) for leaf in SPACE.leaves]
    return SPACE.unflatten([2 * leaf + 1 for leaf in leaves])


WEIGHTS = networks()
SIGNAL = sum(np.asarray(leaf).reshape(80, -1).mean(1) for leaf in jax.tree.leaves(WEIGHTS))


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    options = {"hidden_channels": 4, "num_blocks": 1, "num_frequencies": 2}
    monkeypatch.setitem(SIZES, "small", options)
    monkeypatch.setattr("unf.models._reader._MLP_WIDTH", 16)


def make_editor(num_outputs=2):
    return editor(SPACE, key=KEY, size="small", num_outputs=num_outputs)


def cost(edited, wanted):
    return jnp.mean((average(answer)(edited, PLACES) - wanted) ** 2)


def wanted():
    return np.asarray(jax.vmap(lambda p: answer(p, PLACES))(WEIGHTS)) + 2.0


@pytest.fixture(scope="module")
def edited():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "small", {"hidden_channels": 4, "num_blocks": 1, "num_frequencies": 2})
        options = OPTIONS | {"epochs": 25, "learning_rate": 3e-2}
        return fit(make_editor(), WEIGHTS, wanted(), loss=cost, **options)


def test_edited_weights_have_the_signs_of_the_weights():
    found = fit(make_editor(), WEIGHTS, wanted(), loss=cost, signs=("h1",), **OPTIONS).model
    flips = np.random.default_rng(1).choice([-1.0, 1.0], (80, 4)).astype(np.float32)
    flip = jax.vmap(lambda x, s: SPACE.flip(x, {"h1": s}))
    written = found.predict(flip(WEIGHTS, flips))
    expected = flip(found.predict(WEIGHTS), flips)
    for path, leaf in expected.items():
        np.testing.assert_allclose(written[path], leaf, atol=1e-4)
        assert leaf.shape == (*WEIGHTS[path].shape, 2)


class Copy(eqx.Module):
    """An editor of one's own, without a weight space, that changes nothing at the start."""

    gain: jax.Array

    def __call__(self, x):
        return jax.tree.map(lambda leaf: leaf * self.gain, x)


def test_what_any_editor_writes_is_in_the_units_of_the_weights():
    options = OPTIONS | {"epochs": 1, "learning_rate": 1e-9}
    features = jax.tree.map(lambda x: x[..., None], WEIGHTS)
    found = fit(Copy(jnp.float32(1.0)), features, wanted(), loss=cost, **options).model
    for path, leaf in found.predict(features).items():
        np.testing.assert_allclose(leaf, features[path], rtol=1e-4, atol=1e-4)


def test_an_editor_is_equivariant_and_starts_near_the_identity():
    model = make_editor(3)
    unf.testing.assert_equivariant(model, SPACE, key=KEY, tolerance=1e-4)
    x = unf.testing.random_features(SPACE, 1, key=KEY)
    for before, after in zip(jax.tree.leaves(x), jax.tree.leaves(model(x)), strict=True):
        assert after.shape == (*before.shape[:-1], 3)
        assert 0 < np.abs(after - before).max() < 0.2
    wider = spaces.mlp(2, 7, 1)
    unf.testing.assert_equivariant(model.on(wider), wider, key=KEY, tolerance=1e-4)


def test_learns_through_the_networks_that_it_writes(edited):
    losses = edited.history["valid_loss"]
    assert set(edited.history) == {"loss", "valid_loss"} and edited.score == {}
    assert losses.min() < 0.5 * losses[0]
    assert edited.model.score(WEIGHTS, wanted())["loss"] < 0.5 * losses[0]


def test_edited_weights_are_in_the_units_of_the_weights(edited):
    written = edited.model.predict(WEIGHTS, batch_size=7)
    outputs = jax.vmap(lambda p: average(answer)(p, PLACES))(written)
    expected = edited.model.score(WEIGHTS, wanted())["loss"]
    np.testing.assert_allclose(np.mean((outputs - wanted()) ** 2), expected, rtol=1e-4)
    one = unf.nn.stack_channels(jax.tree.map(lambda x: jnp.asarray(x[5]), WEIGHTS))
    for a, b in zip(jax.tree.leaves(edited.model(one)), jax.tree.leaves(written), strict=True):
        np.testing.assert_allclose(a, b[5], rtol=1e-4, atol=1e-4)


def test_a_saved_editor_writes_the_same(edited, tmp_path):
    unf.save_model(tmp_path / "editor", edited.model)
    loaded = unf.load_model(tmp_path / "editor")
    expected = edited.model.predict(WEIGHTS)
    jax.tree.map(np.testing.assert_array_equal, loaded.predict(WEIGHTS), expected)
    with pytest.raises(ValueError, match=r"a loss that its file cannot hold; compute it from"):
        loaded.score(WEIGHTS, wanted())
    with pytest.raises(SpecError, match=r"the model runs no networks(.|\n)*leave out fn="):
        unf.load_model(tmp_path / "editor", fn=answer)


def test_average_runs_the_network_in_each_channel():
    x = unf.testing.random_features(SPACE, 3, key=KEY)
    parts = [jax.tree.map(lambda leaf, k=k: leaf[..., k], x) for k in range(3)]
    each = [answer(params, PLACES) for params in parts]
    np.testing.assert_allclose(average(answer)(x, PLACES), sum(each) / 3, rtol=1e-6)


def test_targets_of_a_function_are_any_arrays():
    def tagged(output, target):
        return jnp.mean((output - target["a"]) ** 2) + 0 * target["b"].sum()

    model = StatNN(SPACE, 1, 1, key=KEY, mlp_layers=1)
    targets = {"a": SIGNAL, "b": np.zeros((80, 3), np.uint8)}
    found = fit(model, WEIGHTS, targets, loss=tagged, standardize=False, **OPTIONS)
    assert found.model.predict(WEIGHTS).shape == (80, 1)
    with pytest.raises(ValueError, match=r"targets have shape \(3,\); expected a leading axis"):
        fit(model, WEIGHTS, np.zeros(3), loss=tagged, **OPTIONS)
    with pytest.raises(ValueError, match="keep is 'score', which a loss that is a function"):
        fit(model, WEIGHTS, targets, loss=tagged, keep="score", **OPTIONS)


def test_augmentation_changes_what_is_trained_on_and_nothing_else():
    seen = []

    def negated(params, key):
        seen.append(jax.tree.map(jnp.shape, params))
        return jax.tree.map(lambda x: x * jax.random.rademacher(key, (), x.dtype), params)

    def unchanged(params, key):
        return params

    def trained(**options):
        model = StatNN(SPACE, 1, 1, key=KEY, mlp_width=8, mlp_layers=2)
        return fit(model, WEIGHTS, SIGNAL, **OPTIONS, **options)

    plain, same, changed = trained(), trained(augment=unchanged), trained(augment=negated)
    np.testing.assert_allclose(plain.history["loss"], same.history["loss"], rtol=1e-6)
    assert seen[0] == {leaf.path: leaf.shape for leaf in SPACE.leaves}, "weights, not features"
    assert not np.allclose(plain.history["loss"], changed.history["loss"], rtol=1e-3)
    np.testing.assert_array_equal(plain.model.scale[0], changed.model.scale[0])


class Flat(eqx.Module):
    """A model that depends on the order of neurons."""

    linear: eqx.nn.Linear
    space: unf.WeightSpace | None = eqx.field(static=True)

    def __call__(self, x):
        return self.linear(jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(x)]))


def test_random_permutations_matter_to_models_that_are_not_invariant_alone():
    flat = Flat(eqx.nn.Linear(SPACE.num_weights, 1, key=KEY), SPACE)
    invariant = StatNN(SPACE, 1, 1, key=KEY, mlp_width=8, mlp_layers=2)
    for model, same in ((flat, False), (invariant, True)):
        plain = fit(model, WEIGHTS, SIGNAL, **OPTIONS)
        permuted = fit(model, WEIGHTS, SIGNAL, augment="permute", **OPTIONS)
        losses = [found.history["loss"] for found in (plain, permuted)]
        assert np.allclose(*losses, rtol=1e-4) == same
    with pytest.raises(ValueError, match=r'augment="permute" needs one weight space, and a Flat'):
        fit(Flat(flat.linear, None), WEIGHTS, SIGNAL, augment="permute", **OPTIONS)
    with pytest.raises(ValueError, match="expected a function or \"permute\", got 'flip'"):
        fit(flat, WEIGHTS, SIGNAL, augment="flip", **OPTIONS)


def test_a_resumed_fit_has_the_same_augmentation(tmp_path):
    class Stop(Exception):
        pass

    def noisy(params, key):
        return jax.tree.map(lambda x: x + jax.random.normal(key, x.shape, x.dtype), params)

    def stop(epoch, found):
        if epoch == 2:
            raise Stop("enough")

    model = StatNN(SPACE, 1, 1, key=KEY, mlp_width=8, mlp_layers=2)
    options = OPTIONS | {"epochs": 3, "augment": noisy}
    expected = fit(model, WEIGHTS, SIGNAL, **options)
    with pytest.raises(Stop, match="enough"):
        fit(model, WEIGHTS, SIGNAL, checkpoints=tmp_path, on_epoch=stop, **options)
    epochs = []
    again = fit(
        model, WEIGHTS, SIGNAL, checkpoints=tmp_path, **options,
        on_epoch=lambda epoch, found: epochs.append(epoch),
    )  # fmt: skip
    assert epochs == [2, 3]
    np.testing.assert_allclose(expected.history["loss"], again.history["loss"], rtol=1e-6)
    with pytest.raises(ValueError, match="a checkpoint of another job"):
        fit(model, WEIGHTS, SIGNAL, checkpoints=tmp_path, **options | {"augment": None})


def test_a_loss_may_take_any_output():
    class Pair(eqx.Module):
        scale: jax.Array
        space = SPACE

        def __call__(self, x):
            return self.scale, sum(jnp.mean(leaf) for leaf in jax.tree.leaves(x))

    def cost(output, target):
        return (output[0] * output[1] - target) ** 2

    model = Pair(jnp.ones(()))
    found = fit(model, WEIGHTS, SIGNAL, loss=cost, **OPTIONS)
    scales, means = found.model.predict(WEIGHTS)
    assert scales.shape == means.shape == (80,) and np.all(scales == scales[0])
    assert abs(means.mean()) < 0.5, "inputs are standardized, outputs are as the model returns them"


def test_dropout_in_an_editor_changes_its_training():
    def train(rate):
        model = editor(SPACE, key=KEY, size="small", dropout=rate)
        model = eqx.tree_at(  # blocks start as the identity, which dropout does not change
            lambda m: m.backbone.features.blocks[0].projections,
            model,
            replace_fn=lambda matrices: tuple(jnp.ones_like(x) for x in matrices),
        )
        model = eqx.tree_at(lambda m: m.gains[0], model, replace_fn=lambda gain: 100 * gain)
        return fit(model, WEIGHTS, wanted(), loss=cost, **OPTIONS | {"epochs": 1}).history["loss"]

    assert not np.allclose(train(0.0), train(0.5), rtol=1e-4)


def test_a_reader_with_probes_runs_networks_as_they_are(tmp_path):
    ran = []

    def fn(params, x):
        ran.append(1)
        return answer(params, x)

    probe = Probe(fn, SPACE, (2,), 16, key=KEY, num_probes=5, mlp_width=16)
    model = reader(SPACE, 3, key=KEY, size="small", probe=probe)
    unf.testing.assert_invariant(model, SPACE, key=KEY, tolerance=1e-4)
    result = fit(model, WEIGHTS, np.arange(80) % 3, loss="cross-entropy", **OPTIONS)
    assert ran and result.model.predict(WEIGHTS).shape == (80, 3)
    one = unf.nn.stack_channels(jax.tree.map(lambda x: jnp.asarray(x[0]), WEIGHTS))
    run = eqx.filter_jit(result.model.model)
    found = eqx.filter_jit(result.model)(one)
    standardized = jax.tree.leaves(one)
    constants = zip(standardized, result.model.shift, result.model.scale, strict=True)
    features = SPACE.unflatten([(leaf - m[0]) / s[0] for leaf, m, s in constants])
    np.testing.assert_allclose(found, run(features, raw=one), rtol=1e-3, atol=1e-5)
    assert not np.allclose(found, run(features), rtol=1e-3), "the probe reads raw weights"
    wider = spaces.mlp(2, 6, 1)
    assert model.on(wider)(unf.testing.random_features(wider, 1, key=KEY)).shape == (3,)
    unf.save_model(tmp_path / "reader", result.model)
    assert eqx.tree_equal(unf.load_model(tmp_path / "reader", fn=fn), result.model)
    with pytest.raises(SpecError, match=r"a file cannot hold how(.|\n)*load_model\(path, fn="):
        unf.load_model(tmp_path / "reader")
    with pytest.raises(ValueError, match="in_channels is 3; a probe reads weights only"):
        inspect.unwrap(reader)(SPACE, 3, key=KEY, probe=probe, in_channels=3)
    with pytest.raises(SpecError, match=r"the probe belongs to another(.|\n)*probe.on\(space\)"):
        reader(wider, 3, key=KEY, size="small", probe=probe)
    with pytest.raises(ValueError, match=r"size is 'huge'; expected one of \['small'"):
        inspect.unwrap(reader)(SPACE, 3, key=KEY, size="huge")
