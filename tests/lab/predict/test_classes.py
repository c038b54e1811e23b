"""Predicting classes: of images from implicit networks, and words among settings."""

import csv
import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
from unf.lab import plots, predict
from unf.lab.cli import main
from unf.lab.predict import PredictError, Training
from unf.lab.predict._apply import Predictions
from unf.lab.predict._methods import make_optimizer, problem_of
from unf.lab.tasks import Addition, ImplicitImage, Runnable
from unf.lab.tasks._addition import as_text
from unf.lab.zoos import ImplicitZoo, build
from unf.models import StatNN
from unf.testing import spaces
from unf.zoo import Zoo

SPACE = spaces.mlp(2, 4, 1)
TRAINING = Training(epochs=40, batch_size=16, learning_rate=1e-2, standardize=True)


def make_zoo(score="kind"):
    """Networks whose class is told by the size of their weights."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 3, 150)
    leaves = [rng.normal(size=(150, *leaf.shape)).astype(np.float32) for leaf in SPACE.leaves]
    scaled = [leaf * (0.3 + kinds).reshape(-1, *[1] * (leaf.ndim - 1)) for leaf in leaves]
    words = np.array(["few", "many", "some"])[kinds]
    settings = {score: words if score == "kind" else kinds.astype(float), "rate": rng.random(150)}
    losses = {"loss": rng.random(150)}
    zoo = Zoo.from_arrays(SPACE.unflatten(scaled), losses, SPACE, settings=settings)
    return zoo, kinds


@pytest.fixture(autouse=True)
def small_predictors(monkeypatch):
    """Predictors that are compiled quickly."""

    def make(problem, key):
        return StatNN(problem.space, 1, problem.out_size, key=key, mlp_width=16, mlp_layers=2)

    small = dataclasses.replace(predict.METHODS["statnn"], make=make)
    monkeypatch.setitem(predict.METHODS, "statnn", small)


@pytest.fixture(scope="module")
def implicit(tmp_path_factory):
    recipe = ImplicitZoo(dataset="digits", hidden=3, steps=2)
    return build(recipe, tmp_path_factory.mktemp("inr") / "zoo", models=200, show_progress=False)


@pytest.mark.parametrize("score", ["kind", "label"])
def test_classes_are_predicted_and_scored(score, tmp_path):
    zoo, kinds = make_zoo(score)
    options = {"training": TRAINING, "seeds": 2, "sizes": (90, 20, 40), "show_progress": False}
    report = predict.train(zoo, "statnn", tmp_path, score=score, **options)
    assert report.score == score and report.tau is None and report.r2 is None
    chance = np.bincount(kinds[report.tested]).max() / len(report.tested)
    assert report.accuracy.shape == (2,) and report.accuracy.min() > chance + 0.2
    np.testing.assert_array_equal(report.true, kinds[report.tested])
    np.testing.assert_allclose(report.accuracy, np.mean(report.predicted == report.true, axis=1))
    assert report.settings < 0.7, "what is predicted is not among the settings"
    again = predict.Report.from_json(report.to_json())
    np.testing.assert_array_equal(again.accuracy, report.accuracy)
    assert again.tau is None and "accuracy" in str(again)
    plots.predictions([report]), plots.training_curves([report])
    applied = predict.apply(tmp_path, zoo)
    assert np.mean(applied.predicted == applied.measured) > 0.7
    network = Runnable(lambda params, x: x, (2,))
    with pytest.raises(PredictError, match="'statnn' does not run networks; leave out network="):
        predict.apply(tmp_path, zoo, network=network)
    words = {"few", "many", "some"} if score == "kind" else {"0", "1", "2"}
    assert set(applied.predicted) <= words and set(applied.measured) == words


def test_the_class_of_the_image_is_the_default(implicit, tmp_path):
    training = Training(epochs=1, batch_size=16)
    options = {"training": training, "seeds": 1, "show_progress": False}
    report = predict.train(implicit, "statnn", tmp_path, **options)
    assert report.score == "label" and len(report.accuracy) == 1
    assert report.settings is None, "all networks have the same settings"
    success = predict.train(implicit, "statnn", tmp_path / "2", score="success", **options)
    assert success.accuracy is None and success.tau.shape == (1,)


def test_signs_mean_nothing_where_the_recipe_says_so(implicit, tmp_path):
    options = {"seeds": 1, "show_progress": False}
    training = Training(epochs=1, batch_size=16)
    report = predict.train(implicit, "statnn", tmp_path, training=training, **options)
    assert report.training["signs"] == ("h0", "h1")
    model = unf.load_model(tmp_path / "model-0.safetensors")
    weights = implicit.weights([0, 1])
    flipped = jax.vmap(lambda x: implicit.space.flip(x, {"h0": -jnp.ones(3)}))(weights)
    np.testing.assert_allclose(model.predict(flipped), model.predict(weights), rtol=1e-5)
    training = Training(epochs=1, batch_size=16, signs=("in",))
    with pytest.raises(PredictError, match="signs: 'in' is not a permutation of this space"):
        predict.train(implicit, "statnn", tmp_path / "2", training=training, **options)


def test_predictors_that_run_networks_are_applied_again(implicit, tmp_path):
    training = Training(epochs=2, batch_size=16, augment=True)
    options = {"training": training, "seeds": 2, "show_progress": False}
    report = predict.train(implicit, "probe", tmp_path, **options)
    found = predict.apply(tmp_path, implicit)
    assert len(found.rows) == 200 and set(found.predicted) <= set(map(str, range(10)))
    alone = predict.apply(tmp_path / "model-1.safetensors", implicit)
    rows = {row: i for i, row in enumerate(alone.rows)}
    places = [rows[row] for row in report.tested]
    np.testing.assert_array_equal(alone.predicted[places].astype(int), report.predicted[1])
    (tmp_path / "apart").mkdir()
    copied = shutil.copy(tmp_path / "model-1.safetensors", tmp_path / "apart")
    with pytest.raises(PredictError, match=r"it runs networks, and only result.json beside it"):
        predict.apply(copied, implicit)
    (tmp_path / "model-1.safetensors").write_bytes(b"damaged")
    with pytest.raises(PredictError, match="not a complete safetensors file"):
        predict.apply(tmp_path / "model-1.safetensors", implicit)


def test_mistakes(tmp_path):
    zoo, _ = make_zoo()
    with pytest.raises(PredictError, match=r"no score 'rate'; expected one of \['loss', 'kind'"):
        predict.train(zoo, "statnn", tmp_path, score="rate")
    weights, unknown = zoo.weights(), np.where(np.arange(150) == 7, np.nan, 1.0)
    odd = Zoo.from_arrays(weights, {"loss": np.ones(150)}, SPACE, settings={"label": unknown})
    with pytest.raises(PredictError, match="label of network 7 is nan; expected the number"):
        predict.train(odd, "statnn", tmp_path)
    with pytest.raises(PredictError, match=r"nothing says how to run .* pass network="):
        predict.train(zoo, "probe", tmp_path, show_progress=False)
    with pytest.raises(
        PredictError, match=r"needs a zoo of implicit networks, .*; this one is imported"
    ):
        options = {"training": Training(augment=True), "show_progress": False}
        predict.train(zoo, "statnn", tmp_path, **options)


def test_the_command(implicit, tmp_path, capsys):
    out = str(tmp_path / "out")
    command = ["predict", "train", "--zoo", str(implicit.path), "--method", "statnn"]
    main([*command, "--seeds", "1", "--epochs", "1", "--out", out, "--quiet", "--json"])
    assert 0 <= json.loads(capsys.readouterr().out)["accuracy_mean"] <= 1
    main(["predict", "apply", "--checkpoint", out, "--zoo", str(implicit.path)])
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert len(rows) == 200 and {float(row["measured"]) for row in rows} == set(range(10))
    main(["report", out])
    assert "accuracy" in (tmp_path / "out" / "report.html").read_text()


def test_words_with_commas_are_one_cell(monkeypatch, tmp_path, capsys):
    words = np.array(["nanadam", "sgd,m"])
    found = Predictions(np.arange(2), words, np.array(["", "sgd,m"]), np.array(["", "test"]))
    monkeypatch.setattr(predict, "apply", lambda *_, **options: found)
    make_zoo()[0].save(tmp_path / "zoo")
    main(["predict", "apply", "--checkpoint", "any", "--zoo", str(tmp_path / "zoo")])
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["predicted"] for row in rows] == ["nanadam", "sgd,m"]
    assert [row["measured"] for row in rows] == ["", "sgd,m"]


def test_unf_tells_coordinates_apart_and_no_other_fixed_axes(implicit):
    """Exchanging the rows of the first kernel mirrors the image at its diagonal."""
    weights = jax.tree.map(lambda x: jnp.asarray(x[0])[..., None], implicit.weights([0]))
    mirrored = {**weights, "layer0": {**weights["layer0"]}}
    mirrored["layer0"]["kernel"] = weights["layer0"]["kernel"][::-1]
    problem = problem_of(implicit, "unf", 10)
    for given, differ in ((problem, True), (problem._replace(keeps_fixed=False), False)):
        model = predict.METHODS["unf"].make(given, jax.random.key(0))
        found = model(weights), model(mirrored)
        assert np.allclose(*found, rtol=1e-4, atol=1e-5) != differ


@pytest.mark.parametrize(("epochs", "peak"), [(2, 20), (20, 100)])
def test_warm_up_takes_an_epoch_or_a_tenth_of_the_training(epochs, peak):
    """With constant gradients, Adam's steps are the learning rate."""
    optimizer = make_optimizer(Training(epochs=epochs, schedule="cosine"), 100)
    w = jnp.ones(())

    def step(state, _):
        update, state = optimizer.update(jnp.ones(()), state, w)
        return state, -update

    rates = jax.lax.scan(step, optimizer.init(w), length=100 * epochs)[1]
    assert np.argmax(rates) == peak


