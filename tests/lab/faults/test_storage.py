"""Disks that are full, folders that are gone or not ours, clocks that jump, memory that ends."""

import dataclasses
import os
import re
import shutil
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import unf
import unf.lab.zoos._train as train_module
from unf._devices import wait_for_all
from unf._persistence import CheckpointError, Checkpoints
from unf.lab import predict
from unf.lab.cli import main
from unf.lab.lopt import MetaTraining, meta_train
from unf.lab.tasks import MLPTask
from unf.lab.zoos import TinyRNN
from unf.zoo import Zoo

TASK = MLPTask(dataset="digits", hidden=(3,), batch_size=4)
OPTIONS = MetaTraining(steps=6, pairs=2, window=2, horizon=4)
RECIPE = TinyRNN(hidden=2, digits=1, steps=2, batch_sizes=(2,), problems=2)


def meta(out, **more):
    more = {"seconds_between_checkpoints": 0.0, "show_progress": False, **more}
    return meta_train(TASK, "sgdm", out, OPTIONS, steps_per_call=2, **more)


def zoo(out, **more):
    return unf.lab.zoos.build(RECIPE, out, models=8, chunk=4, show_progress=False, **more)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("done")
    meta(folder / "meta"), zoo(folder / "zoo")
    return folder


def same(folder, done):
    name = "metrics.csv"
    return (folder / name).read_text() == (done / "meta" / name).read_text()


def test_a_full_disk(done, small_disk):
    """The checkpoint before stays, and with room again the job goes on to the same result."""
    rows = []

    def fill(row):
        rows.append(row)
        if row["step"] == 4:
            free = shutil.disk_usage(small_disk).free
            (small_disk / "filler").write_bytes(b"x" * free)

    with pytest.raises(OSError, match="No space left"):
        meta(small_disk / "meta", on_metrics=fill)
    assert not list((small_disk / "meta").rglob("*.partial"))
    (small_disk / "filler").unlink()
    meta(small_disk / "meta", resume=True)
    assert same(small_disk / "meta", done)


def test_a_folder_that_vanishes(done, tmp_path, capsys):
    """Nothing to go on from, and a message that names the folder."""

    def remove(row):
        if row["step"] == 4:
            shutil.rmtree(tmp_path / "meta")

    with pytest.raises(OSError, match=r"meta"):
        meta(tmp_path / "meta", on_metrics=remove)
    meta(tmp_path / "meta", resume=True)
    assert same(tmp_path / "meta", done)


@pytest.mark.skipif(os.geteuid() == 0, reason="everything may be written by the superuser")
def test_a_folder_that_may_not_be_written(tmp_path, capsys):
    tmp_path.chmod(0o500)
    words = ["lopt", "train", "--task", "mlp", "--optimizer", "sgdm", "--small", "--quiet"]
    assert main([*words, "--out", str(tmp_path / "x")]) == 1
    assert "Permission denied" in capsys.readouterr().err


def test_a_file_where_a_folder_should_be(tmp_path, capsys):
    """As a folder that may not be written, for the superuser too: a message, no traceback."""
    (tmp_path / "file").write_text("mine")
    words = ["lopt", "train", "--task", "mlp", "--optimizer", "sgdm", "--small", "--quiet"]
    assert main([*words, "--dataset", "digits", "--out", str(tmp_path / "file" / "x")]) == 1
    assert "Not a directory" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"


def test_no_clock_decides_anything(done, tmp_path, monkeypatch):
    """Clocks on the wall jump; what is measured is time since a beginning."""
    source = Path(unf.__file__).parent
    for file in source.rglob("*.py"):
        assert not re.search(r"\btime\.time\(|datetime\.now\(", file.read_text()), file
    hours = iter(range(10**6, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: next(hours))
    meta(tmp_path / "meta")
    assert same(tmp_path / "meta", done)


def test_a_device_with_little_memory(done, tmp_path, monkeypatch, capsys):
    """Half as many models at a time, until it works; the zoo is the same to the last bit."""
    real = train_module.train_chunk

    def crowded(recipe, keys, *arguments, **options):
        if len(keys) > 1:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 byte")
        return real(recipe, keys, *arguments, **options)

    monkeypatch.setattr(train_module, "train_chunk", crowded)
    zoo(tmp_path / "zoo")
    said = capsys.readouterr().err
    assert said.count("no memory for 4 models at a time; training 1") == 1
    for ours, theirs in zip(*(_weights(x / "zoo") for x in (tmp_path, done)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)

    monkeypatch.setattr(train_module, "train_chunk", full)
    with pytest.raises(unf.zoo.ZooError, match="no memory for a single model"):
        zoo(tmp_path / "another")


def full(*arguments, **options):
    raise jax.errors.JaxRuntimeError(
        "NOT_FOUND: as the autotuner says it\nRESOURCE_EXHAUSTED: Out of memory allocating 1 byte"
    )


def test_the_reason_is_the_line_about_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("unf.lab.lopt._job.begin", full)
    with pytest.raises(
        unf.lab.lopt.MetaError, match=r"\(RESOURCE_EXHAUSTED: Out of memory .* byte\)"
    ):
        meta(tmp_path / "meta")


def test_a_lost_connection_is_always_the_same_error(monkeypatch):
    """JAX 0.11 has a ValueError for it, which elsewhere means something else."""

    def lost(where):
        raise ValueError("UNKNOWN: Gloo AllGather failed: Connection reset by peer")

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(jax.experimental.multihost_utils, "sync_global_devices", lost)
    with pytest.raises(jax.errors.JaxRuntimeError, match="Connection reset"):
        wait_for_all("nowhere")


@pytest.mark.parametrize("where", ["_estimator", "begin", "advance"])
def test_meta_trainings_without_memory_name_what_to_make_smaller(where, tmp_path, monkeypatch):
    monkeypatch.setattr(f"unf.lab.lopt._job.{where}", full)
    with pytest.raises(unf.lab.lopt.MetaError, match=r"no memory for 2 pairs .* a smaller pairs="):
        meta(tmp_path / "meta")
    if where == "advance":  # nothing was begun, so that the folder serves for another try
        monkeypatch.undo()
        fewer = dataclasses.replace(OPTIONS, pairs=1, steps=1)
        meta_train(TASK, "sgdm", tmp_path / "meta", fewer, show_progress=False)
        assert (tmp_path / "meta" / "metrics.csv").exists()


def test_predictors_without_memory_name_what_to_make_smaller(tmp_path, monkeypatch):
    monkeypatch.setattr("unf.lab.predict._run.fit", full)
    made = unf.lab.zoos.build(
        dataclasses.replace(RECIPE, steps=0), tmp_path / "zoo", models=24, show_progress=False
    )
    with pytest.raises(predict.PredictError, match=r"no memory for 5 predictors .* smaller seeds="):
        predict.train(made, "statnn", tmp_path / "predict", show_progress=False)


def _weights(folder):
    return jax.tree.leaves(Zoo(folder).weights())


def test_states_of_another_job_are_not_taken(tmp_path):
    state = {"x": jax.numpy.arange(3.0)}
    Checkpoints(tmp_path, {"job": 1}).save(1, state)
    with pytest.raises(CheckpointError, match="of another job"):
        Checkpoints(tmp_path, {"job": 2}).restore(state)
