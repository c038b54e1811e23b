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


def cases() -> list[tuple[str, str, int]]:
    """Tasks, kinds and meta-trainings at once; NFN where it is not UNF and applies."""
    pairs = [(task, kind) for task in PAPER for kind in KINDS if kind != "nfn" or task == "cnn"]
    return [*((task, kind, 1) for task, kind in pairs), ("mlp", "unf", 4)]


def run(
    name: str, kind: str, seeds: int = 1, pairs: int = 16, steps: int | None = None
) -> dict[str, Any]:
    """Meta-steps with the paper's windows, compiled before they are timed."""
    accelerator = jax.default_backend() != "cpu"
    steps = steps or (40 if accelerator else 1)
    task, _ = make_task(name)
    options = MetaTraining(pairs=pairs, window=50 if accelerator else 10)
    problem = InnerTraining(task.data().train, task)
    estimator, optimizer = options.make_estimator(task, 10.0), options.make_optimizer()
    key = jax.random.key(0)
    thetas = [first_theta(task, kind, options, seed=seed) for seed in range(seeds)]
    states = [begin(problem, estimator, optimizer, theta, key=key) for theta in thetas]
    several = [(estimator, state, key) for state in states]
    estimator, state, key = several[0]
    if seeds > 1:
        estimator, state, key = jax.tree.map(lambda *x: jnp.stack(x), *several)
    seconds = []
    for count in (1, 1, steps):  # two compile: for the first state, and for those that follow
        started = time.perf_counter()
        state, metrics = advance(
            problem, estimator, optimizer.update, state, jnp.asarray(count), key=key, at_most=steps
        )
        jax.block_until_ready(metrics)
        seconds.append(time.perf_counter() - started)
    rate = 2 * pairs * seeds * options.window * steps / seconds[2]
    return {
        "task": name,
        "dataset": getattr(task, "dataset", ""),
        "kind": kind,
        "seeds": seeds,
        "trajectories": 2 * pairs * seeds,
        "trajectory_steps_per_s": rate,
        "inner_step_us": 1e6 * seconds[2] / (options.window * steps),
        "compile_s": seconds[0],
    }


def report(rows: list[dict[str, Any]]) -> str:
    """A table of rates; those of several meta-trainings at once beside that of one."""
    lines = [
        "| task | data | optimizer | at once | trajectories | trajectory-steps/s | inner step "
        "| wanted |",
        "|---|---|---|---|---|---|---|---|",
    ]
    alone = {(r["task"], r["kind"]): r for r in rows if r["seeds"] == 1}
    for r in rows:
        case, rate = (r["task"], r["kind"]), r["trajectory_steps_per_s"]
        wanted = WANTED.get(case) if r["seeds"] == 1 else None
        note = f"≥ {wanted:,}" if wanted else ""
        if r["seeds"] > 1 and case in alone:
            note = f"{rate / alone[case]['trajectory_steps_per_s']:.2f} times the rate of one"
        lines.append(
            f"| {r['task']} | {r['dataset']} | {r['kind']} | {r['seeds']} | {r['trajectories']} | "
            f"{rate:,.0f} | {r['inner_step_us']:,.0f} µs | {note} |"
        )
    return "\n".join(lines)