def test_augmentation_moves_the_image_and_keeps_its_values():
    """The values are those at other places, by an affine map."""
    task = ImplicitImage("digits", hidden=5)
    params = task.init(key=jax.random.key(0))
    places = jax.random.uniform(jax.random.key(1), (40, 2), jnp.float32, -1, 1)
    moved = task.augment(params, jax.random.key(2))
    kernels = [np.asarray(p["layer0"]["kernel"]) for p in (params, moved)]
    turn = np.linalg.lstsq(kernels[0].T, kernels[1].T, rcond=None)[0].T
    np.testing.assert_allclose(turn @ kernels[0], kernels[1], atol=1e-5)
    assert 1e-3 < np.abs(turn - np.eye(2)).max() < 0.5

    def distance(shift):
        values = task.values(params, places @ turn.astype(np.float32) + shift[None])
        return jnp.mean((values - task.values(moved, places)) ** 2)

    line = np.linspace(-0.15, 0.15, 61, dtype=np.float32)
    found = jax.vmap(distance)(np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2))
    typical = float(jnp.var(task.values(moved, places)))
    assert np.min(found) < 0.05 * typical, "some shift explains all values"


def test_things_are_mirrored_and_digits_are_not(monkeypatch):
    monkeypatch.setattr("unf.lab.tasks._implicit._MOVES", (0.0, 0.0, 0.0))
    images = {}
    for mirrored in (("digits",), ()):
        monkeypatch.setattr("unf.lab.tasks._implicit._MIRRORED", mirrored)
        task = ImplicitImage("digits", hidden=5)
        params = task.init(key=jax.random.key(0))
        keys = jax.random.split(jax.random.key(1), 20)
        moved = jax.vmap(lambda key, task=task, w=params: task.draw(task.augment(w, key)))(keys)
        image = np.asarray(task.draw(params))
        images[mirrored] = [
            [np.allclose(each, wanted, atol=1e-5) for each in moved]
            for wanted in (image, image[:, ::-1])
        ]
    same, turned = images[("digits",)]
    assert any(same) and any(turned) and all(a != b for a, b in zip(same, turned, strict=True))
    assert all(images[()][0])


