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
from .._folder import described, provenance
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
BEST = "best.toml"
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
        loss: the training loss of new networks with the optimizer that it ended with, over the
            whole horizon; or over the last window, if that is what meta-training minimizes. NaN if
            all of them diverged.
        diverged: how often one of these networks diverged, and was replaced by a fresh one.
        lost: how many runs the meta-training lost.
    """

    options: MetaTraining
    seed: int
    loss: float
    diverged: int
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
    """Run a short meta-training with every combination of settings, and rank them.

    Each trial is ranked by how many new networks diverge with the optimizer that it ends with, and
    then by their training loss. Networks and batches are the same for all trials, and so is the
    part of `options` that measures them: the horizon, the number of pairs, and the objective.

    The learning rate of a trial is constant, because a long meta-training is near its peak for most
    of its steps: rates that only work with a fast decay are no good there.

    Trials that differ in no more than rate, σ and start run in one program. All have the same
    number of inner steps: with fewer pairs or shorter windows, they have more meta-steps. Where a
    setting has no effect, as the start has none on a Deep Set, a trial is a repetition with the
    next seed, so that every kind of optimizer gets the same number of trials.

    The folder `out` gets `trials.json`, and a folder for every program with those of its trials.

    Args:
        task: what the optimizer learns to train.
        kind: the kind of optimizer.
        out: the folder for results.
        options: all other settings; `steps` are those of a trial with the most pairs and the
            longest windows, and `schedule` does not matter.
        grid: values of fields of `options`, by default `GRID`.
        seed: the seed of everything random.
        resume: keep finished trials, and continue others.
        overwrite: delete the results of earlier trials in `out`.
        show_progress: show rates and the time left on standard error.

    Returns:
        All trials, the best first.

    Raises:
        MetaError: if a setting is unknown or invalid, or the folder has other results.
    """
    options, folder, tasks = options or MetaTraining(), Path(out), several(task)
    groups: dict[tuple, dict[str, Member]] = {}
    for each in _members(tasks, options, GRID if grid is None else grid, kind, seed):
        rest = dataclasses.replace(each.options, **{x: getattr(options, x) for x in _TOGETHER})
        group = groups.setdefault(dataclasses.astuple(rest), {})
        group[f"trial-{len(group)}"] = each
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
        if i == 0 and is_first():
            for name in (TRIALS, BEST):
                (folder / name).unlink(missing_ok=True)
        file, job = place / "objective.json", config | {"measured": described(options)}
        measured = _known(file, job)
        if measured is None:
            measured = objective(tasks, options, every, apart(thetas), seed, show_progress)
            if is_first():
                write_whole(file, json.dumps({"job": job, "found": measured}))
        lost = [_lost(place / name) for name in members]
        for member, (loss, diverged), count in zip(every, measured, lost, strict=True):
            found.append(Trial(*member, loss, diverged, count))
    found.sort(key=lambda trial: (trial.diverged, np.nan_to_num(trial.loss, nan=np.inf)))
    if is_first():
        write_whole(folder / TRIALS, as_json(found, tasks, kind))
    return found


def _members(
    tasks: tuple[Task, ...],
    options: MetaTraining,
    grid: Mapping[str, Sequence[Any]],
    kind: str,
    seed: int,
) -> list[Member]:
    """A member for every combination; those with the same effect have different seeds."""
    if unknown := [name for name in grid if name not in _TRIED]:
        raise MetaError(f"unknown settings {unknown}; expected some of {sorted(_TRIED)}")
    if empty := [name for name, values in grid.items() if not values]:
        raise MetaError(f"no values of {empty}; expected at least one of each")
    most = max(grid.get("pairs", (options.pairs,))) * max(grid.get("window", (options.window,)))
    members, seen = [], Counter[tuple]()
    for values in product(*grid.values()):
        try:
            chosen = dataclasses.replace(options, **dict(zip(grid, values, strict=True)))
            steps = round(options.steps * most / (chosen.pairs * chosen.window))
            chosen = dataclasses.replace(chosen, steps=steps, schedule="constant")
            for task in tasks:
                chosen.make_estimator(task, 1.0)  # fails now if windows do not fit
        except ValueError as error:
            raise MetaError(str(error)) from error
        effect = chosen
        if kind in ("sgdm", "deepset") or FORMS[chosen.form].is_adaptive:
            effect = dataclasses.replace(effect, head_start="random")
        if kind == "sgdm":
            effect = dataclasses.replace(effect, hidden_channels=1)
        if effect.estimator in ("tbptt", "unroll"):
            effect = dataclasses.replace(effect, sigma=1.0)
        key = dataclasses.astuple(effect)
        members.append(Member(chosen, seed + seen[key]))
        seen[key] += 1
    return members


def objective(
    tasks: tuple[Task, ...],
    options: MetaTraining,
    members: Sequence[Member],
    thetas: Sequence[Theta],
    seed: int,
    show_progress: bool = True,
) -> list[tuple[float, int]]:
    """For each θ, the training loss of new networks, and how many diverge.

    The networks and their batches are the same for every θ. A meta-training that stands still
    trains them: if it has the settings of the trials, its program is compiled already.
    """
    kept = {name: getattr(members[0].options, name) for name in ("steps", "schedule", "clip")}
    stays = Member(dataclasses.replace(options, **kept, **_STANDS), seed)
    program = make_program(tasks, [stays] * len(members))
    key = jax.random.fold_in(jax.random.key(seed), _NETWORKS)
    state = program.begin(thetas, [key] * len(members))
    state, program = program.shard(state._replace(runs=_from_the_start(state.runs)))
    horizon = max(options.horizon or task.horizon for task in tasks)
    windows = 1 if options.estimator == "unroll" else horizon // options.window
    per_call, each = default_steps_per_call(), list[tuple[np.ndarray, ...]]()
    with Progress("objective", windows, unit="windows", show=show_progress and is_first()) as bar:
        for start in range(0, windows, per_call):
            count = min(per_call, windows - start)
            state, metrics = program.advance(state, count, at_most=per_call)
            found = (np.atleast_2d(np.asarray(x))[:, :count] for x in (metrics.loss, metrics.lost))
            each.append(tuple(found))
            bar.advance(count)
    losses, lost = (np.concatenate(parts, axis=1) for parts in zip(*each, strict=True))
    means = losses[:, -1] if options.objective == "final" else losses.mean(axis=1)
    return [(float(x), int(n)) for x, n in zip(means, lost.sum(axis=1), strict=True)]


def _from_the_start(runs: Any) -> Any:
    """Runs whose new networks are at step 0, all at once."""
    return jax.tree.map(
        lambda run: run._replace(clock=jnp.zeros_like(run.clock), whole=jnp.ones_like(run.whole)),
        runs,
        is_leaf=lambda x: isinstance(x, Pair | Run),
    )


def _known(file: Path, job: Mapping[str, Any]) -> list[tuple[float, int]] | None:
    """What a job measured earlier."""
    try:
        stored = json.loads(file.read_text())
        same = stored["job"] == json.loads(json.dumps(job))
        return [(float(loss), int(count)) for loss, count in stored["found"]] if same else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _lost(folder: Path) -> int:
    """How many runs a meta-training lost, from its metrics."""
    names, *rows = [line.split(",") for line in (folder / "metrics.csv").read_text().split()]
    return sum(int(row[names.index("lost")]) for row in rows)


def as_json(trials: Sequence[Trial], tasks: Sequence[Task], kind: str) -> str:
    """Everything, with versions, machine and date."""
    rows, every = [], [vars(x.options) for x in trials]
    tried = [name for name in every[0] if len({options[name] for options in every}) > 1]
    for x in trials:
        loss = x.loss if np.isfinite(x.loss) else None
        found = {name: getattr(x.options, name) for name in tried}
        found |= {"seed": x.seed, "loss": loss, "diverged": x.diverged, "lost": x.lost}
        rows.append({**described(x.options), **found})
    about = {"task": ",".join(task.name for task in tasks), "kind": kind}
    return json.dumps({**about, "trials": rows, **provenance()}, indent=1)


def best_options(folder: str | os.PathLike, kind: str, steps: int) -> MetaTraining:
    """The best settings of the trials in a folder, for a whole meta-training.

    Raises:
        MetaError: if there are none, or all networks diverged, or the trials are of another kind.
    """
    file = Path(folder) / TRIALS
    try:
        found = json.loads(file.read_text())
        best, known = found["trials"][0], found["kind"]
        names = {field.name for field in dataclasses.fields(MetaTraining)}
        options = MetaTraining(**{name: value for name, value in best.items() if name in names})
        usable = best["loss"] is not None
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise MetaError(
            f"{file}: not the trials of a meta-training ({error!r}); make them with "
            "tune_meta_training, or unf lopt tune"
        ) from error
    if known != kind or not usable:
        problem = f"of kind {known!r}, not {kind!r}" if known != kind else "in which all diverged"
        raise MetaError(f"{file}: has trials {problem}; try other settings with unf lopt tune")
    return whole(options, steps)


def whole(options: MetaTraining, steps: int) -> MetaTraining:
    """Settings of a trial for a whole meta-training, whose learning rate decays."""
    return dataclasses.replace(options, steps=steps, schedule="cosine")


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
        if name not in _TRIED:
            raise MetaError(f"unknown setting {name!r}; expected some of {sorted(_TRIED)}")
        if name in grid:
            raise MetaError(f"the setting {name!r} comes twice; expected it once, with all values")
        allowed = get_args(hints[name])
        kind = str if allowed else hints[name]
        if wrong := [x for x in values.split(",") if allowed and x not in allowed]:
            raise MetaError(f"{name} cannot be {wrong[0]!r}; expected some of {allowed}")
        try:
            grid[name] = tuple(kind(value) for value in values.split(","))
        except ValueError as error:
            raise MetaError(
                f"{name} cannot be {values!r} ({error}); expected values of type {kind.__name__}, "
                "joined by commas"
            ) from error
    return grid
