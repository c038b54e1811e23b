"""On an accelerator: the GRU layer's gradient, and its distance to what the hardware allows."""

import statistics
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from unf.basis import cost_report, make_plan
from unf.nn import Pointwise, apply
from unf.testing import spaces

from ._measure import as_json, layer_arguments, layer_functions, measure

BATCHES = {10: 1.2e-3, 64: 4e-3}
CHANNELS = 16


def ceilings() -> dict[str, float]:
    """Measured copy bandwidth in bytes/s, and float32 matrix speed in FLOP/s."""
    x = jnp.ones((2**29,), jnp.float32)
    copy = _median(jax.jit(lambda x: x + 1.0), x)
    a = jax.random.normal(jax.random.key(0), (8192, 8192))
    speeds = {"bandwidth": 2 * x.nbytes / copy}
    for precision in ("default", "highest"):
        product = jax.jit(lambda a, p=precision: jnp.matmul(a, a, precision=p))
        speeds[f"matrix_{precision}"] = 2 * 8192**3 / _median(product, a)
    return speeds


def _median(function: Any, *args: Any) -> float:
    jax.block_until_ready(function(*args))
    times = []
    for _ in range(10):
        start = time.perf_counter()
        jax.block_until_ready(function(*args))
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def run(batch: int, speeds: dict[str, float]) -> dict[str, Any]:
    """The factored layer and a pointwise layer of the same size, against the floor."""
    space = spaces.gru_seq2seq().relax()
    plan = make_plan(space)
    args = layer_arguments(space, CHANNELS, CHANNELS, batch)
    found = {
        kind: measure(function, *args, seconds=1.0)
        for kind, function in layer_functions(apply, plan).items()
    }
    pointwise = Pointwise(eqx.nn.Linear(CHANNELS, CHANNELS, key=jax.random.key(0)))
    functions = layer_functions(lambda _, layer, x: layer(x), plan)
    found["pointwise gradient"] = measure(functions["gradient"], pointwise, args[1], seconds=1.0)
    # A gradient reads the input twice (forward, and for the coefficients), writes and reads the
    # output and its cotangent, and writes the input's cotangent: six passes at the least.
    size = 4 * CHANNELS * batch * space.num_weights
    flops = 3 * cost_report(space, CHANNELS, CHANNELS, batch=batch).total.flops
    floor = max(6 * size / speeds["bandwidth"], flops / speeds["matrix_default"])
    return {"batch": batch, "wanted_s": BATCHES.get(batch), "floor_s": floor, **as_json(found)}


def report(rows: list[dict[str, Any]], speeds: dict[str, float]) -> str:
    """A table of milliseconds."""
    lines = [
        f"bandwidth {speeds['bandwidth'] / 1e12:.2f} TB/s, float32 products "
        f"{speeds['matrix_default'] / 1e12:.0f} TFLOP/s by default, "
        f"{speeds['matrix_highest'] / 1e12:.0f} at highest precision",
        "",
        "| batch | forward | gradient | gradient, queued | wanted | pointwise gradient | floor |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        wanted = "" if row["wanted_s"] is None else f"≤ {row['wanted_s'] * 1e3:.1f}"
        lines.append(
            f"| {row['batch']} | {row['forward']['run_s'] * 1e3:.2f} ms | "
            f"{row['gradient']['run_s'] * 1e3:.2f} ms | "
            f"{row['gradient']['queued_s'] * 1e3:.2f} ms | {wanted} | "
            f"{row['pointwise gradient']['run_s'] * 1e3:.2f} ms | "
            f"{row['floor_s'] * 1e3:.2f} ms |"
        )
    return "\n".join(lines)
