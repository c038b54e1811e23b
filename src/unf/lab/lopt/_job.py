"""One meta-training: from tasks to a file with a learned optimizer, through interruptions."""

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import inf, log
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from ..._devices import is_first, to_host
from ..._persistence import Checkpoints, write_whole
from ..._progress import Progress
from ...meta import Estimator, InnerTraining, MeanEstimator, RelativeLoss, Task
from ...meta._train import MetaState, Metrics, advance, begin, shard
from ...optim import FORMS, Theta, init_theta, save
from ...optim._theta import KINDS
from ...spec import SpecError
from ...spec._space import check_differs_in_sizes
from .._folder import claim, described, job_errors, provenance
from ..tasks._task import check_finite
from ._options import MetaError, MetaTraining

Row = dict[str, float | int]
"""One line of the metrics."""
COLUMNS: tuple[str, ...] = ("step", "loss", "gradient_norm", "lost", "alpha", "gamma", "beta")
CONFIG, METRICS, OPTIMIZER = "config.json", "metrics.csv", "optimizer.safetensors"
_WHAT = {"what": "checkpoint of a meta-training"}


def meta_train(
    task: Task | Sequence[Task],
    kind: str,
    out: str | os.PathLike,
    options: MetaTraining | None = None,
    *,
    seed: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    steps_per_call: int | None = None,
    seconds_between_checkpoints: float = 60.0,
    on_metrics: Callable[[Row], None] | None = None,
    show_progress: bool = True,
) -> Theta:
    """Meta-train a learned optimizer on a task, or on several at once.

    On several tasks, every meta-step continues runs on each of them and averages their
    meta-gradients. The losses of a task are then log(loss/loss of an untrained network), so that
    they are comparable, in the metrics too.

    The folder `out` gets `optimizer.safetensors` (for `unf.optim.load`), `metrics.csv`,
    `config.json` and the last two `checkpoints`. If it stops at any moment, `resume=True`
    continues from the last complete checkpoint, to the same result. Pairs of runs are sharded
    across all devices of all processes that `jax.distributed` knows.

    Args:
        task: what the optimizer learns to train; for "nfn" and "unf", several tasks must have the
            same weight space.
        kind: "sgdm", "deepset", "nfn", "unf" or "tied".
        out: the folder for results.
        options: the settings of meta-training, by default the paper's.
        seed: the seed of everything random.
        resume: continue from a checkpoint, if there is one.
        overwrite: delete the results of an earlier meta-training in `out`.
        steps_per_call: meta-steps in one call of the compiled function.
        seconds_between_checkpoints: how much work an interruption may cost.
        on_metrics: is called with every row of the metrics.
        show_progress: show the rate and the time left on standard error.

    Raises:
        MetaError: if there are results already, or those to resume are of another meta-training;
            or if the tasks have several weight spaces, and the optimizer works on one.
        DataError: if a task's data are missing or not finite.
    """
    options, folder, tasks = options or MetaTraining(), Path(out), _several(task)
    if kind not in KINDS:
        raise MetaError(f"unknown kind of optimizer {kind!r}; expected one of {list(KINDS)}")
    _, cut_key, runs_key, steps_key = _keys(seed)
    theta, optimizer = first_theta(tasks, kind, options, seed=seed), options.make_optimizer()
    with _errors(folder, options):
        problem, estimator = _problem(tasks, options, key=cut_key)
    config = describe(tasks, kind, options, seed)
    checkpoints = claim(
        folder, {**_WHAT, **config}, outputs=(METRICS, OPTIMIZER), known=_known(folder / CONFIG),
        resume=resume, overwrite=overwrite, error=MetaError,
    )  # fmt: skip
    if is_first():
        write_whole(folder / CONFIG, json.dumps(config, indent=1))
    with _errors(folder, options):
        state = jax.block_until_ready(begin(problem, estimator, optimizer, theta, key=runs_key))
        state, rows = restore(checkpoints, state)
        first, saved = int(state.step), time.monotonic()
        if first == options.steps:
            return to_host(state.theta)
        state, problem = shard(state, problem, estimator)
        now = state, rows
        per_call = steps_per_call or (10 if jax.default_backend() == "cpu" else 25)
        label = f"{kind} on {task.name if isinstance(task, Task) else f'{len(tasks)} tasks'}"
        show = show_progress and is_first()
        with Progress(label, options.steps, unit="meta-steps", done=first, show=show) as progress:
            try:
                while (left := options.steps - int(now[0].step)) > 0:
                    count = min(per_call, left)
                    state, metrics = advance(
                        problem, estimator, optimizer.update, now[0], jnp.asarray(count, jnp.int32),
                        key=steps_key, at_most=per_call,
                    )  # fmt: skip
                    row = _row(state, metrics, count)
                    now = state, [*now[1], row]  # in one step, so that no interruption parts them
                    if on_metrics is not None:
                        on_metrics(row)
                    progress.advance(count, _note(row))
                    if time.monotonic() - saved > seconds_between_checkpoints:
                        store(folder, checkpoints, *now, config)
                        saved = time.monotonic()
            finally:
                if int(now[0].step) > first:
                    store(folder, checkpoints, *now, config)
    return to_host(now[0].theta)


