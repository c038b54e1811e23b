"""Meta-training: trajectory-steps per second for every task and kind of optimizer."""

import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from unf.lab.lopt import MetaTraining, first_theta
from unf.lab.lopt._options import PAPER, make_task
from unf.meta import InnerTraining, advance, begin
from unf.optim._theta import KINDS

WANTED = {"mlp": 107, "cnn": 700, "rnn": 350, "transformer": 1500}
"""Microseconds of an inner step with UNF, on one H200."""
PROFILED = 2
"""Meta-steps."""
LONGEST = 12
"""Kernels that are listed."""


def cases() -> list[tuple[str, str, int]]:
    """Tasks, kinds and meta-trainings at once; NFN where it is not UNF and applies."""
    pairs = [(task, kind) for task in PAPER for kind in KINDS if kind != "nfn" or task == "cnn"]
    return [*((task, kind, 1) for task, kind in pairs), ("mlp", "unf", 4)]


def run(
    name: str, kind: str, seeds: int = 1, pairs: int = 16, steps: int | None = None
) -> dict[str, Any]:
    """Meta-steps with the paper's windows, compiled before they are timed."""
    accelerator, gpu = jax.default_backend() != "cpu", jax.default_backend() == "gpu"
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

    def timed(state: Any, count: int) -> tuple[Any, float]:
        started = time.perf_counter()
        state, metrics = advance(
            problem, estimator, optimizer.update, state, jnp.asarray(count), key=key, at_most=steps
        )
        jax.block_until_ready(metrics)
        return state, time.perf_counter() - started

    # two compile: for the first state, and for those that follow
    state, first = timed(state, 1)
    state, _ = timed(state, 1)
    state, seconds = timed(state, steps)
    profile: dict[str, Any] = {}
    if gpu:
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                timed(state, PROFILED)
            profile = _kernels(Path(folder), PROFILED * options.window)
    rate = 2 * pairs * seeds * options.window * steps / seconds
    return {
        "task": name,
        "dataset": getattr(task, "dataset", ""),
        "kind": kind,
        "seeds": seeds,
        "trajectories": 2 * pairs * seeds,
        "trajectory_steps_per_s": rate,
        "inner_step_us": 1e6 * seconds / (options.window * steps),
        "compile_s": first,
        **profile,
    }


def _kernels(folder: Path, steps: int) -> dict[str, Any]:
    """How many kernels an inner step has, and those that take longest, in µs, from a profile."""
    file = next(folder.rglob("*.xplane.pb"))
    times, counts = Counter[str](), Counter[str]()
    for plane in jax.profiler.ProfileData.from_file(str(file)).planes:
        if "GPU" not in plane.name:
            continue
        for event in (e for line in plane.lines if "Stream" in line.name for e in line.events):
            times[event.name] += event.duration_ns
            counts[event.name] += 1
    longest = [
        {"kernel": name, "calls": counts[name] / steps, "us": ns / steps / 1e3}
        for name, ns in times.most_common(LONGEST)
    ]
    totals = {"kernels": counts.total() / steps, "kernels_us": times.total() / steps / 1e3}
    return {**totals, "longest": longest}


def report(rows: list[dict[str, Any]]) -> str:
    """A table of rates; those of several meta-trainings at once beside that of one."""
    lines = [
        "| task | data | optimizer | at once | trajectories | trajectory-steps/s | inner step "
        "| kernels | the longest | wanted on an H200 |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    alone = {(r["task"], r["kind"]): r for r in rows if r["seeds"] == 1}
    for r in rows:
        case, rate = (r["task"], r["kind"]), r["trajectory_steps_per_s"]
        note = f"≤ {WANTED[r['task']]:,} µs" if r["kind"] == "unf" and r["seeds"] == 1 else ""
        if r["seeds"] > 1 and case in alone:
            note = f"{rate / alone[case]['trajectory_steps_per_s']:.2f} times the rate of one"
        kernels = f"{r['kernels']:.0f}" if "kernels" in r else ""
        longest = [f"{x['kernel']} {x['us']:.0f} µs" for x in r.get("longest", ())[:2]]
        lines.append(
            f"| {r['task']} | {r['dataset']} | {r['kind']} | {r['seeds']} | {r['trajectories']} | "
            f"{rate:,.0f} | {r['inner_step_us']:,.0f} µs | {kernels} | "
            f"{', '.join(longest)} | {note} |"
        )
    return "\n".join(lines)
