"""Altered input for everything that reads: an error of ours or success, and nothing else."""

import subprocess
import sys

import pytest

from tests.lab.faults.level import FULL, INPUTS

READERS = ("specs", "descriptions", "models", "optimizers", "checkpoints", "zoos", "datasets")
SEED = 1
MINUTES = 30 if FULL else 5
TOGETHER = [(reader,) for reader in READERS] if FULL else [READERS]
"""A process for each reader, or, since most of a short one's time is its start, one for all."""


@pytest.mark.parametrize("readers", TOGETHER, ids=",".join)
def test_altered_input(readers, capsys):
    command = [sys.executable, "-m", "tests.lab.faults.fuzz", str(INPUTS), str(SEED)]
    result = subprocess.run(
        [*command, *readers], capture_output=True, text=True, timeout=60 * MINUTES, check=False
    )
    assert result.returncode == 0, result.stderr
    for reader in readers:
        assert f"{reader}: {INPUTS} inputs" in result.stdout
    if FULL:
        with capsys.disabled():
            print(f"\n{result.stdout}", end="")
