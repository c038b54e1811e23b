"""Killed at any moment, a job is resumed to the bytes of an undisturbed run."""

import random
import time

import pytest

from tests.lab.faults.jobs import Jobs, begun, kill, results, wait_until
from tests.lab.faults.level import FULL

KILLS = 30 if FULL else 1


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    return Jobs(tmp_path_factory.mktemp("jobs"))


@pytest.mark.parametrize("kind", ["zoo", "meta", "predict"])
def test_killed_at_random_moments(jobs, kind, tmp_path):
    """Some kills fall before anything is stored; in the short version none does."""
    wanted, rng = results(kind, jobs.reference(kind)), random.Random(kind)
    usual, kills, rounds = _usual(jobs, kind, tmp_path) if FULL else 0.3, 0, 0
    while kills < KILLS:
        out, resume = tmp_path / str(rounds), []
        while True:
            process = jobs.start(*jobs.command(kind, out), *resume)
            if not FULL:
                wait_until(lambda o=out, p=process: begun(kind, o) or p.poll() is not None)
            if kills < KILLS and not _ended(process, rng.uniform(0, usual)):
                kill(process)
                kills, resume = kills + 1, ["--resume"] if out.exists() else []
                continue
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors
            break
        assert results(kind, out) == wanted, f"after {kills} kills"
        rounds += 1
    print(f"{kind}: {kills} kills in {rounds} runs of {usual:.1f} s")


def _usual(jobs, kind, tmp_path):
    """How long a run takes when everything was compiled before."""
    started = time.monotonic()
    jobs.run(*jobs.command(kind, tmp_path / "timed"))
    return time.monotonic() - started


def _ended(process, seconds):
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    return process.poll() is not None
