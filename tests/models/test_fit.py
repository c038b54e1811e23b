"""Fitting models to weights: what comes out, and what it may depend on."""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
from unf.models import Fitted, Invariant, Probe, StatNN, fit
from unf.spec import SpecError
from unf.testing import spaces

SPACE = spaces.mlp(2, 4, 1)
SPACE_PATHS = [leaf.path for leaf in SPACE.leaves]
KEY = jax.random.key(0)
OPTIONS = {"key": KEY, "epochs": 3, "batch_size": 8, "progress": False}


def make(key=KEY, out_size=1):
    return StatNN(SPACE, 1, out_size, key=key, mlp_width=16, mlp_layers=2)


def networks(count=60, scale=3.0, offset=5.0):
    rng = np.random.default_rng(0)
    leaves = [rng.normal(size=(count, *leaf.shape)).astype(np.float32) for leaf in SPACE.leaves]
    signal = sum(leaf.reshape(count, -1).mean(1) for leaf in leaves)
    moved = [scale * leaf + offset for leaf in leaves]
    return SPACE.unflatten(moved), signal


WEIGHTS, SIGNAL = networks()


@pytest.fixture(scope="module")
def fitted():
    return fit(make(), WEIGHTS, 100 * SIGNAL + 7, **OPTIONS | {"epochs": 40, "learning_rate": 1e-2})


def same(a, b, **options):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **options), a, b)


def test_learns_and_predicts_in_the_units_of_the_targets(fitted):
    assert fitted.score["tau"] > 0.6 and fitted.score["r2"] > 0.6
    fresh, signal = networks(80)
    fresh = jax.tree.map(lambda x: x[60:], fresh)
    scores = fitted.model.score(fresh, 100 * signal[60:] + 7)
    assert scores["tau"] > 0.6
    predicted = fitted.model.predict(fresh)
    assert predicted.shape == (20,) and np.abs(predicted).mean() > 5


def test_one_network_is_read_as_many_are(fitted):
    one = unf.nn.stack_channels(jax.tree.map(lambda x: jnp.asarray(x[3]), WEIGHTS))
    predicted = fitted.model.predict(WEIGHTS, batch_size=7)
    np.testing.assert_allclose(fitted.model(one)[0], predicted[3], rtol=1e-4)
    features = jax.tree.map(lambda x: x[..., None], WEIGHTS)
    np.testing.assert_allclose(fitted.model.predict(features), predicted, rtol=1e-4)


def test_predictions_do_not_depend_on_the_order_of_neurons(fitted):
    moved = jax.vmap(lambda x: SPACE.permute(x, SPACE.sample_permutation(jax.random.key(1))))(
        jax.tree.map(jnp.asarray, WEIGHTS)
    )
    same(fitted.model.predict(moved), fitted.model.predict(WEIGHTS), rtol=1e-4)


def test_a_layer_can_be_the_backbone_of_a_model():
    layer = unf.nn.UNFLinear(SPACE, 1, 2, key=KEY)
    pool = unf.nn.InvariantPool(SPACE)
    model = Invariant(layer, pool, eqx.nn.Linear(pool.out_size(2), 1, key=KEY), jax.nn.relu)
    result = fit(model, WEIGHTS, SIGNAL, **OPTIONS)
    assert result.model.space == layer.space == SPACE and np.isfinite(result.score["tau"])


def test_the_model_is_that_of_the_best_epoch(fitted):
    """Scores of the model are those of the epoch with the lowest validation loss."""
    best = np.argmin(fitted.history["valid_loss"])
    assert fitted.score == {name: fitted.history[name][best] for name in ("tau", "r2")}
    held_out = [jax.tree.map(lambda x: x[48:], part) for part in (WEIGHTS, SIGNAL)]
    kept = [jax.tree.map(lambda x: x[:48], part) for part in (WEIGHTS, SIGNAL)]
    for keep, best in (("score", np.argmax), ("loss", np.argmin)):
        result = fit(make(), *kept, validation=tuple(held_out), keep=keep, **OPTIONS)
        epoch = best(result.history["tau" if keep == "score" else "valid_loss"])
        found = result.model.score(*held_out)
        assert found["tau"] == pytest.approx(result.history["tau"][epoch], abs=1e-6)


