"""Several meta-trainings in one program."""

import csv
import json

import jax
import numpy as np
import pytest

from unf.lab import report
from unf.lab.lopt import MetaError, MetaTraining, meta_train
from unf.lab.tasks import MLPTask
from unf.optim import load

TASK = MLPTask(dataset="digits", hidden=(3,), batch_size=4)
OPTIONS = MetaTraining(steps=4, pairs=2, window=2, horizon=4)
FILES = ("metrics.csv", "optimizer.safetensors", "config.json")


def train(folder, kind="deepset", task=TASK, **more):
    shared = {"steps_per_call": 2, "show_progress": False}
    return meta_train(task, kind, folder, OPTIONS, seed=3, **shared, **more)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder, rows = tmp_path_factory.mktemp("whole"), []
    theta = train(folder, seeds=2, on_metrics=rows.append)
    return folder, theta, rows


def metrics(folder):
    lines = (folder / "metrics.csv").read_text().splitlines()
    return {k: np.array(v, float) for k, v in zip(*_columns(csv.reader(lines)), strict=True)}


def _columns(rows):
    head, *body = rows
    return head, zip(*body, strict=True)


@pytest.mark.parametrize("seed", [3, 4])
def test_each_is_what_it_is_alone(whole, seed, tmp_path):
    alone = meta_train(
        TASK, "deepset", tmp_path, OPTIONS, seed=seed, steps_per_call=2, show_progress=False
    )
    folder, theta, _ = whole
    own = folder / f"seed-{seed}"
    stored = jax.tree.leaves(load(own / "optimizer.safetensors"))
    for a, b, c in zip(stored, jax.tree.leaves(alone), jax.tree.leaves(theta), strict=True):
        np.testing.assert_array_equal(a, c[seed - 3])
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    for name, values in metrics(tmp_path).items():
        np.testing.assert_allclose(metrics(own)[name], values, rtol=1e-4)
    assert (own / "config.json").read_text() == (tmp_path / "config.json").read_text()


def test_the_folder_has_one_checkpoint_and_the_results_of_each(whole):
    folder, theta, rows = whole
    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoints", "config.json", "seed-3", "seed-4",
    ]  # fmt: skip
    assert json.loads((folder / "config.json").read_text())["seeds"] == 2
    assert theta.scalars["log_alpha"].shape == (2,)
    means = np.mean([metrics(folder / f"seed-{seed}")["loss"] for seed in (3, 4)], axis=0)
    np.testing.assert_allclose([row["loss"] for row in rows], means, rtol=1e-6)
    page = report.render(folder)
    assert "seed-3" in page and "seed-4" in page and "Deep Set on mlp: 4 of 4 meta-steps" in page


@pytest.mark.nightly
def test_stopped_and_resumed_is_the_same(whole, tmp_path):
    def stop(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        train(tmp_path, seeds=2, on_metrics=stop)
    train(tmp_path, seeds=2, resume=True)
    for seed in ("seed-3", "seed-4"):
        text = (tmp_path / seed / "metrics.csv").read_text()
        assert text == (whole[0] / seed / "metrics.csv").read_text()
        both = [load(f / seed / "optimizer.safetensors") for f in (tmp_path, whole[0])]
        jax.tree.map(np.testing.assert_array_equal, *both)


@pytest.mark.nightly
def test_another_number_of_seeds_is_another_job(whole):
    with pytest.raises(MetaError, match="the job there has seeds = 2, not 3"):
        train(whole[0], seeds=3, resume=True)
    with pytest.raises(MetaError, match="the job there has seeds = 2, not None"):
        train(whole[0], resume=True)
    with pytest.raises(MetaError, match="already holds results"):
        train(whole[0])


def test_what_does_not_work_is_refused(tmp_path, monkeypatch):
    with pytest.raises(MetaError, match="seeds is 0; expected at least 1"):
        train(tmp_path, seeds=0)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(MetaError, match="2 meta-trainings at once run in one process"):
        train(tmp_path, seeds=2)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["sgdm", "unf"])
def test_several_tasks_and_seeds(kind, tmp_path):
    tasks = (TASK, MLPTask(dataset="digits", hidden=(3,), batch_size=5, activation="tanh"))
    theta = train(tmp_path / "both", kind, tasks, seeds=2)
    alone = train(tmp_path / "alone", kind, tasks)
    for a, b in zip(jax.tree.leaves(theta), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(a[0], b, rtol=1e-4, atol=1e-6)
