"""Choosing the settings of meta-training among short trials, by the objective that they reach."""

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np

from ..._devices import is_first
from ..._persistence import write_whole
from ..._progress import Progress
from ...meta import Task
from ...meta._estimators import Pair, Run
from ...optim import FORMS, Theta
from .._folder import provenance
from ._job import (
    Member,
    apart,
    default_steps_per_call,
    describe,
    make_program,
    several,
    train_together,
)
from ._options import MetaError, MetaTraining

GRID: dict[str, tuple] = {
    "form": ("normalized", "adaptive"),
    "head_start": ("random", "pointwise"),
    "learning_rate": (1e-3, 3e-3, 1e-2),
    "sigma": (0.01, 0.03),
}
"""The settings to try by default: every combination."""
TRIALS = "trials.json"
_TRIED = {field.name for field in dataclasses.fields(MetaTraining)} - {"steps", "schedule"}
"""Settings that can be tried."""
_TOGETHER = ("learning_rate", "sigma", "head_start")
"""Settings in which the meta-trainings of one program may differ."""
_STANDS = {"sigma": 1e-6, "learning_rate": 1e-30}
"""With these settings, meta-training goes on and θ stays what it is."""
_NETWORKS = 6
"""A seed's stream of random numbers; meta-training and evaluation have the others."""


class Trial(NamedTuple):
    """A short meta-training, and what came of it.

    Attributes:
        options: its settings.
        seed: its seed.
        loss: the objective of the optimizer that it ended with, on networks that are the same for
            all trials: their training loss. NaN if all of them diverged.
        lost: how many runs were lost on the way.
    """

    options: MetaTraining
    seed: int
    loss: float
    lost: int


def tune_meta_training(
    task: Task | Sequence[Task],
    kind: str,
    out: str | os.PathLike,
    options: MetaTraining | None = None,
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    seed: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    show_progress: bool = True,
) -> list[Trial]:
    """Meta-train shortly with every combination of settings; the best comes first.

    The learning rate of a trial is constant, because a long meta-training is near its peak for most
    of its steps: rates that only work with a fast decay are no good there.

    Trials that differ in no more than rate, σ and start run in one program. Trials with fewer
    pairs have more meta-steps, so that all have as many inner steps. Where a setting has no effect,
    as the start has none on a Deep Set, a trial is a repetition with the next seed: so every kind
    of optimizer has as many trials.

    The folder `out` gets `trials.json`, and a folder for every program with those of its trials.

    Args:
        task: what the optimizer learns to train.
        kind: the kind of optimizer.
        out: the folder for results.
        options: all other settings; `steps` are the meta-steps of a trial with most pairs, and
            `schedule` does not matter.
        grid: values of fields of `options`, by default `GRID`.
        seed: the seed of everything random.
        resume: keep finished trials, and continue others.
        overwrite: delete the results of earlier trials in `out`.
        show_progress: show rates and the time left on standard error.

    Raises:
        MetaError: if a setting is unknown or invalid, or the folder has other results.
    """
    options, folder, tasks = options or MetaTraining(), Path(out), several(task)
    trials = _members(options, GRID if grid is None else grid, kind, seed)
    groups: dict[tuple, dict[str, Member]] = {}
    for i, each in enumerate(trials):
        rest = dataclasses.replace(each.options, **{x: getattr(options, x) for x in _TOGETHER})
        groups.setdefault(dataclasses.astuple(rest), {})[f"trial-{i}"] = each
    found = list[Trial]()
    for i, members in enumerate(groups.values()):
        every, place = list(members.values()), folder / f"program-{i}"
        about = [
            {name: getattr(x.options, name) for name in _TOGETHER} | {"seed": x.seed} for x in every
        ]
        config = describe(tasks, kind, every[0].options, seed) | {"trials": about}
        thetas = train_together(
            tasks,
            kind,
            place,
            members,
            config,
            resume=resume,
            overwrite=overwrite,
            show_progress=show_progress,
        )
        file = place / "objective.json"
        losses = _known(file, len(every)) if resume else None
        if losses is None:
            losses = objective(tasks, every, apart(thetas), seed=seed, show_progress=show_progress)
            if is_first():
                write_whole(file, json.dumps(losses))
        lost = [_lost(place / name) for name in members]
        found += map(Trial, *zip(*every, strict=True), losses, lost)
    found.sort(key=lambda trial: np.nan_to_num(trial.loss, nan=np.inf))
    if is_first():
        write_whole(folder / TRIALS, as_json(found, tasks, kind))
    return found


def _members(
    options: MetaTraining, grid: Mapping[str, Sequence[Any]], kind: str, seed: int
) -> list[Member]:
    """A member for every combination; those with the same effect have different seeds."""
    if unknown := [name for name in grid if name not in _TRIED]:
        raise MetaError(f"unknown settings {unknown}; expected some of {sorted(_TRIED)}")
    if empty := [name for name, values in grid.items() if not values]:
        raise MetaError(f"no values of {empty}; expected at least one of each")
    most = max(grid.get("pairs", (options.pairs,)))
    members, seen = [], Counter[tuple]()
    for values in product(*grid.values()):
        try:
            chosen = dataclasses.replace(options, **dict(zip(grid, values, strict=True)))
            steps = round(options.steps * most / chosen.pairs)
            chosen = dataclasses.replace(chosen, steps=steps, schedule="constant")
        except ValueError as error:
            raise MetaError(str(error)) from error
        effect = chosen
        if kind in ("sgdm", "deepset") or FORMS[chosen.form].is_adaptive:
            effect = dataclasses.replace(effect, head_start="random")
        if effect.estimator in ("tbptt", "unroll"):
            effect = dataclasses.replace(effect, sigma=1.0)
        key = dataclasses.astuple(effect)
        members.append(Member(chosen, seed + seen[key]))
        seen[key] += 1
    return members


