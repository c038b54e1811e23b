"""Experiments with predictors: reported, resumed, saved, applied."""

import dataclasses
import json
import shutil
import sys

import jax
import numpy as np
import pytest
from scipy.stats import kendalltau

from tests.lab.predict.memory import SIZES, TRAINING, MemoryZoo, train
from unf._persistence import Checkpoints
from unf.lab import predict
from unf.lab.predict._evaluate import settings_predictions
from unf.lab.predict._examples import load_examples
from unf.models import load_model
from unf.zoo import ZooError
from unf.zoo._zoo import Split


def test_scores_are_those_of_the_predictions(zoo, trained):
    _, report = trained
    true = zoo.scores["success"][report.tested, 0].astype(np.float32)
    for predicted, tau in zip(report.predicted, report.tau, strict=True):
        assert np.isclose(tau, np.nan_to_num(kendalltau(predicted, true).statistic))
    again = kendalltau(true, zoo.scores["success"][report.tested, 1]).statistic
    assert np.isclose(report.retest, np.nan_to_num(again))
    assert -1 <= report.settings <= 1
    assert report.valid_scores.shape == report.losses.shape == (2, 2)


def test_settings_alone_predict_what_depends_on_them():
    zoo = MemoryZoo(models=400)
    split = Split(*np.split(np.arange(400), [300, 350]))

    def tau() -> float:
        predicted = settings_predictions(zoo, split.train, "success")
        return kendalltau(predicted[split.test], zoo.scores["success"][split.test, 0]).statistic

    assert abs(tau()) < 0.3
    zoo.scores = {"success": np.tanh(zoo.settings["learning_rate"])[:, None] * np.ones(2)}
    assert tau() > 0.8


def test_small_tests_say_that_they_decide_nothing(trained):
    _, report = trained
    assert report.error_over_networks > 0.05
    assert "6 test networks are too few to tell apart τ that differ by less than" in str(report)
    true = np.linspace(0, 1, 200)
    exact = dataclasses.replace(
        report, true=true, tested=np.arange(200), predicted=np.stack([true, true])
    )
    assert exact.error_over_networks < 1e-6 and "too few" not in str(exact)


def test_reports_survive_json(trained):
    out, report = trained
    text = (out / "result.json").read_text()
    again = predict.Report.from_json(text)
    assert str(again) == str(report)
    for field in dataclasses.fields(report):
        np.testing.assert_equal(getattr(again, field.name), getattr(report, field.name))
    record = json.loads(text)
    assert record["device"] and record["date"] and record["jax"]
    assert len(text.splitlines()) == len(record) + 2


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"method": 3}'])
def test_other_files_are_not_reports(text):
    with pytest.raises(predict.PredictError, match="not the result of an experiment"):
        predict.Report.from_json(text)


def test_a_predictor_is_applied_to_a_zoo(zoo, trained):
    out, report = trained
    found = predict.apply(out, zoo)
    each = [predict.apply(out / f"model-{i}.safetensors", zoo).predicted for i in range(2)]
    np.testing.assert_allclose(found.predicted, np.mean(each, axis=0))
    np.testing.assert_array_equal(found.rows, zoo.trained)
    np.testing.assert_allclose(each[0][report.tested], report.predicted[0], rtol=1e-5)


def test_predictions_say_what_each_network_was_used_for(zoo, trained, tmp_path):
    out, _ = trained
    found = predict.apply(out, zoo)
    for name, rows in zoo.split(SIZES)._asdict().items():
        np.testing.assert_array_equal(found.rows[found.split == name], np.sort(rows))
    assert not predict.apply(out, MemoryZoo(models=40)).split.astype(bool).any()
    shutil.copytree(out, tmp_path / "old")
    record = json.loads((out / "result.json").read_text())
    old = {k: v for k, v in record.items() if k not in ("trained", "validated")}
    (tmp_path / "old" / "result.json").write_text(json.dumps(old))
    assert set(predict.apply(tmp_path / "old", zoo).split) == {"", "test"}


def test_predictors_of_other_weights_are_refused(trained):
    with pytest.raises(predict.PredictError, match=r"has shape \(4,\) there and \(3,\) in the zoo"):
        predict.apply(trained[0], MemoryZoo(width=3))


def test_damaged_and_missing_predictors(zoo, trained, tmp_path):
    with pytest.raises(predict.PredictError, match="no predictor here"):
        predict.apply(tmp_path, zoo)
    torn = tmp_path / "model-0.safetensors"
    torn.write_bytes((trained[0] / "model-0.safetensors").read_bytes()[:1000])
    with pytest.raises(predict.PredictError, match=r"model-0\.safetensors"):
        predict.apply(torn, zoo)


