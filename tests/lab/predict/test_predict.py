"""Predictors of success from weights: trained, tested, saved, applied."""

import dataclasses
import json
import shutil
import sys

import jax
import numpy as np
import pytest
import zarr
from scipy.stats import kendalltau

from tests.lab.zoos.tiny import RECIPE, build_tiny
from unf.lab import predict, report
from unf.lab.predict import _batches
from unf.lab.predict._settings import trees_tau
from unf.models import load_model
from unf.zoo import Zoo, ZooError

SIZES = (20, 6, 6)
TRAINING = predict.Training(epochs=2, batch_size=5)


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    """Untrained networks; what they are said to achieve depends on their weights."""
    recipe = dataclasses.replace(RECIPE, steps=0)
    zoo = build_tiny(tmp_path_factory.mktemp("zoo") / "zoo", recipe, models=32, chunk=16)
    kernel = zoo.weights()["output"]["kernel"]
    noise = np.random.default_rng(0).normal(size=(32, 2))
    rates = 1 / (1 + np.exp(-4 * kernel.mean((1, 2))[:, None] - 0.1 * noise))
    zarr.open_group(zoo.path, mode="r+")["success"][:] = rates.astype(np.float32)
    return Zoo(zoo.path)


@pytest.fixture(scope="module")
def trained(zoo, tmp_path_factory):
    """A report and its folder, of the quickest method."""
    out = tmp_path_factory.mktemp("statnn")
    return out, _train(zoo, "statnn", out)


def _train(zoo, method, out, **options):
    return predict.train(
        zoo,
        method,
        out,
        **{"training": TRAINING, "seeds": 2, "sizes": SIZES, "show_progress": False, **options},
    )


def test_scores_are_those_of_the_predictions(zoo, trained):
    _, report = trained
    true = zoo.success[report.tested, 0]
    for predicted, tau in zip(report.predicted, report.tau, strict=True):
        assert np.isclose(tau, np.nan_to_num(kendalltau(predicted, true).statistic))
    again = kendalltau(true, zoo.success[report.tested, 1]).statistic
    assert np.isclose(report.cap, np.nan_to_num(again))
    assert -1 <= report.settings <= 1
    assert report.valid_tau.shape == report.losses.shape == (2, 2)


def test_settings_alone_predict_what_depends_on_them():
    rng = np.random.default_rng(0)
    settings = rng.normal(size=(400, 2))
    split = predict.Split(*np.split(rng.permutation(400), [300, 350]))
    assert trees_tau(settings, np.tanh(settings[:, 0]), split) > 0.8
    assert abs(trees_tau(settings, rng.normal(size=400), split)) < 0.3


def test_clipped_gradients_train_otherwise(zoo, tmp_path):
    """With clipping at next to nothing Adam's first steps are the same, later ones are not."""
    runs = [
        predict.train(
            zoo, "statnn", tmp_path / str(clip), seeds=1, show_progress=False,
            training=predict.Training(epochs=2, batch_size=5, clip=clip),
        )
        for clip in (0.0, 1e-3, 1e6)
    ]  # fmt: skip
    np.testing.assert_allclose(runs[0].losses, runs[2].losses, rtol=1e-5)
    assert not np.allclose(runs[0].losses[-1], runs[1].losses[-1], rtol=1e-5)


@pytest.mark.parametrize("method", list(predict.METHODS))
def test_predictions_do_not_depend_on_the_order_of_neurons(zoo, method):
    """To the rounding of float32, with the weights of a zoo."""
    make = predict.METHODS[method].make
    models = jax.tree.map(
        lambda x: x[None] if isinstance(x, jax.Array) else x, make(zoo.space, jax.random.key(0))
    )
    weights = zoo.weights(zoo.trained[:8])
    assert predict.invariance_gap(models, zoo.space, weights, seed=0) < 1e-6
    if method != "deepset" and method != "statnn":  # those ignore any order within a tensor
        moved = {**weights, "output": jax.tree.map(lambda x: x[:, ::-1], weights["output"])}
        change = predict.predict(models, weights) - predict.predict(models, moved)
        assert np.abs(change).max() > 1e-6, "one tensor moved alone is seen"


def test_the_kept_epoch_is_the_best_on_validation(zoo, trained):
    out, report = trained
    split = predict.split_models(zoo, SIZES)
    valid = predict.load_examples(zoo, split.valid)
    for i in range(2):
        model = load_model(out / f"model-{i}.safetensors")
        stacked = jax.tree.map(lambda x: x[None] if isinstance(x, jax.Array) else x, model)
        row = predict.predict(stacked, valid.weights)[0]
        tau = np.nan_to_num(kendalltau(row, valid.success).statistic)
        assert np.isclose(tau, report.valid_tau[:, i].max(), atol=1e-6)


def test_seeds_run_together_are_those_run_alone(zoo, trained, tmp_path):
    _, report = trained
    alone = _train(zoo, "statnn", tmp_path, seeds=1, seed=1)
    np.testing.assert_allclose(alone.predicted[0], report.predicted[1], rtol=1e-4)


def test_streaming_from_the_host_gives_the_same(zoo, trained, tmp_path, monkeypatch):
    _, report = trained
    monkeypatch.setattr(_batches, "_DEVICE_SHARE", 0.0)
    monkeypatch.setattr(_batches, "_SLAB_BYTES", 1)
    streamed = _train(zoo, "statnn", tmp_path)
    np.testing.assert_allclose(streamed.predicted, report.predicted, rtol=1e-5)