def first_theta(
    task: Task | Sequence[Task], kind: str, options: MetaTraining, *, seed: int = 0
) -> Theta:
    """The θ that a meta-training begins with; every axis is permuted, as in the paper.

    Raises:
        MetaError: if the optimizer works on one weight space, and the tasks have several.
    """
    first, *others = _several(task)
    spaces = (
        [each.space.relax() for each in (first, *others)] if kind not in ("sgdm", "deepset") else []
    )
    for other, space in zip(others, spaces[1:], strict=False) if kind in ("nfn", "unf") else ():
        try:
            check_differs_in_sizes(space, spaces[0])
        except SpecError as error:
            raise MetaError(
                f"the tasks {first.name!r} and {other.name!r} have different weight spaces, and an "
                f"optimizer of kind {kind!r} works on one; choose kind 'tied' or 'deepset', or "
                f"tasks with the same network\n{error}"
            ) from error
    return init_theta(
        kind,
        spaces if kind == "tied" else spaces[0] if spaces else None,
        key=_keys(seed)[0],
        form=FORMS[options.form],
        head_start=options.head_start,
        spatial=first.spatial if kind == "nfn" else (),
    )


def describe(
    task: Task | Sequence[Task], kind: str, options: MetaTraining, seed: int
) -> dict[str, Any]:
    """What distinguishes this meta-training from all others; where data are does not matter.

    Raises:
        MetaError: if a task has fields that JSON cannot hold.
    """
    tasks = _several(task)
    about: dict[str, Any] = {"format": 1, "task": ",".join(one.name for one in tasks)}
    if len(tasks) == 1:
        about |= {f"task.{k}": v for k, v in _fields(tasks[0]).items()}
    else:
        about["tasks"] = [{"task": one.name, **_fields(one)} for one in tasks]
    return json.loads(json.dumps({**about, "kind": kind, **described(options), "seed": seed}))


def _fields(task: Task) -> dict[str, Any]:
    """The settings of a task that tell it apart from others with its name."""
    try:
        fields = {k: v for k, v in described(task).items() if k != "folder"}
        return json.loads(json.dumps(fields))
    except (TypeError, AttributeError) as error:
        raise MetaError(
            f"the task {type(task).__name__} cannot be described ({error}); make it a frozen "
            "dataclass with a name, whose fields are numbers, strings or tuples of them"
        ) from error


def _several(task: Task | Sequence[Task]) -> tuple[Task, ...]:
    """The tasks, as a tuple."""
    tasks = (task,) if isinstance(task, Task) else tuple(task)
    if not tasks:
        raise MetaError("there are no tasks; expected at least one")
    return tasks


def _known(file: Path) -> dict[str, Any]:
    """The job that a configuration describes; empty if it is missing or damaged."""
    try:
        return {**_WHAT, **json.loads(file.read_text())}
    except (OSError, ValueError, TypeError, RecursionError):
        return {}


def restore(checkpoints: Checkpoints, state: MetaState) -> tuple[MetaState, list[Row]]:
    """The state and metrics of the last complete checkpoint, or those of a beginning.

    Raises:
        CheckpointError: if there are checkpoints, but none is complete.
        MetaError: if the metrics in the last one are damaged.
    """
    found = checkpoints.restore(state)
    if found is None:
        return state, []
    try:
        texts = [dict(zip(COLUMNS, row, strict=True)) for row in found[2]["metrics"]]
        rows = [{k: int(x) if x.isdigit() else float(x) for k, x in row.items()} for row in texts]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MetaError(
            f"{checkpoints.folder}: the metrics in the last checkpoint are damaged ({error!r}); "
            "remove that checkpoint to continue from the one before"
        ) from error
    return found[1], rows


