"""Full disks, folders that vanish, devices without memory, lost connections."""

import shutil

import jax
import numpy as np
import pytest

import unf
import unf.lab.zoos._train as train_module
from unf._devices import wait_for_all
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
    meta_train(TASK, "sgdm", out, OPTIONS, steps_per_call=2, **more)
    return (out / "metrics.csv").read_text()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return meta(tmp_path_factory.mktemp("done") / "meta")


def test_a_full_disk(expected, small_disk):
    """The last checkpoint stays, and with room again the job resumes to the same result."""

    def fill(row):
        if row["step"] == 4:
            free = shutil.disk_usage(small_disk).free
            (small_disk / "filler").write_bytes(b"x" * free)

    with pytest.raises(OSError, match="No space left"):
        meta(small_disk / "meta", on_metrics=fill)
    assert not list((small_disk / "meta").rglob("*.partial"))
    (small_disk / "filler").unlink()
    assert meta(small_disk / "meta", resume=True) == expected


def test_a_folder_that_vanishes(expected, tmp_path):
    def remove(row):
        if row["step"] == 4:
            shutil.rmtree(tmp_path / "meta")

    with pytest.raises(OSError, match=r"meta"):
        meta(tmp_path / "meta", on_metrics=remove)
    assert meta(tmp_path / "meta", resume=True) == expected


def test_a_file_where_a_folder_should_be(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    words = ["lopt", "train", "--task", "mlp", "--optimizer", "sgdm", "--small", "--quiet"]
    assert main([*words, "--dataset", "digits", "--out", str(tmp_path / "file" / "x")]) == 1
    assert "Not a directory" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"


def out_of_memory(*arguments, **options):
    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 byte")


@pytest.mark.nightly
def test_a_zoo_is_trained_in_smaller_parts_if_memory_is_short(tmp_path, monkeypatch):
    def build(name):
        unf.lab.zoos.build(RECIPE, tmp_path / name, models=8, chunk=4, show_progress=False)
        return jax.tree.leaves(Zoo(tmp_path / name).weights())

    real, expected = train_module.train_chunk, build("whole")

    def crowded(recipe, keys, *arguments, **options):
        return (real if len(keys) == 1 else out_of_memory)(recipe, keys, *arguments, **options)

    monkeypatch.setattr(train_module, "train_chunk", crowded)
    for found, wanted in zip(build("parts"), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
    monkeypatch.setattr(train_module, "train_chunk", out_of_memory)
    with pytest.raises(unf.zoo.ZooError, match="no memory for a single model"):
        build("none")


def test_a_meta_training_without_memory_names_what_to_make_smaller(tmp_path, monkeypatch):
    monkeypatch.setattr("unf.lab.lopt._job.begin", out_of_memory)
    with pytest.raises(unf.lab.lopt.MetaError, match=r"no memory for 2 pairs .*smaller pairs="):
        meta(tmp_path / "meta")


def test_a_lost_connection_is_always_the_same_error(monkeypatch):
    """JAX 0.11 raises a ValueError."""

    def lost(where):
        raise ValueError("UNKNOWN: Gloo AllGather failed: Connection reset by peer")

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(jax.experimental.multihost_utils, "sync_global_devices", lost)
    with pytest.raises(jax.errors.JaxRuntimeError, match="Connection reset"):
        wait_for_all("nowhere")
