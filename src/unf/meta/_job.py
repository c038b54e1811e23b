"""One meta-training: from a task to a file with a learned optimizer, through interruptions."""

import dataclasses
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._arrays import fill, read_arrays, write_arrays
from .._files import write_whole
from .._progress import Progress
from .._version import __version__
from ..optim import FORMS, KINDS, Theta, init_theta, save
from ..tasks import Task, check_finite
from ._options import MetaError, MetaTraining
from ._problem import InnerTraining
from ._train import MetaState, advance, begin, spread

FORMAT = 1
_COLUMNS: tuple[str, ...] = ("step", "loss", "gradient_norm", "diverged", "alpha", "gamma", "beta")


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
    on_metrics: Callable[[dict[str, float | int]], None] | None = None,
    show_progress: bool = True,
) -> Theta:
    """Meta-train a learned optimizer on a task.

    The folder `out` gets `optimizer.safetensors` (for `unf.optim.load`), `metrics.csv`,
    `checkpoint.safetensors` and `config.json`. Stopped at any moment, it goes on from the last
    checkpoint with `resume`, to the same result as without the stop.

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
    folder, key = Path(out), jax.random.key(seed)
    data = task.data()
    check_finite(data, task.name)
    problem = InnerTraining(data.train, task)
    try:
        estimator = options.make_estimator(task, _cut(problem, options.cut, key))
    except ValueError as error:
        raise MetaError(str(error)) from error
    optimizer = options.make_optimizer()
    theta = first_theta(task, kind, options, seed=seed)
    config = {
        "format": FORMAT,
        "task": task.name,
        **{f"task.{name}": value for name, value in _fields(task).items()},
        "kind": kind,
        **_fields(options),
        "seed": seed,
    }
    _claim(folder, config, resume)
    state = begin(problem, estimator, optimizer, theta, key=key)
    checkpoint = folder / "checkpoint.safetensors"
    if checkpoint.exists():
        _, arrays = read_arrays(checkpoint)
        state = spread(fill(state, arrays, checkpoint), estimator)
    rows = _kept_rows(folder / "metrics.csv", int(state.step))
    per_call = steps_per_call or (10 if jax.default_backend() == "cpu" else 100)
    saved = time.monotonic()
    with Progress(
        f"{kind} on {task.name}", options.steps, unit="meta-steps", show=show_progress
    ) as progress:
        progress.done = int(state.step)
        try:
            while int(state.step) < options.steps:
                count = min(per_call, options.steps - int(state.step))
                state, metrics = advance(
                    problem, estimator, optimizer.update, state, jnp.asarray(count, jnp.int32),
                    key=key, at_most=per_call,
                )  # fmt: skip
                row = _row(state, jax.tree.map(lambda x, n=count: np.asarray(x)[:n], metrics))
                rows.append(row)
                if on_metrics is not None:
                    on_metrics(row)
                progress.advance(count, f"loss {row['loss']:.4f}")
                if time.monotonic() - saved > seconds_between_checkpoints:
                    _save(folder, state, rows, config)
                    saved = time.monotonic()
        finally:
            _save(folder, state, rows, config)
    return state.theta


def first_theta(task: Task, kind: str, options: MetaTraining, *, seed: int = 0) -> Theta:
    """What a meta-training begins with; every axis is permuted, as in the paper."""
    return init_theta(
        kind,
        task.space.relax(),
        key=jax.random.fold_in(jax.random.key(seed), 1),
        form=FORMS[options.form],
        head_start=options.head_start,
        spatial=task.spatial if kind == "nfn" else (),
    )


def _cut(problem: InnerTraining, factor: float, key: Any) -> float:
    """The loss beyond which a run counts as lost."""
    if not factor:
        return float("inf")
    first, second = jax.random.split(jax.random.fold_in(key, 2))
    task = problem.task
    batch = task.batch(problem.data, key=second)
    return factor * float(eqx.filter_jit(task.loss)(task.init(key=first), batch))


def _fields(x: Any) -> dict[str, Any]:
    """A dataclass as JSON has it, without where files are."""
    values = json.loads(json.dumps(dataclasses.asdict(x)))
    return {name: value for name, value in values.items() if name != "folder"}


def _claim(folder: Path, config: dict[str, Any], resume: bool) -> None:
    """Take the folder for this meta-training, or make sure that it is this one's."""
    file = folder / "config.json"
    folder.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        write_whole(file, json.dumps(config, indent=1))
        return
    if not resume:
        raise MetaError(
            f"{folder}: there is a meta-training already; go on with --resume, or choose "
            "another folder with --out"
        )
    try:
        known = json.loads(file.read_text())
    except ValueError as error:
        raise MetaError(f"{file}: not a description of a meta-training ({error})") from error
    for name in dict.fromkeys([*known, *config]):
        if known.get(name) != config.get(name):
            raise MetaError(
                f"{folder}: this meta-training has {name} = {known.get(name)!r}, not "
                f"{config.get(name)!r}; give the same options, or choose another folder with --out"
            )


def _row(state: MetaState, metrics: Any) -> dict[str, float | int]:
    """The means of one call, and the scalars of θ after it."""
    theta, nan = state.theta, float("nan")
    beta = float(theta.beta) if "log_beta" in theta.scalars else nan
    values = [float(np.mean(metrics.loss)), float(np.mean(metrics.gradient_norm))]
    lost = int(np.sum(metrics.diverged))
    scalars = [float(theta.alpha), float(theta.gamma), beta]
    return dict(zip(_COLUMNS, [int(state.step), *values, lost, *scalars], strict=True))


def _kept_rows(file: Path, step: int) -> list[dict[str, float | int]]:
    """The rows up to a step."""
    if not file.exists():
        return []
    lines = [line.split(",") for line in file.read_text().splitlines()[1:]]
    rows: list[dict[str, float | int]] = [
        dict(zip(_COLUMNS, map(float, line), strict=True)) for line in lines
    ]
    return [row for row in rows if row["step"] <= step]


def _save(folder: Path, state: MetaState, rows: list[dict[str, float | int]], config: Any) -> None:
    lines = [",".join(_COLUMNS), *(",".join(f"{row[c]:.8g}" for c in _COLUMNS) for row in rows)]
    write_whole(folder / "metrics.csv", "\n".join(lines) + "\n")
    write_arrays(folder / "checkpoint.safetensors", state, config)
    origin = {**config, "trained_steps": int(state.step), "unf": __version__}
    origin |= {"jax": jax.__version__, "device": jax.devices()[0].device_kind}
    save(folder / "optimizer.safetensors", state.theta, **origin)