def test_stops_when_validation_no_longer_improves():
    noise = np.random.default_rng(1).normal(size=60)
    result = fit(make(), WEIGHTS, noise, **OPTIONS | {"epochs": 60, "patience": 3})
    epochs = len(result.history["loss"])
    assert epochs == np.argmin(result.history["valid_loss"]) + 4 < 60


def test_standardization_undoes_units():
    """Weights in other units, with other offsets, give the same model."""
    moved = networks(scale=30.0, offset=-1.0)[0]
    expected = fit(make(), WEIGHTS, SIGNAL, **OPTIONS)
    result = fit(make(), moved, SIGNAL, **OPTIONS)
    same(result.model.predict(moved), expected.model.predict(WEIGHTS), rtol=1e-2)
    plain = fit(make(), moved, SIGNAL, standardize=False, **OPTIONS)
    assert plain.model.shift is None
    assert not np.allclose(plain.history["loss"], result.history["loss"], rtol=0.05)


def test_models_trained_together_are_those_trained_alone():
    keys = jax.random.split(KEY, 2)
    held = (jax.tree.map(lambda x: x[:10], WEIGHTS), SIGNAL[:10])
    options = {**OPTIONS, "validation": held}
    together = fit([make(k) for k in keys], WEIGHTS, SIGNAL, **options | {"key": keys})
    assert together.score["tau"].shape == (2,) and together.history["loss"].shape == (3, 2)
    for i, key in enumerate(keys):
        alone = fit(make(key), WEIGHTS, SIGNAL, **options | {"key": key})
        same(alone.model.predict(WEIGHTS), together.model[i].predict(WEIGHTS), rtol=1e-4)


def test_classes_and_fractions():
    classes = (SIGNAL > np.median(SIGNAL)).astype(int)
    options = OPTIONS | {"epochs": 30, "learning_rate": 1e-2}
    result = fit(make(out_size=2), WEIGHTS, classes, loss="cross-entropy", **options)
    probabilities = result.model.predict(WEIGHTS)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-6)
    found = np.mean(probabilities.argmax(1) == classes)
    assert result.model.score(WEIGHTS, classes) == {"accuracy": found} and found > 0.8
    result = fit(make(), WEIGHTS, classes, loss="bce", **options)
    assert set(result.score) == {"tau", "r2", "accuracy"}
    probabilities = result.model.predict(WEIGHTS)
    assert 0 < probabilities.min() < probabilities.max() < 1
    assert result.model.score(WEIGHTS, classes)["accuracy"] > 0.8


def test_calls_of_any_length_train_the_same(monkeypatch):
    expected = fit(make(), WEIGHTS, SIGNAL, **OPTIONS)
    monkeypatch.setattr("unf.models._fit._STEPS_PER_CALL", 4)  # of 6 steps in an epoch
    same(fit(make(), WEIGHTS, SIGNAL, **OPTIONS).history, expected.history, rtol=1e-6)


