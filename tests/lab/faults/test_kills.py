"""A job that was killed resumes to the bytes of an undisturbed run."""

import random
import subprocess
import sys
import time

import pytest

from tests.lab.faults.jobs import Jobs, begun, kill, results, wait_until


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    return Jobs(tmp_path_factory.mktemp("jobs"))


@pytest.mark.parametrize(
    "kind", ["zoo", "meta", "predict", pytest.param("seeds", marks=pytest.mark.nightly)]
)
def test_killed_and_resumed(jobs, kind, tmp_path):
    if kind == "predict":
        jobs.reference("zoo")
    out = tmp_path / "out"
    process = jobs.start(*jobs.command(kind, out))
    wait_until(lambda: begun(kind, out) or process.poll() is not None)
    kill(process)
    jobs.run_all([*jobs.command(kind, out), "--resume"], *jobs.undisturbed(kind))
    assert results(kind, out) == results(kind, jobs.reference(kind))


INTERRUPTED = """
import signal, sys
from unf.lab.cli import main
from unf.zoo._store import Store

write = Store.write

def write_and_interrupt(*args):
    Store.write = write
    write(*args)
    signal.raise_signal(signal.SIGINT)

Store.write = write_and_interrupt
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.nightly
def test_interrupted_and_resumed(jobs, tmp_path):
    """Ctrl-C when the first of three chunks is stored."""
    expected, command = results("zoo", jobs.reference("zoo")), jobs.command("zoo", tmp_path / "out")
    words = [sys.executable, "-c", INTERRUPTED, *command]
    done = subprocess.run(words, env=jobs.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert "stopped; finished work is kept: go on with --resume" in done.stderr
    assert len(results("zoo", tmp_path / "out")) < len(expected)
    jobs.run(*command, "--resume")
    assert results("zoo", tmp_path / "out") == expected


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["zoo", "meta", "predict"])
def test_killed_at_random_moments(jobs, kind, tmp_path):
    """Ten times in a row, also before anything is stored."""
    expected, rng, out = results(kind, jobs.reference(kind)), random.Random(kind), tmp_path / "out"
    started = time.monotonic()
    jobs.run(*jobs.command(kind, tmp_path / "timed"))
    usual = time.monotonic() - started
    for _ in range(10):
        resume = ["--resume"] if out.exists() else []
        process = jobs.start(*jobs.command(kind, out), *resume)
        time.sleep(rng.uniform(0, usual))
        kill(process)
    jobs.run(*jobs.command(kind, out), *(["--resume"] if out.exists() else []))
    assert results(kind, out) == expected
