"""Meta-training: what it learns, and resuming it after a stop."""

import csv
import dataclasses
import json
import os
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unf.lab import report
from unf.lab.lopt import MetaError, MetaTraining, first_theta, meta_train
from unf.lab.lopt._job import Pace
from unf.lab.tasks import MLPTask
from unf.meta import Backpropagation
from unf.optim import load

TASK = MLPTask(dataset="digits", hidden=(3,), batch_size=4)
OPTIONS = MetaTraining(steps=6, pairs=2, window=2, horizon=4)


def arrays(folder):
    return jax.tree.leaves(load(folder / "optimizer.safetensors"))


def train(folder, options=OPTIONS, **more):
    return meta_train(TASK, "unf", folder, options, steps_per_call=2, show_progress=False, **more)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    train(folder)
    return folder


def test_results(whole):
    rows = list(csv.DictReader((whole / "metrics.csv").read_text().splitlines()))
    assert [int(float(row["step"])) for row in rows] == [2, 4, 6]
    assert all(np.isfinite(float(row["loss"])) for row in rows)
    start = jax.tree.leaves(first_theta(TASK, "unf", OPTIONS))
    assert any(
        (np.asarray(a) != np.asarray(b)).any() for a, b in zip(start, arrays(whole), strict=True)
    )


def test_the_folder_can_be_reported(whole):
    assert "UNF on mlp: 6 of 6 meta-steps are done" in report.render(whole)


