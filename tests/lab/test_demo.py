"""The demo does its job, on a tiny scale."""

import importlib.util

import numpy as np
import pytest
from scipy.stats import kendalltau

from unf.lab import demo
from unf.lab.cli import main


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    config = demo.Config(networks=30, width=4, steps=20, epochs=2, repeats=2, out=out)
    return config, demo.run(config)


def test_scores_are_finite_and_reproduce(tiny):
    _, result = tiny
    assert set(result.scores) == {"UNF", "StatNN"}
    for score in result.scores.values():
        assert score.tau.shape == score.r2.shape == (2,)
        assert np.all(np.abs(score.tau) <= 1) and np.all(np.isfinite(score.r2))
        for predicted, tau in zip(score.predictions, score.tau, strict=True):
            assert np.isclose(tau, kendalltau(predicted, result.accuracies[-6:]).statistic)


def test_predictions_are_invariant(tiny):
    assert tiny[1].invariance < 1e-6


def test_the_picture_is_written(tiny):
    config, result = tiny
    assert result.picture == config.out / "demo.png"
    data = result.picture.read_bytes()
    assert data.startswith(b"\x89PNG") and len(data) > 10_000


def test_too_few_networks_are_refused():
    with pytest.raises(ValueError, match="networks is 4; expected at least 20"):
        demo.run(demo.Config(networks=4))


def test_missing_extra_names_the_remedy(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["demo"]) == 1
    assert "pip install 'universal-neural-functionals[lab]'" in capsys.readouterr().err


def test_invalid_numbers(capsys):
    assert main(["demo", "--networks", "3"]) == 1
    assert "networks is 3; expected at least 20" in capsys.readouterr().err
