"""What people install: built from the source distribution, in an empty environment."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from unf.optim import trained

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.nightly


def run(*words, check=True, **more):
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "UNF_DATA")}
    done = subprocess.run(
        list(map(str, words)), env=environment, capture_output=True, text=True, check=False, **more
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel that is built from the source distribution, and that."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", ROOT, "--outdir", out)
    (wheel,), (source,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, source


def make_environment(folder, requirement):
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", requirement)
    return folder / "bin"


def test_what_is_in_them(built):
    wheel, source = built
    inside = zipfile.ZipFile(wheel).namelist()
    assert {"unf/py.typed", "unf/lab/cli/_main.py", "unf/lab/report/report.html"} <= set(inside)
    optimizers = {Path(name).stem for name in inside if name.endswith(".safetensors")}
    assert optimizers == set(trained())
    assert not [name for name in inside if not name.startswith(("unf/", "universal_neural"))]
    names = {name.partition("/")[2] for name in tarfile.open(source).getnames()}
    assert {"tests/test_docs.py", "docs/index.md", "README.md", "CITATION.cff"} <= names


def test_in_an_empty_environment(built, tmp_path):
    """Without extras the library works, and commands say which extra they want; then they work."""
    wheel, _ = built
    bin = make_environment(tmp_path / "env", f"{wheel}")
    script = "import unf; print(unf.optim.load('unf-mlp-fashion-mnist').num_parameters)"
    assert run(bin / "python", "-c", script, cwd=tmp_path).stdout.strip() == "3753"
    missing = run(bin / "unf", "demo", check=False, cwd=tmp_path)
    assert missing.returncode == 1
    assert "pip install 'universal-neural-functionals[lab]'" in missing.stderr
    run(bin / "python", "-m", "pip", "install", "--quiet", f"{wheel}[lab]")
    words = ["demo", "--networks", "60", "--repeats", "1"]
    assert "UNF" in run(bin / "unf", *words, cwd=tmp_path).stdout
    made = {file.name for file in (tmp_path / "out").iterdir()}
    assert made == {"demo.png", "demo.png.config.toml"}
