"""The folder of a meta-training: what it holds, and going on from it."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from ..._devices import is_first, to_host, wait_for_all
from ..._files import write_whole
from ...meta._train import MetaState, Metrics
from ...optim import save
from .._checkpoint import CheckpointError, Checkpoints, difference
from .._progress import say
from .._provenance import provenance
from ..tasks import Task
from ._options import MetaError

Row = dict[str, float | int]
"""One line of the metrics."""
COLUMNS: tuple[str, ...] = ("step", "loss", "gradient_norm", "lost", "alpha", "gamma", "beta")
FORMAT = 1
CONFIG, METRICS, OPTIMIZER = "config.json", "metrics.csv", "optimizer.safetensors"
_WHAT = "checkpoint of a meta-training"


def describe(task: Task, kind: str, options: Any, seed: int) -> dict[str, Any]:
    """What makes this meta-training this one, and not another.

    Raises:
        MetaError: if the task has options that JSON cannot hold.
    """
    try:
        about = {f"task.{name}": value for name, value in _fields(task).items()}
        return {"format": FORMAT, "task": task.name, **about, "kind": kind, **_fields(options),
                "seed": seed}  # fmt: skip
    except (TypeError, AttributeError) as error:
        raise MetaError(
            f"the task {type(task).__name__} cannot be described ({error}); make it a frozen "
            "dataclass with a name, and fields that are numbers, strings or tuples of them"
        ) from error


def claim(folder: Path, config: dict[str, Any], *, resume: bool) -> Checkpoints:
    """Take the folder for this meta-training, or make sure that it is this one's.

    Raises:
        MetaError: if it is another's, or `resume` is missing.
    """
    checkpoints = Checkpoints(folder / "checkpoints", {"what": _WHAT, **config}, warn=say)
    file, jobs = folder / CONFIG, checkpoints.descriptions()
    begun = jobs or any((folder / name).exists() for name in (METRICS, OPTIMIZER))
    if begun and not resume:
        raise MetaError(
            f"{folder}: there is a meta-training already; go on with --resume, or choose "
            "another folder with --out"
        )
    if file.exists() and not jobs:
        known = _described(file)  # of a meta-training at least; if nothing came of it, it may go
        jobs = [known] if begun else []
    for job in jobs:
        if differs := difference(job, {"what": _WHAT, **config}):
            raise MetaError(f"{folder}: this meta-training has {differs}")
    wait_for_all("the folder is known")
    if is_first():
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps(config, indent=1))
    return checkpoints


def restore(checkpoints: Checkpoints, state: MetaState) -> tuple[MetaState, list[Row]]:
    """The state and metrics of the last whole checkpoint, or as given and none.

    Raises:
        MetaError: if there are checkpoints, and none is whole.
    """
    try:
        found = checkpoints.restore(state)
    except CheckpointError as error:
        raise MetaError(str(error)) from error
    if found is None:
        return state, []
    _, state, notes = found
    try:
        rows = [dict(zip(COLUMNS, map(_number, row), strict=True)) for row in notes["metrics"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MetaError(
            f"{checkpoints.folder}: the metrics in the last checkpoint are damaged ({error!r}); "
            "remove it to go on from the one before"
        ) from error
    return state, rows


def store(
    folder: Path,
    checkpoints: Checkpoints,
    state: MetaState,
    rows: list[Row],
    config: dict[str, Any],
) -> None:
    """Write metrics, optimizer and checkpoint, each whole or not at all.

    The checkpoint is last: where it is, the others are as new. It has the metrics too.
    """
    step = int(state.step)
    texts = [[f"{row[c]:.8g}" for c in COLUMNS] for row in rows]
    if is_first():
        lines = [",".join(line) for line in [list(COLUMNS), *texts]]
        write_whole(folder / METRICS, "\n".join(lines) + "\n")
        origin = {**config, "trained_steps": step, **provenance()}
        save(folder / OPTIMIZER, to_host(state.theta), **origin)
    checkpoints.save(step, state, {"metrics": texts})


def make_row(state: MetaState, metrics: Metrics, count: int) -> Row:
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


def _number(text: str) -> float | int:
    return int(text) if text.isdigit() else float(text)


def _described(file: Path) -> dict[str, Any]:
    try:
        known = json.loads(file.read_text())
    except (ValueError, RecursionError) as error:
        raise MetaError(f"{file}: not of a meta-training, or damaged ({error})") from error
    if not isinstance(known, dict):
        raise MetaError(f"{file}: not a description of a meta-training")
    return {"what": _WHAT, **known}


def _fields(x: Any) -> dict[str, Any]:
    """A dataclass as JSON has it, without where files are."""
    values = json.loads(json.dumps(dataclasses.asdict(x)))
    return {name: value for name, value in values.items() if name != "folder"}