def test_stopped_and_resumed_is_the_same(tmp_path):
    class Stop(Exception):
        pass

    def stop(epoch, found):
        assert set(found) == {"loss", "valid_loss", "tau", "r2"}
        if epoch == 3:
            raise Stop("enough")

    expected = fit(make(), WEIGHTS, SIGNAL, **OPTIONS)
    with pytest.raises(Stop, match="enough"):
        fit(make(), WEIGHTS, SIGNAL, checkpoints=tmp_path, on_epoch=stop, **OPTIONS)
    epochs = []
    resumed = fit(
        make(), WEIGHTS, SIGNAL, checkpoints=tmp_path, **OPTIONS,
        on_epoch=lambda epoch, found: epochs.append(epoch),
    )  # fmt: skip
    assert epochs == [3]
    same(resumed.history, expected.history, rtol=1e-6)
    same(resumed.model.predict(WEIGHTS), expected.model.predict(WEIGHTS), rtol=1e-6)
    for options in ({"epochs": 4}, {"learning_rate": 1e-2}, {"key": jax.random.key(7)}):
        with pytest.raises(ValueError, match="a checkpoint of another job"):
            fit(make(), WEIGHTS, SIGNAL, checkpoints=tmp_path, **OPTIONS | options)
    others = (
        make(jax.random.key(7)),
        StatNN(SPACE, 1, 1, key=KEY, mlp_width=16, mlp_layers=2, activation="gelu"),
    )
    for model, targets, validation in (
        (others[0], SIGNAL, 0.1), (others[1], SIGNAL, 0.1), (make(), -SIGNAL, 0.1),
        (make(), SIGNAL, 0.2),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="a checkpoint of another job"):
            fit(model, WEIGHTS, targets, checkpoints=tmp_path, validation=validation, **OPTIONS)
    pairs = [
        (jax.tree.map(lambda x, i=i: x[i : i + 9], WEIGHTS), SIGNAL[i : i + 9]) for i in (0, 9)
    ]
    fit(make(), WEIGHTS, SIGNAL, checkpoints=tmp_path / "pair", validation=pairs[0], **OPTIONS)
    with pytest.raises(ValueError, match="a checkpoint of another job"):
        fit(make(), WEIGHTS, SIGNAL, checkpoints=tmp_path / "pair", validation=pairs[1], **OPTIONS)


def test_dropout_is_on_in_training_and_off_afterwards():
    class Dropped(eqx.Module):
        model: Invariant
        dropout: eqx.nn.Dropout
        space = SPACE

        def __call__(self, x, key=None):
            x = jax.tree.map(lambda leaf: self.dropout(leaf, key=key, inference=key is None), x)
            return self.model(x)

    options = OPTIONS | {"epochs": 1}
    expected = fit(make(), WEIGHTS, SIGNAL, **options)
    result = fit(Dropped(make(), eqx.nn.Dropout(0.5)), WEIGHTS, SIGNAL, **options)
    assert not np.allclose(expected.history["loss"], result.history["loss"], rtol=1e-3)
    same(result.model.predict(WEIGHTS), result.model.predict(WEIGHTS))


def test_any_module_can_be_fitted():
    class Mean(eqx.Module):
        scale: jax.Array

        def __call__(self, x):
            return self.scale * sum(jnp.mean(leaf) for leaf in jax.tree.leaves(x))

    result = fit(Mean(jnp.ones(1)), WEIGHTS, SIGNAL, **OPTIONS)
    assert result.model.predict(WEIGHTS).shape == (60,)
    with pytest.raises(ValueError, match="signs= needs a weight space, and a Mean has none"):
        fit(Mean(jnp.ones(1)), WEIGHTS, SIGNAL, **OPTIONS, signs=("h1",))


@pytest.mark.parametrize("loss", ["mse", "bce"])
def test_saved_with_its_constants(fitted, loss, tmp_path):
    model = fitted.model
    if loss == "bce":
        model = Fitted(model.model, loss="bce")
    unf.save_model(tmp_path / "model.safetensors", model)
    loaded = unf.load_model(tmp_path / "model.safetensors")
    assert loaded.loss == loss
    np.testing.assert_array_equal(loaded.predict(WEIGHTS), model.predict(WEIGHTS))


@pytest.fixture(scope="module")
def of_signs():
    """A model that reads neurons with the signs that a rule chooses."""
    model = unf.models.InvariantUNF(SPACE, 1, 1, key=KEY, num_layers=2, mlp_width=16)
    return fit(model, *networks(scale=1.0, offset=0.2), **OPTIONS, signs=("h1",)).model


