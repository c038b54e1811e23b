"""The comparison on unseen networks: verdicts, what is kept, and the whole command in small."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from unf.lab import generalize
from unf.lab.cli import main
from unf.lab.generalize import SMALL, Margin, Result
from unf.lab.lopt import Comparison, Curves
from unf.optim import init_theta, save

BASELINES = ["adam-default", "adam", "sgdm-tuned", "muon"]


def comparison(task, **losses):
    """Flat curves: for each optimizer, the loss of each network."""
    curves = {}
    for name, values in losses.items():
        flat = np.repeat(np.array(values, float)[:, None], 10, axis=1)
        curves[name.replace("_", "-")] = Curves(flat, flat)
    seeds = list(range(len(values)))
    return Comparison(task, "digits", 10, seeds, curves, {name: {} for name in curves})


def test_margins_are_paired():
    """The networks differ much, and the optimizers little: the same difference on each."""
    ours = np.array([1.0, 2.0, 3.0])
    margin = Margin.between(ours, ours + np.array([0.1, 0.11, 0.12]))
    assert margin.mean == pytest.approx(0.11) and margin.error == pytest.approx(0.01 / 3**0.5)
    assert not margin.is_small
    assert Margin.between(ours, ours + np.array([0.1, -0.1, 0.01])).is_small


def test_diverging_less_often_is_being_ahead():
    whole, torn = np.array([3.0, 3.0]), np.array([0.1, np.nan])
    assert Margin.between(whole, torn).mean == np.inf
    assert Margin.between(torn, whole).mean == -np.inf
    assert not Margin.between(torn, whole).is_small
    lost = np.array([np.inf, np.nan])
    assert Margin.between(lost, lost) == (0.0, 0.0)


def test_every_cell_is_shown_and_wins_are_counted():
    one = {"learned": [1, 2, 3], "adam_default": [2, 3, 4.1], "adam": [1.1, 1.9, 3.1]}
    two = {"learned": [5, 5, 5.1], "adam_default": [4, 4, 4.2], "adam": [np.nan, 1, 1]}
    result = Result([comparison("vit", **one), comparison("gpt", **two)])
    text = str(result)
    assert "| vit on digits | **2.0000 ± 0.5774** | 3.0333 ± 0.6064 | 2.0333 ± 0.5812 |" in text
    assert "1.0000 ± 0.0000, 1 of 3 diverged" in text
    assert "|  | learned | Adam, 1e-3 | Adam, tuned |" in text
    assert "| learned |  | 1 of 2 | 2 of 2, 1 within two standard errors |" in text
    record = json.loads(result.to_json())
    assert record["cells"]["gpt"]["adam"] == {
        "mean": 1.0, "standard_error": 0.0, "networks": 3, "diverged": 1
    }  # fmt: skip
    verdict = {"ahead": 2, "within_two_standard_errors": 1, "tasks": 2}
    assert record["ahead"]["learned"]["adam"] == verdict
    assert [one["task"] for one in record["comparisons"]] == ["vit", "gpt"]


def test_several_meta_trainings_stand_for_one_optimizer():
    """Their spread decides whether a margin is small, not that of the networks."""
    losses = {
        "tied/seed-0": [1.0, 2.0], "tied/seed-1": [1.2, 2.2], "deepset/seed-0": [2.0, 3.0],
        "deepset/seed-1": [2.0, 3.4], "alone/seed-3": [1.0, 1.0], "adam": [1.9, 2.9],
    }  # fmt: skip
    torn = {**losses, "tied/seed-1": [np.nan, 2.0]}
    result = Result([comparison("vit", **losses), comparison("gpt", **torn)])
    assert list(result.groups) == ["tied", "deepset", "alone/seed-3", "adam"]
    margin, worse = result.margins("tied", "adam")
    assert margin.mean == pytest.approx(0.8) and margin.error == pytest.approx(0.1)
    assert worse.mean == -np.inf
    margin, _ = result.margins("tied", "deepset")
    assert margin.mean == pytest.approx(1.0) and margin.error == pytest.approx(0.02**0.5)
    assert result.margins("alone/seed-3", "adam")[0] == Margin.between(
        np.array([1.0, 1.0]), np.array([1.9, 2.9])
    )
    thrice = [np.array([1.0, 1.0, 1.0, 1.0, np.nan])] * 3
    assert Margin.apart(thrice, [thrice[0] + 0.5]).mean == pytest.approx(0.5)
    text = str(result)
    assert "| vit on digits | 1.6000 ± 0.1000 | 2.6000 ± 0.1000 | **1.0000 ± 0.0000** |" in text
    assert "1.7500 ± 0.2500, 1 of 4 diverged" in text and "over up to 2 meta-trainings" in text
    assert set(json.loads(result.to_json())["cells"]["vit"]) == set(losses)


@pytest.fixture
def optimizers(tmp_path):
    """Two seeds of one kind, as meta-training leaves them."""
    paths = [tmp_path / kind / "seed-0" for kind in ("a", "b")]
    for i, path in enumerate(paths):
        path.mkdir(parents=True)
        theta = init_theta("deepset", key=jax.random.key(i), hidden_channels=2)
        save(path / "optimizer.safetensors", theta, trained_steps=7)
    return [str(path) for path in paths]


def test_what_is_done_is_kept(tmp_path, optimizers, monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)
    done, trained = [], []

    def compare(task, thetas, *, seeds, notes, baselines, **_):
        done.append(task.name)
        assert all(notes[name] == {"meta-steps": 7} for name in thetas)
        names = [*thetas, *baselines]
        trained.extend(names)
        return comparison(task.name, **dict.fromkeys(names, [1.0] * len(seeds)))

    monkeypatch.setattr(generalize, "compare", compare)
    monkeypatch.setattr(generalize.plots, "optimizer_curves", lambda comparisons: None)
    monkeypatch.setattr(generalize.plots, "save", lambda drawn, path: None)

    def run(*paths, seeds=2, tasks=("vit", "gru"), setting=SMALL):
        done.clear()
        trained.clear()
        out = tmp_path / "out"
        result = generalize.run(out, paths, tasks=tasks, setting=setting, seeds=seeds)
        assert (out / "generalize.json").exists() and (out / "generalize.md").exists()
        return list(result.comparisons[0].curves)

    assert run(*optimizers) == ["a/seed-0", "b/seed-0", *BASELINES] and done == ["vit", "gru"]
    assert run(*optimizers) == ["a/seed-0", "b/seed-0", *BASELINES] and done == []
    run(*optimizers, tasks=("vit", "gpt", "gru"))
    assert done == ["gpt"]
    (tmp_path / "out" / "vit.json").write_text("{")
    run(*optimizers)
    assert done == ["vit"]
    run(*optimizers, setting=dataclasses.replace(SMALL, horizon=60))
    assert done == ["vit", "gru"]
    run(*optimizers, seeds=3)
    assert done == ["vit", "gru"]
    assert run(optimizers[0], seeds=3) == ["a/seed-0", *BASELINES] and done == []
    theta = init_theta("deepset", key=jax.random.key(9), hidden_channels=2)
    save(tmp_path / "a" / "seed-0" / "optimizer.safetensors", theta, trained_steps=7)
    file = tmp_path / "out" / "gru.json"
    earlier = json.loads(file.read_text())
    earlier["optimizers"]["adam"]["date"] = "2020-01-01"
    file.write_text(json.dumps(earlier))
    run(*optimizers, seeds=3)
    assert done == ["vit", "gru"] and trained == ["a/seed-0"] * 2
    origins = json.loads(file.read_text())["optimizers"]
    assert origins["adam"]["date"] == "2020-01-01" != origins["a/seed-0"]["date"]
    for seed in ("seed-9", "seed-10"):
        (tmp_path / "a" / seed).mkdir()
    save(tmp_path / "a" / "seed-10" / "optimizer.safetensors", theta, trained_steps=7)
    save(tmp_path / "a" / "seed-9" / "optimizer.safetensors", theta, trained_steps=7)
    assert run(str(tmp_path / "a"))[:3] == ["a/seed-0", "a/seed-9", "a/seed-10"]


def test_an_optimizer_is_given_once(tmp_path, optimizers):
    for given in ([], [optimizers[0]] * 2):
        with pytest.raises(ValueError, match="expected at least one, and none twice"):
            generalize.run(tmp_path / "out", given)


@pytest.mark.nightly
def test_the_command_in_small(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)
    words = ["reproduce", "generalize", "--small", "--quiet", "--seeds", "2"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr()
    assert "of 7" in printed.out and "deep-mlp: data: digits" in printed.err
    assert main([*words, "--out", str(tmp_path / "out"), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert len(record["cells"]) == 7 and (tmp_path / "out" / "generalize.png").exists()
    for cells in record["cells"].values():
        assert set(cells) == {"unf-any", "deepset-any", *BASELINES}
        assert cells["adam"]["diverged"] == 0 and cells["adam"]["mean"] > 0
    assert main(["report", str(tmp_path / "out")]) == 0
