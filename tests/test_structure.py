"""The tree shows the architecture: packages import downwards only, files stay small."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import unf

ROOT = Path(unf.__file__).parent
ORDER = "spec graph basis nn models optim meta zoo torch testing viz lab".split()
HELPERS = [
    "_devices",
    "_drawing",
    "_files",
    "_persistence",
    "_version",
]  # belong to no package, import none
FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downwards(path):
    package = path.relative_to(ROOT).parts[0]
    assert package in ORDER
    allowed = ORDER[: ORDER.index(package)]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == len(path.relative_to(ROOT).parts):
            assert (node.module or "").split(".")[0] in [*allowed, *HELPERS]
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            assert not (node.module or "").startswith("unf"), "relative imports within the package"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_hold_one_idea(path):
    assert path.read_text().count("\n") <= 400


def test_importing_starts_no_device():
    """So that a command's help is quick, and several processes can still be joined afterwards."""
    script = (
        "import unf.lab.cli\nfrom jax._src import xla_bridge\n"
        "raise SystemExit(xla_bridge.backends_are_initialized())"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_importing_loads_what_is_needed():
    """Packages for zoos and optimizers come when they are used; extras only in their commands."""
    script = (
        "import sys, unf\n"
        "heavy = {'unf.optim', 'unf.zoo', 'tensorstore', 'sklearn', 'matplotlib', 'tokenizers'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "unf.optim.learned_optimizer, unf.zoo.Zoo, unf.meta.Task\n"
        "assert set(unf.__all__) <= set(dir(unf))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    with pytest.raises(AttributeError, match="module 'unf' has no attribute 'optimizer'"):
        unf.optimizer  # noqa: B018
