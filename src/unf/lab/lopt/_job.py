"""Meta-training: from tasks to a file with a learned optimizer, through interruptions."""

import dataclasses
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from math import inf, log
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key, PRNGKeyArray

from ..._devices import in_threads, is_first, to_host
from ..._persistence import Checkpoints, write_whole
from ..._progress import Progress
from ...meta import Estimator, InnerTraining, MeanEstimator, RelativeLoss, Task
from ...meta._train import MetaState, Metrics, advance, begin, shard
from ...optim import FORMS, Form, Theta, init_theta, save
from ...optim._theta import KINDS
from ...spec import SpecError
from ...spec._space import check_differs_in_sizes
from .._folder import claim, described, job_errors, provenance
from ..tasks._task import check_finite
from ._options import MetaError, MetaTraining

Row = dict[str, float | int]
"""One line of the metrics."""
CONFIG, METRICS, OPTIMIZER = "config.json", "metrics.csv", "optimizer.safetensors"
SEED = re.compile(r"seed-\d+")
"""The folder of one of several meta-trainings."""
_WHAT = {"what": "checkpoint of a meta-training"}


def meta_train(
    task: Task | Sequence[Task],
    kind: str,
    out: str | os.PathLike,
    options: MetaTraining | None = None,
    *,
    seed: int = 0,
    seeds: int = 1,
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

    With several `seeds`, so many meta-trainings run in one program, each as it would alone up to
    rounding. Each has its results in a folder of its own inside `out`, `seed-0` and so on, and
    all share their checkpoints.

    Args:
        task: what the optimizer learns to train; for "nfn" and "unf", the weight spaces of several
            tasks may differ only in the sizes of axes.
        kind: "sgdm", "deepset", "nfn", "unf" or "tied".
        out: the folder for results.
        options: the settings of meta-training, by default the paper's.
        seed: the seed of everything random.
        seeds: how many meta-trainings to run at once, with the seeds `seed`, `seed + 1` and so on.
        resume: continue from a checkpoint, if there is one.
        overwrite: delete the results of an earlier meta-training in `out`.
        steps_per_call: meta-steps in one call of the compiled function.
        seconds_between_checkpoints: how much work an interruption may cost.
        on_metrics: is called with every row of the metrics, or with the mean over several seeds.
        show_progress: show the rate and the time left on standard error.

    Returns:
        θ; the arrays of several seeds are stacked along a new first axis.

    Raises:
        MetaError: if there are results already, or those to resume are of another meta-training;
            or if the tasks have several weight spaces, and the optimizer works on one.
        DataError: if a task's data are missing or not finite.
    """
    options, folder, tasks = options or MetaTraining(), Path(out), several(task)
    if seeds < 1:
        raise MetaError(f"seeds is {seeds}; expected at least 1")
    members = {f"seed-{seed + i}": Member(options, seed + i) for i in range(seeds)}
    return train_together(
        tasks,
        kind,
        folder,
        members if seeds > 1 else {"": members[f"seed-{seed}"]},
        describe(tasks, kind, options, seed, seeds),
        resume=resume,
        overwrite=overwrite,
        steps_per_call=steps_per_call,
        seconds_between_checkpoints=seconds_between_checkpoints,
        on_metrics=on_metrics,
        show_progress=show_progress,
    )


class Member(NamedTuple):
    """One of several meta-trainings in one program."""

    options: MetaTraining
    seed: int


def train_together(
    tasks: tuple[Task, ...],
    kind: str,
    folder: Path,
    members: Mapping[str, Member],
    config: dict[str, Any],
    *,
    resume: bool,
    overwrite: bool,
    steps_per_call: int | None = None,
    seconds_between_checkpoints: float = 60.0,
    on_metrics: Callable[[Row], None] | None = None,
    show_progress: bool = True,
) -> Theta:
    """Meta-train optimizers that differ in no more than seed, rate, σ and start, in one program.

    Args:
        tasks: what the optimizers learn to train.
        kind: their kind.
        folder: the folder for results.
        members: the meta-trainings, by the folder for the results of each inside `folder`.
        config: what distinguishes all of them from other jobs.
        resume: see `meta_train`, also for what follows.
        overwrite: as there.
        steps_per_call: as there.
        seconds_between_checkpoints: as there.
        on_metrics: as there.
        show_progress: as there.
    """
    every = list(members.values())
    _check(kind, len(every))
    options = every[0].options
    thetas = [first_theta(tasks, kind, each.options, seed=each.seed) for each in every]
    with _errors(folder, options, len(every)):
        program = make_program(tasks, every)
    places = {
        folder / name: describe(tasks, kind, each.options, each.seed)
        for name, each in members.items()
    }
    checkpoints = _claim(folder, config, places, resume=resume, overwrite=overwrite)
    with _errors(folder, options, len(every)):
        state, rows = restore(checkpoints, program.begin(thetas, [_keys(x.seed)[2] for x in every]))
        first, saved = _step(state), time.monotonic()
        if first == options.steps:
            return to_host(state.theta)
        state, program = program.shard(state)
        now = state, rows
        per_call = steps_per_call or default_steps_per_call()
        label, show = _label(tasks, kind, len(every)), show_progress and is_first()
        with Progress(label, options.steps, unit="meta-steps", done=first, show=show) as progress:
            try:
                while (left := options.steps - _step(now[0])) > 0:
                    count = min(per_call, left)
                    state, metrics = program.advance(now[0], count, at_most=per_call)
                    found = _rows(state, metrics, count)
                    now = state, [*now[1], found]  # in one step, so that no interruption parts them
                    row = _mean_row(found)
                    if on_metrics is not None:
                        on_metrics(row)
                    progress.advance(count, _note(row))
                    if time.monotonic() - saved > seconds_between_checkpoints:
                        store(places, checkpoints, *now)
                        saved = time.monotonic()
            finally:
                if _step(now[0]) > first:
                    store(places, checkpoints, *now)
    return to_host(now[0].theta)


def default_steps_per_call() -> int:
    """Meta-steps in one call of the compiled function."""
    return 10 if jax.default_backend() == "cpu" else 25


class Program(NamedTuple):
    """What several meta-trainings need besides their state; arrays are stacked."""

    problem: Any
    estimator: Estimator
    optimizer: optax.GradientTransformation
    update: "_Scaled"
    key: Any

    def begin(self, thetas: Sequence[Theta], keys: Sequence[PRNGKeyArray]) -> MetaState:
        """The state before the first meta-step, with the keys of the first states of the runs."""
        copies = [self.estimator] if len(thetas) == 1 else unstack(self.estimator, len(thetas))
        starts = zip(copies, thetas, keys, strict=True)
        states = [
            begin(self.problem, e, self.optimizer, theta, key=key) for e, theta, key in starts
        ]
        return jax.block_until_ready(_together(states))

    def shard(self, state: MetaState) -> tuple[MetaState, "Program"]:
        """The state and the problem across all devices."""
        state, problem = shard(state, self.problem, self.estimator)
        return state, self._replace(problem=problem)

    def advance(self, state: MetaState, count: int, at_most: int) -> tuple[MetaState, Metrics]:
        """Make so many meta-steps."""
        args = self.problem, self.estimator, self.update, state, count
        return advance(*args, key=self.key, at_most=at_most)


def make_program(tasks: tuple[Task, ...], members: Sequence[Member]) -> Program:
    """The program of several meta-trainings."""
    options, problem = members[0].options, _problem(tasks, members[0].options)
    estimators = [_estimator(problem, tasks, x.options, key=_keys(x.seed)[1]) for x in members]
    optimizer = dataclasses.replace(options, learning_rate=1.0).make_optimizer()
    rates = [jnp.asarray(x.options.learning_rate, jnp.float32) for x in members]
    update, key = _Scaled(optimizer.update, _together(rates)), [_keys(x.seed)[3] for x in members]
    return Program(problem, _together(estimators), optimizer, update, _together(key))


class _Scaled(eqx.Module):
    """An update function, times the learning rate of each meta-training."""

    update: Callable = eqx.field(static=True)
    rate: Float[Array, "*copies"]

    def __call__(self, gradient: Any, memory: Any, theta: Any) -> tuple[Any, Any]:
        """The update of θ, and the next state of the meta-optimizer."""
        updates, memory = self.update(gradient, memory, theta)
        return jax.tree.map(lambda x: self.rate.astype(x.dtype) * x, updates), memory


def _check(kind: str, seeds: int) -> None:
    """Refuse unknown optimizers, and several meta-trainings in several processes."""
    if kind not in KINDS:
        raise MetaError(f"unknown kind of optimizer {kind!r}; expected one of {list(KINDS)}")
    if seeds > 1 and jax.process_count() > 1:
        raise MetaError(
            f"{seeds} meta-trainings at once run in one process; choose seeds=1, or start one "
            "process"
        )


def _claim(
    folder: Path, config: dict[str, Any], places: Mapping[Path, dict[str, Any]], **how: bool
) -> Checkpoints:
    """Claim the folder, and describe the job and every meta-training; returns its checkpoints."""
    outputs = [f"{at}{name}" for at in ("", "seed-*/", "trial-*/") for name in (METRICS, OPTIMIZER)]
    known, job = _known(folder / CONFIG), {**_WHAT, **config}
    checkpoints = claim(folder, job, outputs=outputs, known=known, error=MetaError, **how)
    if is_first():
        for place, about in {**places, folder: config}.items():
            place.mkdir(exist_ok=True)
            write_whole(place / CONFIG, json.dumps(about, indent=1))
    return checkpoints


def named(optimizers: Sequence[str]) -> dict[str, str | Path]:
    """Paths by the shortest ends that tell them apart; that of a seed has its folder's name too.

    A folder of several meta-trainings stands for all of them.

    >>> list(named(["out/unf/seed-0", "out/deepset/seed-0/optimizer.safetensors", "out/sgdm"]))
    ['unf/seed-0', 'deepset/seed-0', 'sgdm']
    """
    found = [path for name in optimizers for path in _files(Path(name))]
    whole = [path.absolute() for path in found]
    ends = [
        (path.parent if path.name == OPTIMIZER else path.with_suffix("")).parts for path in whole
    ]
    shortest = [2 if SEED.fullmatch(parts[-1]) else 1 for parts in ends]
    for more in range(max(map(len, ends), default=0)):
        pairs = zip(ends, shortest, strict=True)
        names = ["/".join(parts[-count - more :]) for parts, count in pairs]
        if len(set(names)) == len(names):
            return dict(zip(names, found, strict=True))
    raise ValueError(f"optimizers is {list(optimizers)}; expected at least one, and none twice")


def _files(path: Path) -> list[Path]:
    """The optimizers in a folder, or the file itself."""
    seeds = sorted(path.glob(f"seed-*/{OPTIMIZER}"), key=lambda file: (len(str(file)), file))
    return seeds or [path / OPTIMIZER if path.is_dir() else path]


def _together(copies: Sequence[Any]) -> Any:
    """Trees stacked along a new first axis; one alone stays as it is."""
    if len(copies) == 1:
        return copies[0]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *copies)


def apart(theta: Theta) -> list[Theta]:
    """The θ of each seed, or the one of a single seed."""
    seeds = theta.scalars["log_alpha"].shape
    return unstack(theta, *seeds) if seeds else [theta]


def unstack(tree: Any, copies: int) -> list[Any]:
    """Each of several trees whose arrays are stacked."""
    return [jax.tree.map(lambda x, i=i: x[i], tree) for i in range(copies)]


def _step(state: MetaState) -> int:
    """The number of meta-steps so far, the same of all copies."""
    return int(np.asarray(state.step).flat[0])


def _label(tasks: Sequence[Task], kind: str, seeds: int) -> str:
    """What the progress says is being done."""
    where = tasks[0].name if len(tasks) == 1 else f"{len(tasks)} tasks"
    return f"{kind} on {where}" + (f", {seeds} at once" if seeds > 1 else "")


def first_theta(
    task: Task | Sequence[Task], kind: str, options: MetaTraining, *, seed: int = 0
) -> Theta:
    """The θ that a meta-training begins with; every axis is permuted, as in the paper.

    Raises:
        MetaError: if the optimizer works on one weight space, and the tasks have several.
    """
    first, *others = several(task)
    needed = () if kind in ("sgdm", "deepset") else (first, *others)
    spaces = [each.space.relax() for each in needed]
    for other, space in zip(others, spaces[1:], strict=True) if kind in ("nfn", "unf") else ():
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
        hidden_channels=options.hidden_channels,
        head_start=options.head_start,
        spatial=first.spatial if kind == "nfn" else (),
    )


def describe(
    task: Task | Sequence[Task], kind: str, options: MetaTraining, seed: int, seeds: int = 1
) -> dict[str, Any]:
    """What distinguishes this meta-training from all others; where data are does not matter.

    Raises:
        MetaError: if a task has fields that JSON cannot hold.
    """
    tasks = several(task)
    about: dict[str, Any] = {"format": 1, "task": ",".join(one.name for one in tasks)}
    if len(tasks) == 1:
        about |= {f"task.{k}": v for k, v in _fields(tasks[0]).items()}
    else:
        about["tasks"] = [{"task": one.name, **_fields(one)} for one in tasks]
    about |= {"kind": kind, **described(options), "seed": seed}
    return json.loads(json.dumps(about | ({"seeds": seeds} if seeds > 1 else {})))


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


def several(task: Task | Sequence[Task]) -> tuple[Task, ...]:
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


def restore(checkpoints: Checkpoints, state: MetaState) -> tuple[MetaState, list[list[Row]]]:
    """The state and metrics of the last complete checkpoint, or those of a beginning.

    Raises:
        CheckpointError: if there are checkpoints, but none is complete.
        MetaError: if the metrics in the last one are damaged.
    """
    found = checkpoints.restore(state)
    if found is None:
        return state, []
    try:
        stored = found[2]["metrics"]
        calls = stored if state.step.ndim else [[row] for row in stored]
        names = columns(state.theta.form)
        return found[1], [[_read_row(names, texts) for texts in call] for call in calls]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MetaError(
            f"{checkpoints.folder}: the metrics in the last checkpoint are damaged ({error!r}); "
            "remove that checkpoint to continue from the one before"
        ) from error


def columns(form: Form) -> tuple[str, ...]:
    """The columns of the metrics; the last ones are θ's scalars."""
    scalars = ("gamma_squares", "delay", "power") if form.is_adaptive else ("beta",)
    return "step", "loss", "gradient_norm", "lost", "alpha", "gamma", *scalars


def _read_row(names: Sequence[str], texts: list[str]) -> Row:
    row = zip(names, texts, strict=True)
    return {name: int(x) if x.isdigit() else float(x) for name, x in row}


def store(
    places: Mapping[Path, dict[str, Any]],
    checkpoints: Checkpoints,
    state: MetaState,
    rows: list[list[Row]],
) -> None:
    """Write metrics, optimizers and checkpoint, each completely or not at all.

    The checkpoint comes last and has the metrics too: the other files are never older.

    Args:
        places: the folder of each seed, and its description.
        checkpoints: where the checkpoint goes.
        state: the state of all seeds.
        rows: the metrics of every call, of each seed.
    """
    step, thetas = _step(state), apart(to_host(state.theta))
    names = columns(state.theta.form)
    texts = [[[f"{row[name]:.8g}" for name in names] for row in call] for call in rows]
    for i, (place, config) in enumerate(places.items() if is_first() else ()):
        lines = [",".join(line) for line in [names, *(call[i] for call in texts)]]
        write_whole(place / METRICS, "\n".join(lines) + "\n")
        origin = {**config, "trained_steps": step, **provenance()}
        save(place / OPTIMIZER, thetas[i], **origin)
    notes = texts if state.step.ndim else [call[0] for call in texts]
    checkpoints.save(step, state, {"metrics": notes})


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


def _errors(folder: Path, options: MetaTraining, seeds: int) -> AbstractContextManager[None]:
    what, smaller = f"{options.pairs} pairs of runs at once", "pairs= or batch_size="
    if seeds > 1:
        what, smaller = f"{seeds} meta-trainings of {what}", f"seeds= or grid=, {smaller}"
    return job_errors(MetaError, folder, what, f"choose a smaller {smaller}")


def _problem(tasks: tuple[Task, ...], options: MetaTraining) -> Any:
    """What is unrolled.

    With several tasks, losses are relative to those of untrained networks, which do not depend
    on the seed, so that the losses of several meta-trainings compare.
    """
    problems = [_inner_training(task, options) for task in tasks]
    if len(tasks) == 1:
        return problems[0]
    what, key = "compared with it; correct the task", jax.random.key(0)
    losses = in_threads(lambda one: _untrained_loss(one, what, key=key), problems)
    return tuple(map(RelativeLoss, problems, losses))


def _estimator(
    problem: Any, tasks: tuple[Task, ...], options: MetaTraining, *, key: PRNGKeyArray
) -> Estimator:
    """The estimator, which cuts losses off at a multiple of an untrained network's."""
    limit = inf
    if options.cut and len(tasks) == 1:
        what = "cut off at a multiple of it; choose cut=0, or correct the task"
        limit = options.cut * _untrained_loss(problem, what, key=key)
    elif options.cut:
        limit = log(options.cut)
    try:
        estimators = [options.make_estimator(task, limit) for task in tasks]
    except ValueError as error:
        raise MetaError(str(error)) from error
    return estimators[0] if len(tasks) == 1 else MeanEstimator(estimators)


def _inner_training(task: Task, options: MetaTraining) -> InnerTraining:
    data = task.data()
    check_finite(data, task.name)
    return InnerTraining(data.train, task, options.reparametrize)


def _untrained_loss(problem: InnerTraining, what: str, *, key: PRNGKeyArray) -> float:
    """The mean loss of eight untrained networks, which must be positive for `what` to work."""
    mean = float(np.mean([_loss_of_a_network(problem, k) for k in jax.random.split(key, 8)]))
    if not 0 < mean < inf:
        raise MetaError(
            f"untrained networks of task {problem.task.name!r} have a mean loss of {mean:.3g}, so "
            f"that losses cannot be {what}"
        )
    return mean


@eqx.filter_jit
def _loss_of_a_network(problem: InnerTraining, key: PRNGKeyArray) -> Array:
    task, (first, second) = problem.task, jax.random.split(key)
    return task.loss(task.init(key=first), task.batch(problem.data, key=second))


def _rows(state: MetaState, metrics: Metrics, count: int) -> list[Row]:
    """For each seed, the means of the first `count` meta-steps of a call, and θ's scalars after.

    Losses that are not finite do not count.
    """
    per_step, rows = [np.atleast_2d(np.asarray(x))[:, :count] for x in metrics], []
    for theta, losses, norms, lost in zip(apart(state.theta), *per_step, strict=True):
        losses, nan = losses[np.isfinite(losses)], float("nan")
        row: Row = {
            "step": _step(state),
            "loss": float(losses.mean()) if len(losses) else nan,
            "gradient_norm": float(norms.mean()),
            "lost": int(lost.sum()),
        }
        for name in columns(theta.form)[len(row) :]:
            has = name != "beta" or "log_beta" in theta.scalars
            row[name] = float(getattr(theta, name)) if has else nan
        rows.append(row)
    return rows


def _mean_row(rows: list[Row]) -> Row:
    """The mean over seeds, with the number of runs that all of them lost."""
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    return {**means, "step": rows[0]["step"], "lost": sum(row["lost"] for row in rows)}


def _note(row: Row) -> str:
    return f"loss {row['loss']:.4f}" + (f", {row['lost']} runs lost" if row["lost"] else "")
