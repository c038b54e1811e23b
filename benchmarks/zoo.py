"""Training many recurrent networks at once: model-steps per second."""

import dataclasses
import time
from typing import Any

import jax

from unf.lab.zoos import TinyRNN
from unf.lab.zoos._train import train_chunk

WANTED = 50_000
ON_ACCELERATORS = [
    (128, 128, dtype, models) for dtype in ("float32", "bfloat16") for models in (256, 1024)
]
ON_CPUS = [(16, 64, "float32", 44), (16, 128, "float32", 44)]


def cases() -> list[tuple[int, int, str, int]]:
    """State size, batch size, type of activations and number of models, for this machine."""
    return ON_CPUS if jax.default_backend() == "cpu" else ON_ACCELERATORS


def run(hidden: int, batch: int, dtype: str, models: int, steps: int = 100) -> dict[str, Any]:
    """Train a chunk twice, so that the second time nothing is compiled; measuring left out."""
    recipe = TinyRNN(hidden=hidden, dtype=dtype, steps=steps, problems=1)
    keys = jax.random.split(jax.random.key(0), models)
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        jax.block_until_ready(train_chunk(recipe, keys, batch))
        seconds.append(time.perf_counter() - started)
    return {
        **{k: v for k, v in dataclasses.asdict(recipe).items() if k in ("hidden", "dtype")},
        "batch": batch,
        "models": models,
        "model_steps_per_s": models * steps / seconds[1],
        "compile_s": seconds[0] - seconds[1],
    }


def report(rows: list[dict[str, Any]]) -> str:
    """A table of rates."""
    lines = [
        "| state | batch | activations | models at once | model-steps/s | compile |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['hidden']} | {r['batch']} | {r['dtype']} | {r['models']} | "
        f"{r['model_steps_per_s']:,.0f} | {r['compile_s']:.1f} s |"
        for r in rows
    ]
    return "\n".join(lines)