@pytest.mark.parametrize("stop_after", [2, 4])
def test_stopped_and_resumed_is_the_same(whole, tmp_path, stop_after):
    def stop(row):
        if row["step"] == stop_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        train(tmp_path, on_metrics=stop)
    train(tmp_path, resume=True)
    for a, b in zip(arrays(tmp_path), arrays(whole), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (tmp_path / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()
    train(tmp_path, resume=True)  # nothing is left to do
    assert (tmp_path / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()


def test_metrics_of_adaptive_steps_have_their_scalars(tmp_path):
    options = dataclasses.replace(OPTIONS, form="adaptive", steps=2)

    def stop(row):
        raise KeyboardInterrupt

    for again in (False, True):
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            meta_train(
                TASK, "sgdm", tmp_path, options, steps_per_call=1, resume=again, on_metrics=stop,
                show_progress=False,
            )  # fmt: skip
    *_, last = rows = list(csv.DictReader((tmp_path / "metrics.csv").read_text().splitlines()))
    theta = load(tmp_path / "optimizer.safetensors")
    assert len(rows) == 2 and "beta" not in last
    for name in ("alpha", "gamma", "gamma_squares", "delay", "power"):
        assert float(last[name]) == pytest.approx(float(getattr(theta, name)), rel=1e-6)
    assert "Decay of the learning rate" in report.render(tmp_path)


@pytest.mark.nightly
def test_the_number_of_steps_in_a_call_does_not_matter(tmp_path):
    runs = [
        meta_train(
            TASK, "sgdm", tmp_path / str(n), OPTIONS, steps_per_call=n, show_progress=False
        )
        for n in (1, 4)
    ]  # fmt: skip
    for a, b in zip(*map(jax.tree.leaves, runs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_meta_training_improves_the_optimizer(tmp_path):
    """With nothing but two scalars to learn."""
    task = MLPTask(dataset="digits", hidden=(8,), batch_size=16)
    options = MetaTraining(steps=100, learning_rate=0.05, horizon=20, window=5, pairs=4)
    rows = []
    theta = meta_train(
        task, "sgdm", tmp_path, options, show_progress=False, on_metrics=rows.append,
        steps_per_call=20,
    )  # fmt: skip
    assert rows[-1]["loss"] < rows[0]["loss"] - 0.05
    assert float(theta.alpha) > 0.12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "has seed = 0, not 1"),
        ({"options": dataclasses.replace(OPTIONS, sigma=0.1)}, "has sigma = 0.01, not 0.1"),
    ],
)
def test_another_meta_training_is_refused(whole, change, message):
    with pytest.raises(MetaError, match=message):
        train(whole, resume=True, **change)


def test_results_are_replaced_only_on_request(copy):
    with pytest.raises(MetaError, match=r"already holds results; .* resume=True, replace"):
        train(copy)
    before = (copy / "metrics.csv").read_text()
    train(copy, seed=1, overwrite=True)
    assert (copy / "metrics.csv").read_text() != before
    assert json.loads((copy / "config.json").read_text())["seed"] == 1


def test_mistakes(whole, tmp_path):
    with pytest.raises(MetaError, match=r"has task\.hidden = \[3\], not \[4\]; pass the same arg"):
        meta_train(dataclasses.replace(TASK, hidden=(4,)), "unf", whole, OPTIONS, resume=True)
    with pytest.raises(MetaError, match="unknown kind of optimizer 'adam'"):
        meta_train(TASK, "adam", tmp_path)
    with pytest.raises(MetaError, match="horizon is 5 and window 2"):
        train(tmp_path, dataclasses.replace(OPTIONS, horizon=5))
    for change, message in [
        ({"cut": float("nan")}, "cut nan"),
        ({"learning_rate": float("inf")}, "learning_rate is inf"),
        ({"steps": 0}, "steps is 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            MetaTraining(**change)


@pytest.fixture
def copy(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "copy")
    return tmp_path / "copy"


def test_a_checkpoint_without_its_configuration_is_still_this_ones(copy):
    (copy / "config.json").unlink()
    with pytest.raises(MetaError, match="has seed = 0, not 7"):
        train(copy, resume=True, seed=7)
    train(copy, resume=True)


def test_results_without_their_checkpoints_are_still_this_ones(copy):
    shutil.rmtree(copy / "checkpoints")
    with pytest.raises(MetaError, match="has seed = 0, not 7"):
        train(copy, resume=True, seed=7)
    (copy / "config.json").write_text("damaged")
    with pytest.raises(MetaError, match="the job there has what = None"):
        train(copy, resume=True)


def checkpoints(folder):
    return sorted((folder / "checkpoints").iterdir())


def damage(file, how):
    data = bytearray(file.read_bytes())
    if how == "truncated":
        file.write_bytes(data[: len(data) // 2])
    elif how == "flipped":
        data[-5] ^= 16
        file.write_bytes(data)
    else:
        file.unlink()


@pytest.mark.parametrize("how", ["truncated", "flipped", "missing"])
def test_the_last_good_checkpoint_is_used(whole, tmp_path, capsys, how):
    train(tmp_path, seconds_between_checkpoints=0.0)
    _, last = checkpoints(tmp_path)
    damage(last, how)
    (tmp_path / "metrics.csv").unlink()
    train(tmp_path, resume=True)
    for a, b in zip(arrays(tmp_path), arrays(whole), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (tmp_path / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()
    said = capsys.readouterr().err
    assert how == "missing" or (str(last) in said and "continuing from step 4" in said)
    for file in checkpoints(tmp_path):
        damage(file, "flipped")
    with pytest.raises(MetaError, match=r"no usable checkpoint .*altered"):
        train(tmp_path, resume=True)


def test_a_checkpoint_is_no_optimizer(whole):
    with pytest.raises(ValueError, match="not a learned optimizer"):
        load(checkpoints(whole)[-1])


def test_killed_and_resumed_is_the_same(whole, tmp_path):
    """A checkpoint from before the end, and later metrics, as a kill between files leaves them."""

    def stop(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        train(tmp_path, on_metrics=stop)
    shutil.copy(whole / "metrics.csv", tmp_path / "metrics.csv")
    shutil.copy(whole / "optimizer.safetensors", tmp_path / "optimizer.safetensors")
    train(tmp_path, resume=True, seconds_between_checkpoints=0.0)
    for a, b in zip(arrays(tmp_path), arrays(whole), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (tmp_path / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()


@dataclasses.dataclass(frozen=True)
class Negative(MLPTask):
    """A loss that is below zero, of which no multiple is larger."""

    def loss(self, params, batch):
        return super().loss(params, batch) - 10


def test_a_cut_that_makes_no_sense_is_refused(tmp_path):
    task = Negative(dataset="digits", hidden=(3,), batch_size=4)
    with pytest.raises(MetaError, match=r"have a mean loss of -.*choose cut=0"):
        meta_train(task, "sgdm", tmp_path, OPTIONS)


@pytest.mark.nightly
@pytest.mark.parametrize("estimator", ["es", "tbptt", "unroll"])
def test_other_estimators(estimator, tmp_path):
    options = dataclasses.replace(OPTIONS, estimator=estimator, steps=2)
    made = options.make_estimator(TASK, 1.0)
    if estimator == "es":
        assert made.noise == "truncated"
    else:
        assert isinstance(made, Backpropagation)
        assert made.window == (options.window if estimator == "tbptt" else made.horizon)
    theta = meta_train(TASK, "sgdm", tmp_path, options, show_progress=False)
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(theta))


SCRIPT = """
import json, sys
import jax
from unf.lab.lopt import MetaTraining, meta_train
from unf.lab.tasks import MLPTask

assert len(jax.devices()) == int(sys.argv[1])
rows = []
task = MLPTask(dataset="digits", hidden=(3,), batch_size=4)
options = MetaTraining(steps=4, pairs=8, window=2, horizon=4)
more = {"seeds": int(sys.argv[3]), "on_metrics": rows.append, "show_progress": False}
meta_train(task, "sgdm", sys.argv[2], options, **more)
print(json.dumps([row["loss"] for row in rows]))
"""


@pytest.mark.nightly
@pytest.mark.parametrize("seeds", [1, 2])
def test_pairs_are_sharded_across_devices_without_changing_the_result(tmp_path, seeds):
    losses = []
    for devices in (1, 8):
        environment = {
            **os.environ,
            "JAX_NUM_CPU_DEVICES": str(devices),
            "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
        }
        out = str(tmp_path / str(devices))
        words = [sys.executable, "-c", SCRIPT, str(devices), out, str(seeds)]
        run = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        losses.append(json.loads(run.stdout.splitlines()[-1]))
    np.testing.assert_allclose(*losses, rtol=1e-4)


def test_pace_is_a_median_over_calls(monkeypatch):
    """The first call includes compilation, the fourth a checkpoint."""
    clock = iter([60.0, 61.0, 62.0, 72.0, 73.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    pace = Pace(MetaTraining(pairs=3, window=5))
    assert pace.rate is None
    for step in (10, 20, 30, 40, 44):
        pace({"step": step})
    assert pace.rate == pytest.approx((10 + 4) / 2 * 2 * 3 * 5)