def test_reports_survive_json(trained):
    out, report = trained
    again = predict.Report.from_json((out / "result.json").read_text())
    assert str(again) == str(report)
    for field in dataclasses.fields(report):
        np.testing.assert_equal(getattr(again, field.name), getattr(report, field.name))
    record = json.loads((out / "result.json").read_text())
    assert record["device"] and record["date"] and record["jax"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"method": 3}'])
def test_other_files_are_not_reports(text):
    with pytest.raises(predict.PredictError, match="not the result of an experiment"):
        predict.Report.from_json(text)


def test_pictures(trained, tmp_path):
    _, report = trained
    predict.draw_predictions([report, report], tmp_path / "predictions.png")
    predict.draw_curves([report], tmp_path / "curves.png")
    for name in ("predictions", "curves"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_predictor_is_applied_to_a_zoo(zoo, trained):
    out, report = trained
    rows, together = predict.apply(out, zoo)
    each = [predict.apply(out / f"model-{i}.safetensors", zoo)[1] for i in range(2)]
    np.testing.assert_allclose(together, np.mean(each, axis=0))
    np.testing.assert_array_equal(rows, zoo.trained)
    np.testing.assert_allclose(each[0][report.tested], report.predicted[0], rtol=1e-5)


def test_predictors_of_other_weights_are_refused(trained, tmp_path):
    other = build_tiny(tmp_path / "zoo", dataclasses.replace(RECIPE, hidden=2, steps=0))
    with pytest.raises(
        predict.PredictError, match=r"decoder/hn/bias has shape \(3,\) there and \(2,\)"
    ):
        predict.apply(trained[0], other)


def test_damaged_and_missing_predictors(zoo, trained, tmp_path):
    with pytest.raises(predict.PredictError, match="no predictor here"):
        predict.apply(tmp_path, zoo)
    torn = tmp_path / "model-0.safetensors"
    torn.write_bytes((trained[0] / "model-0.safetensors").read_bytes()[:1000])
    with pytest.raises(predict.PredictError, match="not a complete safetensors file"):
        predict.apply(torn, zoo)


def test_models_are_divided_without_overlap(zoo):
    split = predict.split_models(zoo)
    assert [len(part) for part in split] == [26, 3, 3]
    assert sorted(np.concatenate(split)) == list(range(32))
    assert np.array_equal(split.test, predict.split_models(zoo).test)
    with pytest.raises(ZooError, match=r"32 usable models cannot be divided into \(30, 6, 6\)"):
        predict.split_models(zoo, (30, 6, 6))
    with pytest.raises(ZooError, match=r"cannot be divided into \(8, 3\)"):
        predict.split_models(zoo, (8, 3))


def test_predictors_that_diverge_are_not_reported(zoo, tmp_path):
    wild = predict.Training(epochs=1, batch_size=5, learning_rate=float("inf"))
    with pytest.raises(predict.PredictError, match=r"seeds \[0, 1\] diverged in every epoch"):
        _train(zoo, "statnn", tmp_path, training=wild)


def test_a_training_and_a_stopped_one_can_be_reported(trained, tmp_path):
    assert f"{trained[1].tau[0]:.4f}" in report.render(trained[0])
    shutil.copytree(trained[0], tmp_path / "out")
    (tmp_path / "out" / "result.json").unlink()
    assert "StatNN is trained for 2 of 2 epochs" in report.render(tmp_path / "out")


def test_results_of_an_earlier_run_are_removed(zoo, trained, tmp_path):
    shutil.copytree(trained[0], tmp_path / "out")
    with pytest.raises(predict.PredictError, match="there is a predictor's training already"):
        _train(zoo, "statnn", tmp_path / "out", seeds=1)
    _train(zoo, "statnn", tmp_path / "out", seeds=1, overwrite=True)
    assert sorted(path.name for path in (tmp_path / "out").glob("*")) == [
        "checkpoints",
        "model-0.safetensors",
        "result.json",
    ]


@pytest.mark.parametrize("options", [{"seeds": 0}, {"seed": -1}])
def test_seeds_that_do_not_serve(zoo, tmp_path, options):
    with pytest.raises(predict.PredictError, match="expected at least 1 and 0"):
        _train(zoo, "statnn", tmp_path, **options)


def test_diverged_models_are_left_out_unless_asked_for(zoo, tmp_path):
    shutil.copytree(zoo.path, tmp_path / "zoo")
    group = zarr.open_group(tmp_path / "zoo", mode="r+")
    group["status"][3] = 2
    group["weights.output.bias"][3] = np.nan
    marked = Zoo(tmp_path / "zoo")
    assert 3 not in np.concatenate(predict.split_models(marked, (20, 5, 5)))
    split = predict.split_models(marked, (22, 5, 5), diverged=True)
    assert 3 in np.concatenate(split)
    examples = predict.load_examples(marked, np.array([3, 4]))
    assert np.isfinite(examples.weights["output"]["bias"]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs is 0 and batch_size 10; expected at least 1"),
        ({"schedule": "linear"}, "schedule is 'linear'; expected 'constant' or 'cosine'"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
    ],
)
def test_training_mistakes(options, message):
    with pytest.raises(ValueError, match=message):
        predict.Training(**options)


def test_unknown_method(zoo, tmp_path):
    with pytest.raises(predict.PredictError, match="unknown method 'cnn'; expected one of"):
        predict.train(zoo, "cnn", tmp_path)


def test_a_missing_extra_is_said_before_anything_is_trained(zoo, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    message = r"scikit-learn.* is missing; run: pip install .*\[zoo\]"
    with pytest.raises(predict.PredictError, match=message):
        predict.train(zoo, "statnn", tmp_path / "out", show_progress=False)
    assert not (tmp_path / "out").exists()
