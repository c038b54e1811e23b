"""One of two processes is lost: the other says so and ends; both resume to the same result."""

import json
import os
import signal
import socket
import subprocess
import time
from itertools import pairwise

import numpy as np
import pytest

from tests.lab.faults.jobs import META, Jobs, begun, kill, results, wait_until

MINUTE = 60.0


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    return Jobs(tmp_path_factory.mktemp("jobs"))


def pair(jobs, words):
    """Two processes that find each other, each with a parent that waits for it."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{one.getsockname()[1]}"
    more = ["--processes", "2", "--coordinator", address]
    return [jobs.start(*words, *more, "--process", str(i)) for i in range(2)]


def metrics(folder):
    return np.genfromtxt(folder / "metrics.csv", delimiter=",", names=True)


def lose(both, lost, out):
    """Kill one of two processes, and check that the other ends with a message."""
    wait_until(lambda: begun("meta", out) or any(p.poll() is not None for p in both))
    kill(both[lost])
    started = time.monotonic()
    other = both[1 - lost]
    _, errors = other.communicate(timeout=2 * MINUTE)
    assert other.returncode == 1 and time.monotonic() - started < MINUTE, errors
    message = errors.splitlines()[-1]
    assert "lost contact with another one" in message and "again with --resume" in message


@pytest.mark.nightly
def test_a_process_is_lost(jobs, tmp_path):
    words = [*META, "--out", str(tmp_path), "--resume"]
    lose(pair(jobs, words), 1, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("lost", [0, 1])
def test_a_process_is_lost_and_both_resume(jobs, lost, tmp_path):
    """Two processes with two devices each, over loopback; the same as one device, nearly."""
    reference, out = jobs.reference("meta"), tmp_path / "out"
    words = [*META, "--out", str(out)]
    lose(pair(jobs, words), lost, out)
    both = pair(jobs, [*words, "--resume"])
    said = [process.communicate(timeout=5 * MINUTE)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    one, two = metrics(reference), metrics(out)
    for column in ("step", "loss", "alpha", "gamma"):
        np.testing.assert_allclose(one[column], two[column], rtol=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["zoo", "predict"])
def test_two_processes_are_as_good_as_one(jobs, kind, tmp_path):
    reference = jobs.reference(kind)
    jobs.run(*jobs.command(kind, tmp_path / "out"), "--processes", "2")
    if kind == "zoo":
        assert results(kind, tmp_path / "out") == results(kind, reference)
        return
    one, two = (
        json.loads((folder / "result.json").read_text()) for folder in (reference, tmp_path / "out")
    )
    np.testing.assert_allclose(one["losses"], two["losses"], rtol=1e-5)
    np.testing.assert_allclose(one["predicted"], two["predicted"], rtol=1e-5)


@pytest.mark.nightly
def test_processes_are_found_through_slurm(jobs, tmp_path):
    """As `srun unf zoo build … --coordinator auto` starts them."""
    reference = jobs.reference("zoo")
    words = [*jobs.command("zoo", tmp_path / "out"), "--coordinator", "auto", "--json"]
    slurm = {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_NODELIST": "127.0.0.1",
        "SLURM_NTASKS": "2",
        "SLURM_LOCALID": "0",
    }
    both = []
    for index in range(2):
        jobs.environment |= {**slurm, "SLURM_PROCID": str(index)}
        both.append(jobs.start(*words))
    for name in (*slurm, "SLURM_PROCID"):
        del jobs.environment[name]
    (first, _), (second, _) = (process.communicate(timeout=2 * MINUTE) for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert results("zoo", tmp_path / "out") == results("zoo", reference)
    assert json.loads(first)["models"] == 12 and second == "", "the first one speaks for all"


@pytest.mark.nightly
def test_ctrl_c_stops_both(jobs, tmp_path):
    endless = ["1000000" if before == "--steps" else word for before, word in pairwise(["", *META])]
    process = jobs.start(*endless, "--out", str(tmp_path / "out"), "--processes", "2")
    wait_until(lambda: begun("meta", tmp_path / "out"))
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=2 * MINUTE)
    assert process.returncode == 130
    found = subprocess.run(["pgrep", "-f", str(tmp_path / "out")], capture_output=True, check=False)
    assert not found.stdout


@pytest.mark.nightly
def test_one_process_goes_on_where_two_were(jobs, tmp_path):
    reference, out = jobs.reference("meta"), tmp_path / "out"
    jobs.run(*META, "--out", str(out), "--processes", "2")
    states = sorted((out / "checkpoints").iterdir())
    assert len(states) == 4
    for file in states[2:]:  # as if it had been stopped before
        file.unlink()
    jobs.run(*META, "--out", str(out), "--resume")
    one, two = metrics(reference), metrics(out)
    np.testing.assert_allclose(one["loss"], two["loss"], rtol=1e-4)
    assert any((out / "checkpoints").glob("*.0-of-1.*"))
