"""Settings of meta-training, chosen among short trials."""

import dataclasses
import json
import shutil
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unf.lab.cli import main
from unf.lab.lopt import MetaError, MetaTraining, evaluate, meta_train, tune_meta_training
from unf.lab.lopt._job import Member
from unf.lab.lopt._tune import Trial, _members, as_json, best_options, objective, parse_grid
from unf.lab.tasks import MLPTask
from unf.optim import learned_optimizer, load

TASK = MLPTask(dataset="digits", hidden=(3,), batch_size=4)
OPTIONS = MetaTraining(steps=4, pairs=2, window=2, horizon=8)
GRID = {"learning_rate": (1e-3, 0.1), "sigma": (0.01, 0.1)}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    run = {"grid": GRID, "show_progress": False}
    return folder, tune_meta_training(TASK, "deepset", folder, OPTIONS, **run), run


def test_the_best_comes_first_and_is_written(tuned):
    folder, trials, _ = tuned
    assert [trial.loss for trial in trials] == sorted(trial.loss for trial in trials)
    settings = {(x.options.learning_rate, x.options.sigma) for x in trials}
    assert settings == {(rate, sigma) for rate in (1e-3, 0.1) for sigma in (0.01, 0.1)}
    best = dataclasses.replace(trials[0].options, steps=50_000, schedule="cosine")
    assert best_options(folder, "deepset", 50_000) == best
    with pytest.raises(MetaError, match="has trials of kind 'deepset', not 'unf'"):
        best_options(folder, "unf", 1)
    stored = json.loads((folder / "trials.json").read_text())
    assert [row["loss"] for row in stored["trials"]] == [trial.loss for trial in trials]


def test_a_trial_is_a_meta_training(tuned, tmp_path):
    folder, *_ = tuned
    for i, rate, sigma in ((1, 1e-3, 0.1), (2, 0.1, 0.01)):
        options = dataclasses.replace(OPTIONS, learning_rate=rate, sigma=sigma, schedule="constant")
        alone = meta_train(TASK, "deepset", tmp_path / f"{i}", options, show_progress=False)
        found = load(folder / "program-0" / f"trial-{i}" / "optimizer.safetensors")
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_the_objective_is_the_loss_of_networks_that_the_optimizer_trains(tuned):
    """With many networks, it is what `evaluate` measures on others."""
    folder, *_ = tuned
    thetas = [load(folder / "program-0" / f"trial-{i}" / "optimizer.safetensors") for i in range(2)]
    thetas[1].scalars["log_alpha"] = jnp.asarray(np.log(1e-9), jnp.float32)  # learns nothing
    options = dataclasses.replace(OPTIONS, pairs=64, cut=0.0)
    found = objective((TASK,), options, [Member(OPTIONS, 0)] * 2, thetas, 0, show_progress=False)
    for theta, (loss, diverged) in zip(thetas, found, strict=True):
        run = {"seeds": range(64), "horizon": 8}
        curves = evaluate(TASK, TASK.data(), learned_optimizer, theta, **run)
        each = curves.train.mean(axis=1)
        assert abs(loss - each.mean()) < 6 * each.std() / 64**0.5 and diverged == 0
    assert found[0] < found[1]


def test_what_is_there_is_kept_or_refused(tuned):
    folder, trials, run = tuned
    file = folder / "program-0" / "trial-3" / "optimizer.safetensors"
    before = file.stat().st_mtime
    again = tune_meta_training(TASK, "deepset", folder, OPTIONS, **run, resume=True)
    assert again == trials and file.stat().st_mtime == before
    with pytest.raises(MetaError, match="already holds results"):
        tune_meta_training(TASK, "deepset", folder, OPTIONS, **run)
    with pytest.raises(MetaError, match="the job there has trials"):
        tune_meta_training(
            TASK, "deepset", folder, OPTIONS, resume=True,
            grid={**GRID, "sigma": (0.01, 0.2)}, show_progress=False,
        )  # fmt: skip


def test_what_was_measured_of_another_job_does_not_count(tuned, tmp_path, monkeypatch):
    folder, trials, run = tuned
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "program-0" / "objective.json"
    stored = json.loads(file.read_text())
    stored["job"]["seed"], stored["found"] = 1, [[0.0, 0]] * 4
    file.write_text(json.dumps(stored))
    assert tune_meta_training(TASK, "deepset", tmp_path, OPTIONS, **run, resume=True) == trials
    more = {**run, "grid": {**GRID, "form": ("normalized", "code")}}
    monkeypatch.setattr("unf.lab.lopt._tune.objective", lambda *a, **k: [(1.0, 1)] * 4)
    again = tune_meta_training(TASK, "deepset", tmp_path, OPTIONS, **more, resume=True)
    assert again[:4] == trials  # those that diverge come last
    assert {trial.options.form for trial in again[4:]} == {"code"}


