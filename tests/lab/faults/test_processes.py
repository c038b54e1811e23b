"""One of two processes is lost: the other says so and ends, and both resume to the same result."""

import json
import os
import signal
import socket
import subprocess
import time

import numpy as np
import pytest

from tests.lab.faults.jobs import META, Jobs, begun, kill, results, wait_until
from tests.lab.faults.level import FULL

MINUTE = 60.0


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    return Jobs(tmp_path_factory.mktemp("jobs"))


def pair(jobs, words):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{one.getsockname()[1]}"
    more = ["--processes", "2", "--coordinator", address]
    return [jobs.start(*words, *more, "--process", str(i)) for i in range(2)]


def metrics(folder):
    return np.genfromtxt(folder / "metrics.csv", delimiter=",", names=True)


@pytest.mark.parametrize("lost", [1, pytest.param(0, marks=pytest.mark.nightly)])
def test_a_process_is_lost(jobs, lost, tmp_path):
    """Two processes with two devices each, over loopback; the same as one device, nearly."""
    reference, out = jobs.reference("meta"), tmp_path / "out"
    words = [*META, "--out", str(out)]
    both = pair(jobs, words)
    wait_until(lambda: begun("meta", out) or any(p.poll() is not None for p in both))
    kill(both[lost])
    started = time.monotonic()
    other = both[1 - lost]
    _, errors = other.communicate(timeout=2 * MINUTE)
    assert other.returncode == 1 and time.monotonic() - started < MINUTE, errors
    assert "lost another one" in errors and "start all processes again with --resume" in errors
    assert "Traceback" not in errors and "0x" not in errors
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
    for name in ("losses", "predicted"):
        np.testing.assert_allclose(one[name], two[name], rtol=1e-3)


def test_options_that_do_not_fit(jobs):
    process = jobs.start(*META, "--out", "x", "--processes", "2", "--process", "0")
    _, errors = process.communicate(timeout=MINUTE)
    assert process.returncode == 1 and "either both of the others or none" in errors


def test_ctrl_c_stops_both(jobs, tmp_path):
    if not FULL:
        pytest.skip("in the full version")
    process = jobs.start(*META, "--out", str(tmp_path / "out"), "--processes", "2")
    wait_until(lambda: begun("meta", tmp_path / "out"))
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=2 * MINUTE)
    assert process.returncode == 130 and "Traceback" not in errors
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
