"""One meta-training: from a task to a file with a learned optimizer, through interruptions."""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ..._devices import UnevenError, enough_memory, is_first, to_host
from ...meta._problem import InnerTraining
from ...meta._train import advance, begin, shard
from ...optim import FORMS, KINDS, Theta, init_theta
from .._progress import Progress
from ..tasks import Task, check_finite
from ._folder import Row, claim, describe, make_row, restore, store
from ._options import MetaError, MetaTraining


def meta_train(
    task: Task,
    kind: str,
    out: str | os.PathLike,
    options: MetaTraining | None = None,
    *,
    seed: int = 0,
    resume: bool = False,
    steps_per_call: int | None = None,
    seconds_between_checkpoints: float = 60.0,
    on_metrics: Callable[[Row], None] | None = None,
    show_progress: bool = True,
) -> Theta:
    """Meta-train a learned optimizer on a task.

    The folder `out` gets `optimizer.safetensors` (for `unf.optim.load`), `metrics.csv`,
    `config.json` and the last two `checkpoints`. Stopped at any moment, it goes on from the last
    one that is whole with `resume`, to the same result as without the stop. Pairs of runs are
    spread over all devices of all processes that `jax.distributed` knows.

    Args:
        task: what the optimizer learns to train.
        kind: one of `unf.optim.KINDS`.
        out: folder for results.
        options: how, by default as in the paper.
        seed: of everything random.
        resume: go on from a checkpoint, if there is one.
        steps_per_call: meta-steps to one call of the compiled function.
        seconds_between_checkpoints: how much work an interruption may cost.
        on_metrics: is given every row of the metrics.
        show_progress: show rate and time left on standard error.

    Raises:
        MetaError: if there are results already, or a checkpoint of another meta-training.
        DataError: if the task's data are missing or not finite.
    """
    options = options or MetaTraining()
    if kind not in KINDS:
        raise MetaError(f"unknown kind of optimizer {kind!r}; expected one of {list(KINDS)}")
    folder, keys = Path(out), _Keys.of(seed)
    data = task.data()
    check_finite(data, task.name)
    problem = InnerTraining(data.train, task)
    try:
        with _enough_memory(options):
            cut = _cut(problem, options.cut, keys.cut)
        estimator = options.make_estimator(task, cut)
    except ValueError as error:
        raise MetaError(str(error)) from error
    optimizer = options.make_optimizer()
    config = describe(task, kind, options, seed)
    checkpoints = claim(folder, config, resume=resume)
    theta = first_theta(task, kind, options, seed=seed)
    with _enough_memory(options):
        state = jax.block_until_ready(begin(problem, estimator, optimizer, theta, key=keys.runs))
    state, rows = restore(checkpoints, state)
    if int(state.step) == options.steps:
        return to_host(state.theta)
    try:
        with _enough_memory(options):
            state, problem = shard(state, problem, estimator)
    except UnevenError as error:
        raise MetaError(str(error)) from error
    per_call = steps_per_call or (10 if jax.default_backend() == "cpu" else 25)
    label, first, saved = f"{kind} on {task.name}", int(state.step), time.monotonic()
    with (
        _enough_memory(options),
        Progress(
            label, options.steps, unit="meta-steps", done=first, show=show_progress and is_first()
        ) as progress,
    ):
        try:
            while int(state.step) < options.steps:
                count = min(per_call, options.steps - int(state.step))
                after, metrics = advance(
                    problem, estimator, optimizer.update, state, jnp.asarray(count, jnp.int32),
                    key=keys.steps, at_most=per_call,
                )  # fmt: skip
                rows.append(make_row(after, metrics, count))
                state = after  # together with its row, so that none is lost by an interruption
                if on_metrics is not None:
                    on_metrics(rows[-1])
                progress.advance(count, _note(rows[-1]))
                if time.monotonic() - saved > seconds_between_checkpoints:
                    store(folder, checkpoints, state, rows, config)
                    saved = time.monotonic()
        finally:
            if int(state.step) > first:
                rows = rows[: _rows_until(rows, int(state.step))]
                store(folder, checkpoints, state, rows, config)
    return to_host(state.theta)


def first_theta(task: Task, kind: str, options: MetaTraining, *, seed: int = 0) -> Theta:
    """What a meta-training begins with; every axis is permuted, as in the paper."""
    return init_theta(
        kind,
        task.space.relax(),
        key=_Keys.of(seed).theta,
        form=FORMS[options.form],
        head_start=options.head_start,
        spatial=task.spatial if kind == "nfn" else (),
    )


def _enough_memory(options: MetaTraining) -> AbstractContextManager[None]:
    """Say what to make smaller if the device has no memory for it."""
    what, remedy = f"{options.pairs} pairs of runs at once", "choose fewer --pairs or a smaller"
    return enough_memory(MetaError, what, f"{remedy} --batch-size")


class _Keys(NamedTuple):
    """Streams of random numbers that have nothing in common."""

    theta: PRNGKeyArray
    cut: PRNGKeyArray
    runs: PRNGKeyArray
    steps: PRNGKeyArray

    @classmethod
    def of(cls, seed: int) -> "_Keys":
        return cls(*jax.random.split(jax.random.key(seed), len(cls._fields)))


def _cut(problem: InnerTraining, factor: float, key: PRNGKeyArray) -> float:
    """The loss that counts most: a multiple of the mean loss of untrained networks."""
    if not factor:
        return float("inf")
    task = problem.task

    @eqx.filter_jit
    def loss(problem: InnerTraining, key: PRNGKeyArray) -> Array:
        first, second = jax.random.split(key)
        return task.loss(task.init(key=first), task.batch(problem.data, key=second))

    mean = float(np.mean([loss(problem, k) for k in jax.random.split(key, 8)]))
    if not 0 < mean < float("inf"):
        raise MetaError(
            f"untrained networks of task {task.name!r} have a mean loss of {mean:.3g}, of which "
            "losses cannot be cut off at a multiple; choose cut=0, or mend the task"
        )
    return factor * mean


def _note(row: Row) -> str:
    lost = f", {row['lost']} runs lost" if row["lost"] else ""
    return f"loss {row['loss']:.4f}{lost}"


def _rows_until(rows: list[Row], step: int) -> int:
    return sum(row["step"] <= step for row in rows)