def objective(
    tasks: tuple[Task, ...],
    members: Sequence[Member],
    thetas: Sequence[Theta],
    *,
    seed: int,
    show_progress: bool = True,
) -> list[float]:
    """What meta-training minimizes, for each θ: the training loss of new networks.

    The networks and their batches are the same for every θ. They are trained by the program that
    meta-trained, which takes its time to compile: σ and the learning rate are zero.
    """
    options = members[0].options
    stays = [Member(dataclasses.replace(x.options, **_STANDS), seed) for x in members]
    program = make_program(tasks, stays)
    key = jax.random.fold_in(jax.random.key(seed), _NETWORKS)
    state = program.begin(thetas, [key] * len(members))
    state, program = program.shard(state._replace(runs=_from_the_start(state.runs)))
    horizon = max(options.horizon or task.horizon for task in tasks)
    windows = 1 if options.estimator == "unroll" else horizon // options.window
    per_call, losses = default_steps_per_call(), list[np.ndarray]()
    with Progress("objective", windows, unit="windows", show=show_progress and is_first()) as bar:
        for start in range(0, windows, per_call):
            count = min(per_call, windows - start)
            state, metrics = program.advance(state, count, at_most=per_call)
            losses.append(np.atleast_2d(np.asarray(metrics.loss, np.float64))[:, :count])
            bar.advance(count)
    by_window = np.concatenate(losses, axis=1)
    found = by_window[:, -1] if options.objective == "final" else by_window.mean(axis=1)
    return [float(loss) for loss in found]


def _from_the_start(runs: Any) -> Any:
    """Runs whose new networks are at step 0, all at once."""
    return jax.tree.map(
        lambda run: run._replace(clock=jnp.zeros_like(run.clock), whole=jnp.ones_like(run.whole)),
        runs,
        is_leaf=lambda x: isinstance(x, Pair | Run),
    )


def _known(file: Path, count: int) -> list[float] | None:
    try:
        losses = json.loads(file.read_text())
        return losses if len(losses) == count else None
    except (OSError, ValueError, TypeError):
        return None


def _lost(folder: Path) -> int:
    """How many runs a meta-training lost, from its metrics."""
    names, *rows = [line.split(",") for line in (folder / "metrics.csv").read_text().split()]
    return sum(int(row[names.index("lost")]) for row in rows)


def as_json(trials: Sequence[Trial], tasks: Sequence[Task], kind: str) -> str:
    """Everything, with versions, machine and date."""
    rows = [
        {**dataclasses.asdict(x.options), "seed": x.seed, "loss": _or_none(x.loss), "lost": x.lost}
        for x in trials
    ]
    about = {"task": ",".join(task.name for task in tasks), "kind": kind}
    return json.dumps({**about, "trials": rows, **provenance()}, indent=1)


def _or_none(loss: float) -> float | None:
    return loss if np.isfinite(loss) else None


def best_options(folder: str | os.PathLike) -> MetaTraining:
    """The best settings of the trials in a folder, for a whole meta-training.

    Raises:
        MetaError: if there are none.
    """
    file = Path(folder) / TRIALS
    try:
        best = json.loads(file.read_text())["trials"][0]
        names = {field.name for field in dataclasses.fields(MetaTraining)}
        return whole(MetaTraining(**{name: best[name] for name in names}))
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise MetaError(
            f"{file}: not the trials of a meta-training ({error!r}); make them with unf lopt tune "
            f"--out {folder}"
        ) from error


def whole(options: MetaTraining) -> MetaTraining:
    """Settings of a trial for a whole meta-training, with its steps and schedule."""
    usual = {name: getattr(MetaTraining, name) for name in ("steps", "schedule")}
    return dataclasses.replace(options, **usual)


def parse_grid(words: Sequence[str]) -> dict[str, tuple]:
    """Values of settings, from words such as "learning_rate=1e-3,3e-3".

    >>> parse_grid(["form=paper,adaptive", "pairs=8,16"])
    {'form': ('paper', 'adaptive'), 'pairs': (8, 16)}

    Raises:
        MetaError: if there is no such setting, it comes twice, or a value is of another type.
    """
    hints, grid = get_type_hints(MetaTraining), {}
    for word in words:
        name, _, values = word.partition("=")
        name = name.replace("-", "_")
        if name not in _TRIED or name in grid:
            known = sorted(_TRIED)
            raise MetaError(f"{word!r} is not the values of a new setting; expected one of {known}")
        allowed = get_args(hints[name])
        kind = str if allowed else hints[name]
        if wrong := [x for x in values.split(",") if allowed and x not in allowed]:
            raise MetaError(f"{word!r}: no value {wrong[0]!r}; expected some of {allowed}")
        try:
            grid[name] = tuple(kind(value) for value in values.split(","))
        except ValueError as error:
            raise MetaError(
                f"{word!r}: {error}; expected values of type {kind.__name__} joined by commas"
            ) from error
    return grid