def test_predictions_do_not_depend_on_signs(of_signs, tmp_path):
    weights, _ = networks(scale=1.0, offset=0.2)
    flips = np.random.default_rng(1).choice([-1.0, 1.0], (60, 4)).astype(np.float32)
    flipped = jax.vmap(lambda x, s: SPACE.flip(x, {"h1": s}))(weights, flips)
    expected = of_signs.predict(weights)
    same(of_signs.predict(flipped), expected, rtol=1e-4)
    unf.save_model(tmp_path / "model.safetensors", of_signs)
    loaded = unf.load_model(tmp_path / "model.safetensors")
    assert loaded.signs == ("h1",)
    np.testing.assert_array_equal(loaded.predict(weights), expected)
    without = fit(make(), weights, SIGNAL, **OPTIONS).model
    assert np.max(np.abs(without.predict(flipped) - without.predict(weights))) > 1e-2


def test_weights_are_standardized_as_they_are_read(of_signs):
    weights, _ = networks(scale=1.0, offset=0.2)
    oriented = jax.vmap(lambda x: SPACE.orient(x, ("h1",)))(jax.tree.map(lambda x: x[:54], weights))
    means = [np.mean(x) for x in jax.tree.leaves(oriented)]
    assert np.max(np.abs(np.array(means) - np.ravel(of_signs.shift))) < 0.1
    assert of_signs.shift[SPACE_PATHS.index("w0")] > 0.3


def test_names_of_signs_are_checked():
    with pytest.raises(SpecError, match="'h0' is not a permutation of this space"):
        fit(make(), WEIGHTS, SIGNAL, **OPTIONS, signs=("h0",))


def test_many_parameters_and_few_networks(monkeypatch):
    monkeypatch.setattr("unf.models._fit._MANY_PARAMETERS", 2)
    with pytest.warns(UserWarning, match=r"parameters and there are 54 training.*DeepSet"):
        fit(make(), WEIGHTS, SIGNAL, **OPTIONS)


def flat(tree):
    return jax.tree.map(lambda x: x[0], tree)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((flat(WEIGHTS), SIGNAL), {}, SpecError, "leading axis|expected"),
        (
            ([flat(WEIGHTS)] * 3, SIGNAL[:3]),
            {},
            SpecError,
            r"got: a list of 3 trees(.|\n)*stack them",
        ),
        (({"w": np.ones((60, 2))}, SIGNAL), {}, SpecError, "expected"),
        ((WEIGHTS, SIGNAL[:50]), {}, ValueError, r"targets have shape \(50,\); expected \(60, 1\)"),
        ((WEIGHTS, np.full(60, np.nan)), {}, ValueError, r"target of network 0 is \[nan\]"),
        ((WEIGHTS, 2 + SIGNAL), {"loss": "bce"}, ValueError, "numbers from 0 to 1"),
        ((WEIGHTS, SIGNAL), {"loss": "cross-entropy"}, ValueError, "number of a class for each"),
        ((WEIGHTS, np.arange(60)), {"loss": "cross-entropy"}, ValueError, "out_size=1; number"),
        ((WEIGHTS, SIGNAL), {"epochs": 0}, ValueError, "epochs is 0"),
        ((WEIGHTS, SIGNAL), {"validation": 0.01}, ValueError, "validation is 0.01 of 60 networks"),
        ((WEIGHTS, SIGNAL), {"key": jax.random.split(KEY, 3)}, ValueError, r"key has shape \(3,\)"),
        ((WEIGHTS, SIGNAL), {"learning_rate": jnp.inf}, ValueError, "choose a smaller learning_ra"),
    ],
)
def test_mistakes(arguments, options, error, message):
    with pytest.raises(error, match=message):
        fit(make(), *arguments, **OPTIONS | options)