def test_probes_start_inside_the_image():
    task = ImplicitImage("digits", hidden=3)
    problem = predict._methods.Problem(task.space, 10, task.network)
    probe = predict.METHODS["probe"].make(problem, jax.random.key(0))
    assert np.mean(np.abs(probe.inputs).max(axis=1) < 1) > 0.95


def test_probes_of_networks_that_add_start_from_problems():
    task = Addition(digits=2, hidden=3)
    problem = predict._methods.Problem(task.space, 1, task.network._replace(num_probes=20))
    probe = predict.METHODS["probe"].make(problem, jax.random.key(0))
    assert jax.nn.softmax(probe.inputs).max(axis=-1).min() > 0.99
    for symbols in np.asarray(probe.inputs.argmax(axis=-1)):
        a, b = as_text(symbols).split("+")
        assert 0 <= int(a) < 100 and 0 <= int(b) < 100


def test_mixtures_of_single_symbols_are_symbols():
    task = Addition(digits=2, hidden=6)
    params = task.init(key=jax.random.key(0))
    problems = task.problems(4, key=jax.random.key(1))
    fn, kinds = task.network.fn, task.network.input_shape[1]
    certain = 100 * jax.nn.one_hot(problems.questions, kinds, dtype=jnp.float32)
    logarithms, said = jnp.split(fn(params, certain), 2, axis=-1)
    expected = jax.nn.log_softmax(task.logits(params, problems)[0])
    np.testing.assert_allclose(logarithms[:, 0], expected, atol=1e-5)
    sure = jax.tree.map(lambda leaf: 100 * leaf, params["output"])
    said = jnp.split(fn({**params, "output": sure}, certain), 2, axis=-1)[1]
    answers = task.answer({**params, "output": sure}, problems.questions)
    share = said / said.sum(-1, keepdims=True)
    np.testing.assert_allclose(share, jax.nn.one_hot(answers, kinds), atol=1e-3)
    unf.testing.assert_invariant(
        lambda x: fn(jax.tree.map(lambda leaf: leaf[..., 0], x), certain).reshape(-1),
        task.space, key=jax.random.key(2), tolerance=1e-4,
    )  # fmt: skip
