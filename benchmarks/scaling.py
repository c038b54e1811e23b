"""What spreading over devices costs, on virtual ones, and what it would give on real ones."""

import json
import os
import subprocess
import sys
import time
from typing import Any

DEVICES = (1, 2, 4, 8)
GPUS = (1, 8, 64)
LINKS = {8: (300e9, 20e-6), 64: (40e9, 60e-6)}
"""Bytes a second and seconds of latency of an all-reduce: within a host, between hosts."""
MEASURED = {
    "zoo": {"step_s": 256 / 67_900, "bytes": 0, "what": "256 models a device, batch 128"},
    "predictor": {
        "step_s": 171.6 / 8_000, "bytes": 4 * 5 * 1_531_585, "what": "5 UNFs, batch of 10",
    },
    "meta-training": {
        "step_s": 50 * 97e-6, "bytes": 4 * 3_783, "what": "MLP, UNF, 16 pairs a device",
    },
}  # fmt: skip
"""On one H200 (docs/results.md): seconds of a step, and bytes that all devices add up after it."""


def run(devices: int) -> dict[str, Any]:
    """Rates of the three jobs in a process with so many virtual devices of this machine."""
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": str(devices), "JAX_PLATFORMS": "cpu"}
    words = [sys.executable, "-m", "benchmarks.scaling"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    return {"devices": devices, **json.loads(done.stdout.splitlines()[-1])}


def estimate(job: str, gpus: int) -> float:
    """Efficiency when work grows with the number of GPUs: the share of a step that is work.

    A step lasts t, and an all-reduce of b bytes among n devices l + 2 b (n − 1) / (n w), with
    latency l and bandwidth w; nothing is assumed to overlap.
    """
    step, size = MEASURED[job]["step_s"], MEASURED[job]["bytes"]
    if gpus == 1 or not size:
        return 1.0
    bandwidth, latency = LINKS[gpus]
    return step / (step + latency + 2 * size * (gpus - 1) / gpus / bandwidth)


def report(rows: list[dict[str, Any]]) -> str:
    """Two tables."""
    jobs = [name for name in rows[0] if name != "devices"]
    lines = [f"| virtual devices | {' | '.join(jobs)} |", "|---|" + "---|" * len(jobs)]
    for row in rows:
        ratios = [f"{row[job]:,.0f} ({row[job] / rows[0][job]:.2f})" for job in jobs]
        lines.append(f"| {row['devices']} | {' | '.join(ratios)} |")
    lines += ["", f"| job | on each | {' | '.join(f'{n} GPUs' for n in GPUS)} |",
              "|---|---|" + "---|" * len(GPUS)]  # fmt: skip
    for job, about in MEASURED.items():
        times = [f"{n * estimate(job, n):.1f}×" for n in GPUS]
        lines.append(f"| {job} | {about['what']} | {' | '.join(times)} |")
    return "\n".join(lines)


def _measure() -> dict[str, float]:
    """Model-steps, meta-steps and predictor steps per second on the devices of this process."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from unf.lab.lopt import MetaTraining, first_theta
    from unf.lab.tasks import MLPTask
    from unf.lab.zoos import TinyRNN
    from unf.lab.zoos._train import train_chunk
    from unf.meta import InnerTraining, advance, begin
    from unf.meta._train import shard
    from unf.models import InvariantUNF, fit

    def rate(work, go) -> float:
        go()
        started = time.perf_counter()
        go()
        return work / (time.perf_counter() - started)

    recipe = TinyRNN(hidden=16, digits=1, steps=100, problems=10)
    keys = jax.random.split(jax.random.key(0), 64)
    zoo = rate(64 * 100, lambda: jax.block_until_ready(train_chunk(recipe, keys, 32).params))
    task, options = MLPTask(dataset="digits"), MetaTraining(pairs=8, window=10, horizon=100)
    estimator, optimizer = options.make_estimator(task, 10.0), options.make_optimizer()
    problem, key = InnerTraining(task.data().train, task), jax.random.key(0)
    state = begin(problem, estimator, optimizer, first_theta(task, "unf", options), key=key)
    state, problem = shard(state, problem, estimator)
    meta = rate(
        16 * 10 * 5,
        lambda: jax.block_until_ready(
            advance(
                problem, estimator, optimizer.update, state, jnp.asarray(5), key=key, at_most=5
            )
        ),
    )  # fmt: skip
    space = recipe.task.space
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(64, *leaf.shape)).astype(np.float32) for leaf in space.leaves]
    examples = space.unflatten(weights), np.full(64, 0.5, np.float32)
    model = InvariantUNF(space.relax(), 1, 1, key=key)

    def train() -> None:
        options = {"loss": "bce", "epochs": 1, "batch_size": 8, "standardize": False}
        fit(model, *examples, key=key, validation=examples, progress=False, **options)

    return {
        "zoo, model-steps/s": zoo,
        "meta-training, trajectory-steps/s": meta,
        "predictor, examples/s": rate(64, train),
    }


if __name__ == "__main__":
    print(json.dumps(_measure()))
