"""Code in the README and the documentation runs."""

import contextlib
import io
import re
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
WITH_CODE = [page for page in PAGES if BLOCK.search(page.read_text())]


@pytest.fixture(autouse=True)
def as_a_user_has_it(tmp_path, monkeypatch):
    """32 bit, rank promotion allowed, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    with jax.enable_x64(False), jax.numpy_rank_promotion("allow"):
        yield


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_page_runs(page):
    namespace: dict = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for block in BLOCK.findall(page.read_text()):
            exec(compile(block, str(page), "exec"), namespace)
    assert namespace


def test_readme_prints_what_it_says():
    """The README's first example gives the output shown below it."""
    text = (ROOT / "README.md").read_text()
    code, expected = re.search(r"```python\n(.*?)```\s*```text\n(.*?)```", text, re.DOTALL).groups()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue().strip() == expected.strip()
