"""Code in the README and the documentation runs, and prints what the pages say."""

import contextlib
import io
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import jax
import pytest

from unf.graph._registry import RULES
from unf.lab.cli import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^```(python|sh)\n(.*?)^```(?:\n+```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL
)
WITH_CODE = [page for page in PAGES if "\n```python\n" in page.read_text()]
NUMBER = re.compile(r"(?<![\w.#])-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")
TOLERANCE = 0.15
"""Relative, of printed numbers with a decimal point: training differs between machines.
One unit of the last printed digit is allowed as well; whole numbers must be equal."""


@pytest.fixture(autouse=True)
def as_a_user_has_it(tmp_path, monkeypatch):
    """32 bit, rank promotion allowed, in an empty folder; rules that a page adds are removed."""
    monkeypatch.chdir(tmp_path)
    known = dict(RULES)
    with jax.enable_x64(False), jax.numpy_rank_promotion("allow"):
        yield
    for name in RULES.keys() - known:
        del RULES[name]


def run(language, code, namespace):
    """What a block of Python, or of calls of the command, prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if language == "python":
            exec(compile(code, "net.py", "exec"), namespace)
        for line in code.replace("\\\n", "").splitlines() if language == "sh" else ():
            command, *words = shlex.split(line)
            assert command == "unf" and main(words) == 0, line
    return printed.getvalue()


def assert_same_text(printed, expected):
    """Texts are equal but for spaces and, within the tolerance, numbers."""
    skeletons = [" ".join(NUMBER.sub("0", text).split()) for text in (printed, expected)]
    assert skeletons[0] == skeletons[1]
    for got, wanted in zip(NUMBER.findall(printed), NUMBER.findall(expected), strict=True):
        _, point, decimals = wanted.partition(".")
        value, target = (float(number.replace(",", "")) for number in (got, wanted))
        allowed = max(TOLERANCE * abs(target), 1.01 * 10.0 ** -len(decimals)) if point else 0
        assert abs(value - target) <= allowed, f"{got} instead of {wanted} in:\n{printed}"


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_page_prints_what_it_says(page):
    """Every block runs, and prints the text that follows it, if one follows.

    Commands run on pages that say so; the others take longer, or are not ours.
    """
    if re.search(r"^import torch$", page.read_text(), re.MULTILINE) and not find_spec("torchax"):
        pytest.skip("the page needs PyTorch and torchax")
    namespace: dict = {}
    with_commands = "The code and the commands on this page run in order" in page.read_text()
    for language, code, expected in BLOCK.findall(page.read_text()):
        if language == "sh" and not with_commands:
            continue
        printed = run(language, code, namespace)
        if expected:
            assert_same_text(printed, expected)


@pytest.mark.parametrize(
    ("printed", "same"),
    [
        ("loss 0.104, 2,410 weights", True),
        ("loss   0.1, 2,410 weights", True),
        ("loss 0.2, 2,410 weights", False),
        ("loss 0.10, 2,411 weights", False),
        ("error 0.10, 2,410 weights", False),
        ("loss 0.10", False),
    ],
)
def test_printed_numbers_have_a_tolerance(printed, same):
    wrong = pytest.raises(AssertionError, match=r"instead of|==")
    with contextlib.nullcontext() if same else wrong:
        assert_same_text(printed, "loss 0.10, 2,410 weights")
