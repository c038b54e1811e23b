"""Meta-training: trajectory-steps per second for every task and kind of optimizer."""

import time
from typing import Any

import jax
import jax.numpy as jnp

from unf.lab.lopt import MetaTraining, first_theta
from unf.lab.lopt._options import PAPER, make_task
from unf.meta import InnerTraining, advance, begin
from unf.optim._theta import KINDS

WANTED = {("mlp", "unf"): 300_000}


def cases() -> list[tuple[str, str]]:
    """Tasks and kinds; NFN where it is not UNF and applies."""
    return [(task, kind) for task in PAPER for kind in KINDS if kind != "nfn" or task == "cnn"]


def run(name: str, kind: str, pairs: int = 16, steps: int | None = None) -> dict[str, Any]:
    """Meta-steps with the paper's windows, compiled before they are timed."""
    accelerator = jax.default_backend() != "cpu"
    steps = steps or (40 if accelerator else 1)
    task, _ = make_task(name)
    options = MetaTraining(pairs=pairs, window=50 if accelerator else 10)
    problem = InnerTraining(task.data().train, task)
    estimator, optimizer = options.make_estimator(task, 10.0), options.make_optimizer()
    key = jax.random.key(0)
    state = begin(problem, estimator, optimizer, first_theta(task, kind, options), key=key)
    seconds = []
    for count in (1, 1, steps):  # two compile: for the first state, and for those that follow
        started = time.perf_counter()
        state, metrics = advance(
            problem, estimator, optimizer.update, state, jnp.asarray(count), key=key, at_most=steps
        )
        jax.block_until_ready(metrics)
        seconds.append(time.perf_counter() - started)
    rate = 2 * pairs * options.window * steps / seconds[2]
    return {
        "task": name,
        "dataset": getattr(task, "dataset", ""),
        "kind": kind,
        "trajectories": 2 * pairs,
        "trajectory_steps_per_s": rate,
        "inner_step_us": 1e6 * seconds[2] / (options.window * steps),
        "compile_s": seconds[0],
    }


def report(rows: list[dict[str, Any]]) -> str:
    """A table of rates."""
    lines = [
        "| task | data | optimizer | trajectories | trajectory-steps/s | inner step | wanted |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        wanted = WANTED.get((r["task"], r["kind"]))
        lines.append(
            f"| {r['task']} | {r['dataset']} | {r['kind']} | {r['trajectories']} | "
            f"{r['trajectory_steps_per_s']:,.0f} | {r['inner_step_us']:,.0f} µs | "
            f"{f'≥ {wanted:,}' if wanted else ''} |"
        )
    return "\n".join(lines)