def test_every_kind_has_as_many_trials_and_inner_steps(monkeypatch, tmp_path):
    ran = []

    def train(tasks, kind, folder, members, config, **how):
        ran.append(dict(members))
        raise KeyboardInterrupt

    monkeypatch.setattr("unf.lab.lopt._tune.train_together", train)
    grid = {"pairs": (2, 4), "head_start": ("random", "pointwise")}
    for kind in ("deepset", "unf"):
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            tune_meta_training(TASK, kind, tmp_path / kind, OPTIONS, grid=grid)
    deepset, unf = (list(members.values()) for members in ran)
    assert [member.options.steps for member in unf] == [8, 8]  # those with fewer pairs come first
    assert [member.seed for member in unf] == [0, 0]
    assert [member.seed for member in deepset] == [0, 1]  # the start has no effect
    for kind, seeds in {"sgdm": [0, 1], "deepset": [0, 0]}.items():  # nor has a width without f
        members = _members((TASK,), OPTIONS, {"hidden_channels": (8, 32)}, kind, 0)
        assert [member.seed for member in members] == seeds
    trials = [Trial(*member, loss=1.0, diverged=0, lost=0) for member in members]
    rows = json.loads(as_json(trials, (TASK,), "deepset"))["trials"]
    assert [row["hidden_channels"] for row in rows] == [8, 32]  # also the default, if it was tried


def test_settings_are_read_or_refused(tmp_path):
    assert parse_grid(["learning-rate=1e-3,0.1", "estimator=pes,nres"]) == {
        "learning_rate": (1e-3, 0.1),
        "estimator": ("pes", "nres"),
    }
    for word, message in (
        ("momentum=0.9", r"unknown setting 'momentum'; expected some of \["),
        ("steps=1,2", "unknown setting 'steps'"),
        ("schedule=cosine", "unknown setting 'schedule'"),
        ("form=none", r"form cannot be 'none'; expected some of \('paper',"),
        ("pairs=two", r"pairs cannot be 'two' \(invalid .*; expected values of type int, joined"),
    ):
        with pytest.raises(MetaError, match=message):
            parse_grid([word])
    with pytest.raises(MetaError, match="the setting 'sigma' comes twice"):
        parse_grid(["sigma=0.1", "sigma=0.2"])
    for grid, message in (
        ({"sigma": (-1.0,)}, r"sigma is -1.0; expected a positive number"),
        ({"sigma": ()}, r"no values of \['sigma'\]"),
        ({"speed": (1,)}, r"unknown settings \['speed'\]"),
        ({"window": (2, 3)}, "horizon is 8 and window 3"),
    ):
        with pytest.raises(MetaError, match=message):
            tune_meta_training(TASK, "sgdm", tmp_path, OPTIONS, grid=grid)
    assert not list(tmp_path.iterdir())
    with pytest.raises(MetaError, match=r"trials.json: not the trials"):
        best_options(tmp_path, "unf", 1)


def test_the_command_writes_settings_to_go_on_with(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)
    words = "lopt tune --task mlp:hidden=3 --optimizer sgdm --small --quiet --batch-size 4".split()
    tiny = "--steps 2 --pairs 2 --window 2 --horizon 4 learning_rate=0.01,0.1".split()
    out = tmp_path / "tune"
    assert main([*words, *tiny, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "| runs lost | seed | learning_rate |" in shown and "best.toml" in shown
    best = tomllib.loads((out / "best.toml").read_text())
    assert best["training"]["learning_rate"] in (0.01, 0.1) and best["training"]["steps"] == 200
    train = ["lopt", "train", "--config", str(out / "best.toml"), "--steps", "2", "--quiet"]
    assert main([*train, "--out", str(tmp_path / "sgdm")]) == 0
    assert main([*words, "--steps", "2", "form=x", "--out", str(tmp_path / "no")]) == 1
    assert "form cannot be 'x'; expected some of" in capsys.readouterr().err
    assert main([*words, "--sigma", "0.1", "sigma=1,2", "--out", str(tmp_path / "no")]) == 1
    assert "--sigma: values of sigma are tried" in capsys.readouterr().err