def store(
    folder: Path,
    checkpoints: Checkpoints,
    state: MetaState,
    rows: list[Row],
    config: dict[str, Any],
) -> None:
    """Write metrics, optimizer and checkpoint, each completely or not at all.

    The checkpoint comes last and has the metrics too: the other files are never older.
    """
    step = int(state.step)
    texts = [[f"{row[c]:.8g}" for c in COLUMNS] for row in rows]
    if is_first():
        lines = [",".join(line) for line in [list(COLUMNS), *texts]]
        write_whole(folder / METRICS, "\n".join(lines) + "\n")
        origin = {**config, "trained_steps": step, **provenance()}
        save(folder / OPTIMIZER, to_host(state.theta), **origin)
    checkpoints.save(step, state, {"metrics": texts})


class Pace:
    """Measures trajectory-steps per second: pass it to `meta_train` as `on_metrics`.

    The time between two rows of the metrics is that of one call of the compiled function; the
    median leaves out compilation and checkpoints.
    """

    def __init__(self, options: MetaTraining, trainings: int = 1):
        """Count the runs of so many meta-trainings or tasks at once."""
        self._each = options.window * 2 * options.pairs * trainings
        self._seen: list[tuple[float, float]] = []

    def __call__(self, row: Row) -> None:
        """Take the time."""
        self._seen.append((time.perf_counter(), row["step"]))

    @property
    def rate(self) -> float | None:
        """Steps per second of all inner trainings together; None after fewer than two calls."""
        if len(self._seen) < 2:
            return None
        seconds, steps = np.diff(np.array(self._seen), axis=0).T
        return float(np.median(steps / seconds) * self._each)


def _keys(seed: int) -> Key[Array, "4"]:
    """Independent keys: for θ, the cut, the first states of the runs, and the meta-steps."""
    return jax.random.split(jax.random.key(seed), 4)


def _errors(folder: Path, options: MetaTraining) -> AbstractContextManager[None]:
    what = f"{options.pairs} pairs of runs at once"
    return job_errors(MetaError, folder, what, "choose a smaller pairs= or batch_size=")


def _problem(
    tasks: tuple[Task, ...], options: MetaTraining, *, key: PRNGKeyArray
) -> tuple[Any, Estimator]:
    """What is unrolled, and its estimator, which cuts losses off.

    With several tasks, losses are relative to those of untrained networks, which do not depend
    on the seed, so that the losses of several meta-trainings compare.
    """
    problems = [_inner_training(task, options) for task in tasks]
    if len(tasks) == 1:
        what = "cut off at a multiple of it; choose cut=0, or correct the task"
        limit = options.cut * _untrained_loss(problems[0], what, key=key) if options.cut else inf
        return problems[0], _estimator(tasks[0], options, limit)
    what, key = "compared with it; correct the task", jax.random.key(0)
    relative = [RelativeLoss(one, _untrained_loss(one, what, key=key)) for one in problems]
    limit = log(options.cut) if options.cut else inf
    return tuple(relative), MeanEstimator([_estimator(task, options, limit) for task in tasks])


def _estimator(task: Task, options: MetaTraining, limit: float) -> Estimator:
    try:
        return options.make_estimator(task, limit)
    except ValueError as error:
        raise MetaError(f"task {task.name!r}: {error}") from error


def _inner_training(task: Task, options: MetaTraining) -> InnerTraining:
    data = task.data()
    check_finite(data, task.name)
    return InnerTraining(data.train, task, options.reparametrize)


def _untrained_loss(problem: InnerTraining, what: str, *, key: PRNGKeyArray) -> float:
    """The mean loss of eight untrained networks, which must be positive for `what` to work."""
    task = problem.task

    @eqx.filter_jit
    def loss(problem: InnerTraining, key: PRNGKeyArray) -> Array:
        first, second = jax.random.split(key)
        return task.loss(task.init(key=first), task.batch(problem.data, key=second))

    mean = float(np.mean([loss(problem, k) for k in jax.random.split(key, 8)]))
    if not 0 < mean < inf:
        raise MetaError(
            f"untrained networks of task {task.name!r} have a mean loss of {mean:.3g}, so that "
            f"losses cannot be {what}"
        )
    return mean


def _row(state: MetaState, metrics: Metrics, count: int) -> Row:
    """The means of the first `count` meta-steps of a call, and the scalars of θ after it."""
    theta, nan = state.theta, float("nan")
    losses, norms, lost = (np.asarray(x)[:count] for x in metrics)
    losses = losses[np.isfinite(losses)]
    return {
        "step": int(state.step),
        "loss": float(losses.mean()) if len(losses) else nan,
        "gradient_norm": float(norms.mean()),
        "lost": int(lost.sum()),
        "alpha": float(theta.alpha),
        "gamma": float(theta.gamma),
        "beta": float(theta.beta) if "log_beta" in theta.scalars else nan,
    }


def _note(row: Row) -> str:
    return f"loss {row['loss']:.4f}" + (f", {row['lost']} runs lost" if row["lost"] else "")
