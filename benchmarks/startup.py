"""The time until first results: importing, starting the command, making and calling a model."""

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
_CONSTRUCT = """
import time, jax, jax.numpy as jnp, unf
from unf.testing import spaces
space = spaces.transformer(num_blocks=3, width=16, vocabulary=50).relax()
x = space.unflatten([jnp.ones((*leaf.shape, 1)) for leaf in space.leaves])
start = time.perf_counter()
model = jax.block_until_ready(unf.models.InvariantUNF(space, 1, 1, key=jax.random.key(0)))
made = time.perf_counter()
jax.block_until_ready(model.backbone.layers[0](x))
layer = time.perf_counter()
jax.block_until_ready(model(x))
print(made - start, layer - made, time.perf_counter() - layer)
"""
_CONSTRUCTED = (
    "InvariantUNF for a Transformer of 53 tensors",
    "its first layer, called without jit",
    "the whole model, called without jit",
)


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
    triples = [list(map(float, _output("-c", _CONSTRUCT).split())) for _ in range(3)]
    for name, column in zip(_CONSTRUCTED, zip(*triples, strict=True), strict=True):
        rows.append({"what": name, "seconds": statistics.median(column)})
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