def test_scores_of_any_size(zoo, tmp_path):
    """Squared errors, and predictions in the score's own units."""
    other = MemoryZoo()
    other.scores = {"perplexity": 1000 + 50 * zoo.scores["success"][:, :1]}
    report = train(other, tmp_path, seeds=1)
    assert report.score == "perplexity" and report.retest is None
    assert (np.abs(report.predicted - 1025) < 200).all()
    np.testing.assert_allclose(
        predict.apply(tmp_path, other).predicted[report.tested], report.predicted.mean(0), rtol=1e-5
    )
    with pytest.raises(predict.PredictError, match=r"no score 'loss'; expected one of \['perp"):
        train(other, tmp_path / "other", score="loss")


def test_networks_are_split_without_overlap(zoo):
    split = zoo.split(None)
    assert [len(part) for part in split] == [26, 3, 3]
    assert sorted(np.concatenate(split)) == list(range(32))
    with pytest.raises(ZooError, match=r"32 usable models cannot be divided into \(30, 6, 6\)"):
        zoo.split((30, 6, 6))
    with pytest.raises(ZooError, match=r"cannot be divided into \(8, 3\) .* smaller sizes="):
        zoo.split((8, 3))


def test_diverged_networks_are_left_out_unless_asked_for():
    zoo = MemoryZoo()
    zoo.status[3] = 2
    jax.tree.leaves(zoo.stored)[0][3] = np.nan
    assert 3 not in np.concatenate(zoo.split((20, 5, 5)))
    assert 3 in np.concatenate(zoo.split((22, 5, 5), diverged=True))
    weights, _ = load_examples(zoo, np.array([3, 4]))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(weights))


class Stop(Exception):
    pass


@pytest.mark.nightly
def test_stopped_and_resumed_is_the_same(zoo, trained, tmp_path, monkeypatch):
    folder, save = tmp_path / "part", Checkpoints.save

    def stopping(self, *arguments):
        save(self, *arguments)
        raise Stop

    with monkeypatch.context() as patched, pytest.raises(Stop, match=r"^$"):
        patched.setattr(Checkpoints, "save", stopping)
        train(zoo, folder)
    with pytest.raises(
        predict.PredictError, match=r"has training\.epochs = 2, not 9; pass the same"
    ):
        train(zoo, folder, resume=True, training=dataclasses.replace(TRAINING, epochs=9))
    again = train(zoo, folder, resume=True)
    for name in ("losses", "valid_scores", "predicted"):
        np.testing.assert_array_equal(getattr(trained[1], name), getattr(again, name))
    for i in range(2):
        models = [load_model(out / f"model-{i}.safetensors") for out in (folder, trained[0])]
        for ours, theirs in zip(*map(jax.tree.leaves, models), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_finished_experiment_is_not_repeated(zoo, trained, tmp_path):
    out, report = trained
    shutil.copytree(out, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "checkpoints")
    for folder in (out, tmp_path / "copy"):
        assert train(zoo, folder, resume=True).seconds == report.seconds
        with pytest.raises(predict.PredictError, match=r"has seeds = \[0, 1\], not \[0\]"):
            train(zoo, folder, resume=True, seeds=1)


def test_results_are_replaced_only_on_request(zoo, trained, tmp_path):
    shutil.copytree(trained[0], tmp_path / "out")
    with pytest.raises(predict.PredictError, match=r"already holds results; .*overwrite=True"):
        train(zoo, tmp_path / "out", seeds=1)
    train(zoo, tmp_path / "out", seeds=1, overwrite=True)
    assert sorted(path.name for path in (tmp_path / "out").glob("*")) == [
        "checkpoints",
        "model-0.safetensors",
        "result.json",
    ]


@pytest.mark.parametrize("options", [{"seeds": 0}, {"seed": -1}])
def test_invalid_seeds(zoo, tmp_path, options):
    with pytest.raises(predict.PredictError, match="expected at least 1 and 0"):
        train(zoo, tmp_path, **options)


def test_unknown_method(zoo, tmp_path):
    with pytest.raises(predict.PredictError, match="unknown method 'cnn'; expected one of"):
        train(zoo, tmp_path, "cnn")


def test_a_missing_extra_is_reported_before_training(zoo, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    message = r"scikit-learn is missing; run: pip install .*\[lab\]"
    with pytest.raises(predict.PredictError, match=message):
        train(zoo, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