def test_more_mistakes():
    unchecked = inspect.unwrap(fit)  # as users have it, without the tests' checks of types
    with pytest.raises(ValueError, match="loss is 'l1'; expected one of"):
        unchecked(make(), WEIGHTS, SIGNAL, loss="l1", **OPTIONS)
    with pytest.raises(ValueError, match="keep is 'tau'; expected 'loss' or 'score'"):
        unchecked(make(), WEIGHTS, SIGNAL, keep="tau", **OPTIONS)
    with pytest.raises(ValueError, match="differ in more than their parameters"):
        fit([make(), make(out_size=2)], WEIGHTS, SIGNAL, **OPTIONS)
    with pytest.raises(ValueError, match="patience is 0; expected at least 1, or None"):
        fit(make(), WEIGHTS, SIGNAL, **OPTIONS | {"patience": 0})
    with pytest.raises(ValueError, match=r"was fitted before(.|\n)*pass the model inside it"):
        fit(Fitted(make()), WEIGHTS, SIGNAL, **OPTIONS)
    fitted = fit(make(), WEIGHTS, SIGNAL, **OPTIONS).model
    one = unf.nn.stack_channels(jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), WEIGHTS))
    with pytest.raises(SpecError, match="extra"):
        fitted({**one, "extra": jnp.ones(1)})
    with pytest.raises(ValueError, match="no models to fit"):
        fit([], WEIGHTS, SIGNAL, **OPTIONS)
    with pytest.raises(ValueError, match="rather than a vector"):
        fit(unf.models.UNF(SPACE, 1, 1, key=KEY, num_layers=1), WEIGHTS, SIGNAL, **OPTIONS)
    with pytest.raises(ValueError, match=r"the loss of one network has shape \(1,\)"):
        fit(make(), WEIGHTS, SIGNAL[:, None], loss=lambda y, wanted: (y - wanted) ** 2, **OPTIONS)
    one, none = ((jax.tree.map(lambda x, n=n: x[:n], WEIGHTS), SIGNAL[:n]) for n in (1, 0))
    with pytest.raises(ValueError, match="one network has no τ"):
        fit(make(), WEIGHTS, SIGNAL, validation=one, keep="score", **OPTIONS)
    with pytest.raises(ValueError, match="validation= has no networks"):
        fit(make(), WEIGHTS, SIGNAL, validation=none, **OPTIONS)
    both = jax.tree.map(lambda x: np.stack([x, x], axis=-1), WEIGHTS)
    with pytest.raises(ValueError, match="maps 2 channels of weights to 1"):
        model = unf.models.UNF(SPACE, 2, 1, key=KEY, num_layers=1)
        fit(model, both, SIGNAL, loss=lambda y, wanted: jnp.mean(y["w0"]), **OPTIONS)
    broken = jax.tree.map(np.copy, WEIGHTS)
    jax.tree.leaves(broken)[1][5] = np.nan
    with pytest.raises(SpecError, match="not finite, in 1 networks"):
        fit(make(), broken, SIGNAL, **OPTIONS)


def answer(params, x):
    hidden = jnp.tanh(x @ params["w0"] + params["b0"][None])
    return hidden @ params["w1"] + params["b1"][None]


def test_a_probe_reads_what_networks_answer():
    weights, _ = networks(200, scale=1.0, offset=0.0)
    wanted = jax.vmap(lambda p: answer(p, jnp.array([[0.5, -1.0]]))[0, 0])(weights)
    model = Probe(answer, SPACE, (2,), 1, key=KEY, num_probes=8, mlp_width=16, mlp_layers=2)
    options = OPTIONS | {"epochs": 30, "learning_rate": 1e-2}
    result = fit(model, weights, np.asarray(wanted), **options)
    assert result.model.shift is None and result.score["tau"] > 0.7
    assert np.any(result.model.model.inputs != model.inputs), "inputs are learned"
    x = unf.nn.stack_channels(jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), weights))
    expected = model.head(answer(jax.tree.map(lambda leaf: leaf[0], weights), model.inputs)[:, 0])
    np.testing.assert_allclose(model(x), expected, rtol=1e-5)
    unf.testing.assert_invariant(model, SPACE, key=KEY, tolerance=1e-5)


