"""Predictors of zoos with several architectures."""

import dataclasses

import jax
import numpy as np
import pytest
from scipy.stats import kendalltau

from tests.lab.predict.memory import TRAINING, MemoryZoo
from unf.lab import predict
from unf.testing import spaces
from unf.zoo import MixedZoo, Zoo

OPTIONS = {"training": TRAINING, "seeds": 2, "sizes": (36, 10, 10), "show_progress": False}
pytestmark = pytest.mark.nightly


def make(*widths, models=28):
    """Networks whose accuracy depends on their mean weight and on a setting."""
    space = spaces.mlp(2, *widths, 1)
    rng = np.random.default_rng(widths)
    leaves = [rng.normal(size=(models, *x.shape)).astype(np.float32) for x in space.leaves]
    signal = sum(x.reshape(models, -1).mean(1) for x in leaves)
    scores = 1 / (1 + np.exp(-signal[:, None] - 0.1 * rng.normal(size=(models, 2))))
    settings = {"rate": signal + rng.normal(size=models)}
    return Zoo.from_arrays(space.unflatten(leaves), {"accuracy": scores}, space, settings=settings)


@pytest.fixture(scope="module")
def zoo():
    return MixedZoo.join(
        {"narrow": make(3), "wide": make(5), "deep": make(3, 4, models=20)}, held_out=["deep"]
    )


@pytest.fixture(scope="module")
def trained(zoo, tmp_path_factory):
    out = tmp_path_factory.mktemp("statnn")
    return out, predict.train(zoo, "statnn", out, **OPTIONS)


def test_held_out_architectures_are_tested_apart(zoo, trained):
    _, report = trained
    assert report.split == {"train": 36, "valid": 10, "test": 10, "held_out": 20}
    assert set(zoo.architecture[report.tested]) == {"narrow", "wide"}
    held = report.held_out
    assert set(zoo.architecture[held["tested"]]) == {"deep"}
    for part in (vars(report), held):
        true = zoo.scores["accuracy"][part["tested"], 0]
        np.testing.assert_allclose(part["true"], true)
        taus = [np.nan_to_num(kendalltau(row, true).statistic) for row in part["predicted"]]
        np.testing.assert_allclose(part["tau"], taus)
        assert -1 <= part["settings"] <= 1 and 0 < part["retest"] <= 1
    assert report.on_held_out.tau is held["tau"] and report.invariance < 1e-5
    assert "held-out architectures: τ" in str(report)
    each = report.architectures
    assert {name: x["held_out"] for name, x in each.items()} == {
        "narrow": False, "wide": False, "deep": True,
    }  # fmt: skip
    assert sum(x["networks"] for x in each.values()) == 30
    np.testing.assert_allclose(each["deep"]["tau"], held["tau"])


def test_reports_survive_json_and_runs_are_resumed(zoo, trained):
    out, report = trained
    again = predict.train(zoo, "statnn", out, resume=True, **OPTIONS)
    assert str(again) == str(report)
    for name in ("predicted", "tau", "tested"):
        np.testing.assert_array_equal(again.held_out[name], report.held_out[name])
    other = MixedZoo.join(zoo.zoos)
    with pytest.raises(predict.PredictError, match=r"the job there has zoo\.held_out = "):
        predict.train(other, "statnn", out, resume=True, **OPTIONS)


def test_predictors_are_applied_to_every_zoo(zoo, trained):
    out, report = trained
    found = predict.apply(out, zoo)
    assert len(found.rows) == 76 and (found.split == "train").sum() == 36
    assert (found.split == "test").sum() == 30
    np.testing.assert_allclose(
        found.predicted[report.tested], report.predicted.mean(axis=0), atol=1e-5
    )
    alone = predict.apply(out, zoo.zoos["deep"])
    np.testing.assert_allclose(alone.predicted, found.predicted[56:], atol=1e-5)


def test_methods_of_one_architecture_are_refused(zoo, trained, tmp_path):
    with pytest.raises(predict.PredictError, match=r"'unf' reads networks of one .* \['deepset'"):
        predict.train(zoo, "unf", tmp_path, **OPTIONS)
    alone = {**OPTIONS, "sizes": (16, 4, 4), "seeds": 1}
    predict.train(zoo.zoos["wide"], "statnn", tmp_path / "one", **alone)
    with pytest.raises(predict.PredictError, match="the predictor reads networks of one archi"):
        predict.apply(tmp_path / "one", zoo)


@pytest.mark.parametrize("method", ["tied", "deepset"])
def test_other_methods(zoo, method, tmp_path):
    report = predict.train(zoo, method, tmp_path / "mixed", **OPTIONS)
    assert np.isfinite(report.predicted).all() and report.invariance < 1e-5
    if method == "tied":
        training = dataclasses.replace(TRAINING, epochs=1)
        plain = predict.train(
            MemoryZoo(), "tied", tmp_path / "one", training=training, seeds=1, sizes=(20, 6, 6),
            show_progress=False,
        )  # fmt: skip
        assert plain.held_out is None and plain.predicted.shape == (1, 6)
        assert jax.tree.leaves(predict.apply(tmp_path / "one", zoo).predicted)[0].shape == (76,)
