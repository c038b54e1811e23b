"""Importing the package starts no device and loads only what is needed."""

import subprocess
import sys

import pytest

import unf


def run(script):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


def test_importing_starts_no_device():
    """So that a command's help is fast, and several processes can still be joined afterwards."""
    script = (
        "import unf.lab.cli\nfrom jax._src import xla_bridge\n"
        "raise SystemExit(xla_bridge.backends_are_initialized())"
    )
    assert run(script).returncode == 0


def test_importing_loads_what_is_needed():
    """Packages for zoos, optimizers and pictures are loaded on first use; extras in commands."""
    script = (
        "import sys, unf\n"
        "heavy = {'unf.optim', 'unf.zoo', 'unf.viz', 'unf.lab', 'unf.torch', 'unf.symmetry',\n"
        "         'torch', 'tensorstore', 'scipy.optimize', 'sklearn', 'matplotlib',\n"
        "         'tokenizers'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "unf.optim.learned_optimizer, unf.zoo.Zoo, unf.meta.Task, unf.viz.to_html, unf.align\n"
        "assert set(unf.__all__) <= set(dir(unf))\n"
    )
    result = run(script)
    assert result.returncode == 0, result.stderr
    with pytest.raises(AttributeError, match="module 'unf' has no attribute 'optimizer'"):
        unf.optimizer  # noqa: B018
