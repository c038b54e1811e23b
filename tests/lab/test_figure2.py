"""Figure 2 in miniature, from nothing to the picture."""

import dataclasses
import json

import pytest

from unf.lab import figure2
from unf.lab.lopt import MetaError, MetaTraining, tune_meta_training
from unf.lab.lopt._options import make_task

TINY = MetaTraining(steps=2, pairs=2, window=2, horizon=4)


@pytest.mark.nightly
def test_figure_2_from_nothing(tmp_path, monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)
    monkeypatch.setitem(figure2.KINDS, "mlp", ("sgdm",))
    said = []
    run = {"tasks": ("mlp",), "options": TINY, "seeds": 2, "networks": 2, "announce": said.append}
    result = figure2.run(tmp_path, **run, show_progress=False)
    assert (tmp_path / "figure2.png").exists() and "digits" in said[0]
    names = {"sgdm/seed-0", "sgdm/seed-1", "adam", "sgdm-tuned"}
    assert set(result.comparisons[0].curves) == names
    assert set(result.comparisons[0].grouped().curves) == {"sgdm", "adam", "sgdm-tuned"}
    assert result.comparisons[0].notes["sgdm/seed-0"]["meta-steps"] == TINY.steps
    assert "2 networks, or over up to 2 meta-trainings with 2 networks each" in str(result)
    files = [tmp_path / "mlp" / "sgdm" / "seed-1" / "metrics.csv", tmp_path / "mlp.json"]
    before = [(file.read_bytes(), file.stat().st_mtime) for file in files]
    figure2.run(tmp_path, **run, show_progress=False)
    assert [(file.read_bytes(), file.stat().st_mtime) for file in files] == before
    figure2.run(tmp_path, **(run | {"networks": 3}), show_progress=False)
    assert json.loads(files[1].read_text())["seeds"] == [0, 1, 2]
    with pytest.raises(ValueError, match=r"tasks \['gan'\]"):
        figure2.run(tmp_path, tasks=("gan",))
    with pytest.raises(MetaError, match=r"trials.json: not the trials .* unf lopt tune"):
        figure2.run(tmp_path, **run, tuned=tmp_path / "nowhere", show_progress=False)


@pytest.mark.nightly
def test_tuned_settings_are_used(tmp_path, monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)
    monkeypatch.setitem(figure2.KINDS, "mlp", ("sgdm",))
    task = make_task("mlp")[0]
    place, grid = tmp_path / "tune" / "mlp-sgdm", {"learning_rate": (0.02,)}
    trials = dataclasses.replace(TINY, horizon=TINY.horizon // 2)
    tune_meta_training(task, "sgdm", place, trials, grid=grid, show_progress=False)
    run = {"options": TINY, "tuned": tmp_path / "tune", "steps": {"mlp": 3}}
    figure2.run(tmp_path / "out", tasks=("mlp",), **run, seeds=1, networks=1, show_progress=False)
    config = json.loads((tmp_path / "out" / "mlp" / "sgdm" / "config.json").read_text())
    assert (config["learning_rate"], config["steps"], config["pairs"]) == (0.02, 3, 2)
    assert (config["schedule"], config["horizon"]) == ("cosine", TINY.horizon)
