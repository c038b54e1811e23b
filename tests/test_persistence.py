"""Files of models, optimizers and checkpoints: complete, of this job, and never code."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
from unf._persistence import CheckpointError, Checkpoints, read_arrays, write_arrays
from unf.testing import spaces

KEY = jax.random.key(0)
STATE = {"x": jnp.arange(3.0), "n": jnp.asarray(4), "name": "no array"}


def altered(data, how):
    """A file's bytes, damaged in one of several ways."""
    size = int.from_bytes(data[:8], "little")
    if how == "cut short":
        return data[:-3]
    if how == "another header":
        return data[:8] + data[8 : 8 + size].replace(b"format", b"f0rmat") + data[8 + size :]
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize("how", ["cut short", "another header", "another number"])
@pytest.mark.parametrize("what", ["model", "optimizer"])
def test_an_altered_file_is_noticed_and_named(what, how, tmp_path):
    file = tmp_path / "file.safetensors"
    if what == "model":
        unf.save_model(file, unf.models.StatNN(spaces.mlp(2, 3, 1), 1, 1, key=KEY, mlp_width=2))
    else:
        unf.optim.save(file, unf.optim.init_theta("sgdm", key=KEY))
    file.write_bytes(altered(file.read_bytes(), how))
    with pytest.raises(ValueError, match=rf"{file}: (altered since|not a complete)"):
        (unf.load_model if what == "model" else unf.optim.load)(file)


def test_arrays_keep_names_shapes_and_dtypes(tmp_path):
    tree = {"a": jnp.ones((2, 3), jnp.bfloat16), "b": [jnp.asarray(True), jnp.arange(2)]}
    write_arrays(tmp_path / "file", tree, {"why": "test"})
    description, arrays = read_arrays(tmp_path / "file")
    assert description == {"why": "test"} and set(arrays) == {"['a']", "['b'][0]", "['b'][1]"}
    assert arrays["['a']"].dtype == jnp.bfloat16 and arrays["['b'][1]"].tolist() == [0, 1]
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        write_arrays(tmp_path / "nowhere" / "file", tree, {})


def test_the_last_two_checkpoints_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path / "new", {"seed": 0})
    assert checkpoints.restore(STATE) is None
    for step in (1, 2, 3):
        checkpoints.save(step, STATE | {"n": jnp.asarray(step)}, {"losses": [1.5]})
    step, state, notes = checkpoints.restore(STATE)
    assert (step, int(state["n"]), notes, state["name"]) == (3, 3, {"losses": [1.5]}, "no array")
    np.testing.assert_array_equal(state["x"], STATE["x"])
    assert len(list((tmp_path / "new").iterdir())) == 2
    assert checkpoints.descriptions() == [{"seed": 0}] * 2
    checkpoints.clear()
    assert not list((tmp_path / "new").iterdir())


def test_a_damaged_checkpoint_is_skipped_with_a_warning(tmp_path):
    said = []
    checkpoints = Checkpoints(tmp_path, {"seed": 0}, warn=said.append)
    checkpoints.save(1, STATE)
    checkpoints.save(2, STATE)
    (tmp_path / "step-00000003.0-of-2.safetensors").write_bytes(b"of one process only")
    newest = tmp_path / "step-00000002.0-of-1.safetensors"
    newest.write_bytes(altered(newest.read_bytes(), "another number"))
    assert checkpoints.restore(STATE)[0] == 1
    assert "not all of 2 processes" in said[0] and "continuing from step 1" in said[1]
    oldest = tmp_path / "step-00000001.0-of-1.safetensors"
    oldest.write_bytes(altered(oldest.read_bytes(), "cut short"))
    with pytest.raises(CheckpointError, match=f"no usable checkpoint .*remove {tmp_path}"):
        checkpoints.restore(STATE)


def test_checkpoints_of_another_job_are_refused(tmp_path):
    Checkpoints(tmp_path, {"seed": 1}).save(1, STATE)
    with pytest.raises(CheckpointError, match="a checkpoint of another job"):
        Checkpoints(tmp_path, {"seed": 2}).restore(STATE)


def test_a_full_disk_leaves_the_old_file(small_disk):
    file = small_disk / "file"
    write_arrays(file, {"x": np.zeros(10)}, {"version": 1})
    with pytest.raises(OSError, match="No space left"):
        write_arrays(file, {"x": np.zeros(10**6)}, {"version": 2})
    assert read_arrays(file)[0] == {"version": 1}
    assert [path.name for path in small_disk.iterdir()] == ["file"]


def test_nothing_that_is_loaded_can_run_code():
    """What could run code while reading a file is not imported, except where a comment says why."""
    dangerous = re.compile(
        r"^\s*(import|from) (pickle|marshal|shelve|dill|cloudpickle|joblib|yaml|runpy)\b"
        r"|\b(eval|exec|exec_module|__import__)\(|allow_pickle=(?!False)"
        r"|\btorch\.load\b(?!.*weights_only=True)",
        re.MULTILINE,
    )
    source = Path(unf.__file__).parent
    found = {
        file.relative_to(source).as_posix()
        for file in source.rglob("*.py")
        if dangerous.search(file.read_text())
    }
    assert found <= {"lab/cli/_network.py"}  # which runs a file that the user names