@pytest.mark.parametrize("scale", [0.25, 4.0])
def test_inputs_of_probes_start_with_the_scale_that_is_asked_for(scale):
    fn = jax.vmap(lambda params, x: x.reshape(-1)[:1], (None, 0))
    options = {"key": KEY, "num_probes": 500, "scale": scale, "mlp_layers": 1}
    inputs = Probe(fn, SPACE, (5, 4), 1, **options).inputs
    assert inputs.shape == (500, 5, 4)
    assert abs(jnp.std(inputs) / scale - 1) < 0.3 and abs(jnp.mean(inputs)) < 0.1 * scale


def test_inputs_of_probes_start_from_those_that_are_given():
    fn = jax.vmap(lambda params, x: x, (None, 0))
    given = jnp.arange(10.0).reshape(5, 2)
    options = {"key": KEY, "num_probes": 5, "scale": 1e-3, "mlp_layers": 1}
    inputs = Probe(fn, SPACE, (2,), 1, start=given, **options).inputs
    np.testing.assert_allclose(inputs, given, atol=0.02)
    assert np.all(inputs != given)
    with pytest.raises(SpecError, match=r"inputs to start from(.|\n)*\(5, 2\)(.|\n)*got: \(4, 2\)"):
        Probe(fn, SPACE, (2,), 1, start=given[:4], **options)


def test_mistakes_with_probes():
    model = Probe(answer, SPACE, (2,), 1, key=KEY, num_probes=3, mlp_layers=1)
    with pytest.raises(ValueError, match="a Probe reads weights as they are; leave out"):
        fit(model, WEIGHTS, SIGNAL, standardize=True, **OPTIONS)
    huge = dict(WEIGHTS, w1=WEIGHTS["w1"].copy())
    huge["w1"][7] = 3e38
    with pytest.raises(ValueError, match=r"before training, outputs for 1 of 60 networks are not"):
        fit(model, huge, SIGNAL, **OPTIONS)
    with pytest.raises(SpecError, match=r"wrong shape(.|\n)*3 outputs(.|\n)*got: shape \(\)"):
        Probe(lambda params, x: x.sum(), SPACE, (2,), 1, key=KEY, num_probes=3)
    with pytest.raises(SpecError, match=r"reads weights only(.|\n)*got: 2"):
        model(unf.testing.random_features(SPACE, 2, key=KEY))
    with pytest.raises(ValueError, match="num_probes is 3 and rank 0; expected at least 1"):
        Probe(answer, SPACE, (2,), 1, key=KEY, num_probes=3, rank=0)
    with pytest.raises(ValueError, match="rank is 0; expected at least 1"):
        unf.models.NeuronUNF(SPACE, 1, 1, key=KEY, rank=0)
    with pytest.raises(SpecError, match=r"does not run on the inputs(.|\n)*choose input_shape"):
        Probe(answer, SPACE, (3,), 1, key=KEY)
    with pytest.raises(ValueError, match="mlp_layers is 3 and out_size 0; expected at least 1"):
        Probe(answer, SPACE, (2,), 0, key=KEY)


def test_probes_are_saved_without_the_function_that_they_run(tmp_path):
    def both(params, x):
        return {"scores": answer(params, x), "chosen": jnp.sign(answer(params, x))}

    start = np.arange(6).reshape(3, 2)
    model = Probe(both, SPACE, (2,), 4, key=KEY, num_probes=3, mlp_width=16, start=start)
    assert jnp.issubdtype(model.start.dtype, jnp.floating), "whole numbers are learned, too"
    fitted = Fitted(model, out_shift=jnp.ones(4), out_scale=2 * jnp.ones(4))
    unf.save_model(tmp_path / "probe", fitted)
    again = unf.load_model(tmp_path / "probe", fn=both)
    assert eqx.tree_equal(fitted, again)
    x = unf.testing.random_features(SPACE, 1, key=KEY)
    np.testing.assert_array_equal(fitted(x), again(x))
    with pytest.raises(SpecError, match=r"a file cannot hold how(.|\n)*load_model\(path, fn="):
        unf.load_model(tmp_path / "probe")
    with pytest.raises(SpecError, match="fn does not run on the inputs of a probe"):
        unf.load_model(tmp_path / "probe", fn=lambda params, x: x @ params["w9"])
