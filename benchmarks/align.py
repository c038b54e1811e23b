"""Alignment and canonical forms of networks of real size: time and memory."""

import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

import unf
from unf.testing import spaces

NETWORKS = {"ResNet-50": spaces.resnet50, "GPT-2 small": spaces.gpt2}
CASES = ("independent", "noisy copy", "copy", "canonical form")


def run(network: str, case: str) -> dict[str, Any]:
    """One case, in a process of its own, since peak memory never falls."""
    command = [sys.executable, "-m", "benchmarks.align", network, case]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(found.stdout.splitlines()[-1])


def measure(network: str, case: str) -> dict[str, Any]:
    """Normal weights; a copy is permuted at random, and noise has a tenth of their deviation."""
    space = NETWORKS[network]()
    rng = np.random.default_rng(0)

    def draw() -> list[np.ndarray]:
        return [rng.standard_normal(leaf.shape, np.float32) for leaf in space.leaves]

    a = space.unflatten(draw())
    element = {
        name: rng.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1)
        for name, shape in space.index_shapes.items()
    }
    b = space.permute(a, element)
    if case == "independent":
        b = space.unflatten(draw())
    if case == "noisy copy":
        for leaf in space.flatten(b, channels=False):
            leaf += 0.1 * rng.standard_normal(leaf.shape, np.float32)
    found: Any = {}
    before, started = _peak(), time.perf_counter()
    if case == "canonical form":
        unf.canonicalize(space, a)
    else:
        found = unf.align(space, a, b)
    seconds, memory = time.perf_counter() - started, _peak() - before
    undone = None
    if "copy" in case:
        wanted = space.invert(element)
        undone = all(np.array_equal(found[name], wanted[name]) for name in found)
    return {
        "network": network,
        "case": case,
        "weights": space.num_weights,
        "seconds": seconds,
        "bytes": memory,
        "undone": undone,
    }


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def report(rows: list[dict[str, Any]]) -> str:
    """A table."""
    lines = [
        "| network | weights | what | time | rise of peak memory |",
        "|---|---|---|---|---|",
    ]
    for r in rows:
        note = "" if r["undone"] is None else ", undone" if r["undone"] else ", not undone"
        lines.append(
            f"| {r['network']} | {r['weights']:,} | {r['case']}{note} | {r['seconds']:.1f} s | "
            f"{r['bytes'] / 2**30:.2f} GiB |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:])))
