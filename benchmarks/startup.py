"""How long `import unf` takes beyond JAX's own import, and the command beyond Python's start."""

import statistics
import subprocess
import sys
import time
from typing import Any

_IMPORT = """
import time
start = time.perf_counter(); import jax, jax.numpy
middle = time.perf_counter(); import unf
print(middle - start, time.perf_counter() - middle)
"""


def run(repeats: int = 7) -> list[dict[str, Any]]:
    """Medians over fresh processes."""
    pairs = [list(map(float, _output("-c", _IMPORT).split())) for _ in range(repeats)]
    jax_s, unf_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    commands = {
        "unf --help": ["-m", "unf.lab.cli", "--help"],
        "unf doctor": ["-m", "unf.lab.cli", "doctor"],
    }
    rows = [
        {"what": "import jax", "seconds": jax_s},
        {"what": "import unf, then", "seconds": unf_s},
    ]
    for name, words in commands.items():
        rows.append({"what": name, "seconds": statistics.median(_seconds(words) for _ in range(3))})
    return rows


def report(rows: list[dict[str, Any]]) -> str:
    """A table."""
    lines = ["| what | seconds |", "|---|---|"]
    return "\n".join([*lines, *(f"| {row['what']} | {row['seconds']:.2f} |" for row in rows)])


def _output(*words: str) -> str:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=True
    ).stdout


def _seconds(words: list[str]) -> float:
    start = time.perf_counter()
    _output(*words)
    return time.perf_counter() - start
