"""Learned optimizers on seven networks that they never saw, beside Adam, SGD and Muon."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from .._persistence import write_whole
from ..meta import Task
from ..optim import Theta, load, origin
from . import plots
from ._folder import provenance
from ._scores import standard_error
from .lopt import Comparison, compare
from .lopt._evaluate import (
    GRIDS,
    Grid,
    describe_losses,
    make_grid,
    survived,
    survivors,
    title,
)
from .lopt._job import named
from .lopt._options import UNSEEN, make_task

SHIPPED = ("unf-any", "deepset-any")
"""Optimizers for any network that come with the package."""
Rates = Sequence[float] | Float[np.ndarray, " _"]


@dataclasses.dataclass(frozen=True)
class Setting:
    """How large the experiment is.

    Attributes:
        baselines: hand-designed optimizers, and the options that are tried on each task.
        runs: networks for each point of a grid.
        horizon: training steps, where they differ from the task's.
        options: fields of the tasks, by the task's name.
    """

    baselines: Mapping[str, Grid]
    runs: int = 2
    horizon: int | None = None
    options: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)


def _baselines(adam: Rates, sgdm: Rates, *momenta: float) -> dict[str, Grid]:
    return {
        "adam-default": GRIDS["adam-default"],
        "adam": (GRIDS["adam"][0], make_grid(learning_rate=adam)),
        "sgdm-tuned": (GRIDS["sgdm-tuned"][0], make_grid(learning_rate=sgdm, momentum=momenta)),
        "muon": (GRIDS["muon"][0], make_grid(learning_rate=adam)),
    }


FULL = Setting(_baselines(np.logspace(-4, -4 / 3, 9), np.logspace(-2.5, 0.5, 7), 0.9, 0.99))
"""For a GPU."""
_CELL = {"batch_size": 8, "length": 8, "embedding": 8, "hidden": 8}
_BLOCKS = {"batch_size": 8, "num_blocks": 1, "width": 8, "num_heads": 2, "expand": 2}
SMALL = Setting(
    _baselines((1e-3, 1e-2), (0.1,), 0.9),
    horizon=50,
    options={
        "deep-mlp": {"batch_size": 8, "hidden": (16, 16, 16, 16)},
        "resnet": {"batch_size": 8, "channels": (4, 8)},
        "lstm": _CELL,
        "gru": _CELL,
        "vit": _BLOCKS,
        "gpt": {**_BLOCKS, "length": 8},
        "autoencoder": {"batch_size": 8, "hidden": 16, "code": 4},
    },
)
"""For CPUs: it shows that everything runs, but not which optimizer is better."""


class Margin(NamedTuple):
    """How much lower the loss is with one optimizer than with another.

    The mean over networks and its standard error; both optimizers train the same ones. Where there
    are several meta-trainings, the standard error is over them. Infinite if less diverges with one
    of the two.
    """

    mean: float
    error: float

    @property
    def is_small(self) -> bool:
        """Whether it is within two standard errors."""
        return abs(self.mean) <= 2 * self.error

    @classmethod
    def between(
        cls, ours: Float[np.ndarray, " seeds"], theirs: Float[np.ndarray, " seeds"]
    ) -> "Margin":
        """The margin, from the loss of every network with both."""
        finite, others = survived(ours), survived(theirs)
        more = int(finite.sum()) - int(others.sum())
        if more:
            return cls(np.inf if more > 0 else -np.inf, 0.0)
        both = finite & others
        lower = theirs[both] - ours[both]
        return cls(float(lower.mean()), standard_error(lower)) if len(lower) else cls(0.0, 0.0)

    @classmethod
    def apart(
        cls, ours: Sequence[Float[np.ndarray, " _"]], theirs: Sequence[Float[np.ndarray, " _"]]
    ) -> "Margin":
        """The margin between meta-trainings, from the loss of every network with each of them."""
        kept = [survived(np.concatenate(each)) for each in (ours, theirs)]
        more = int(kept[0].sum()) * len(kept[1]) - int(kept[1].sum()) * len(kept[0])
        if more:
            return cls(np.inf if more > 0 else -np.inf, 0.0)
        means = [
            np.array([survivors(x).mean() for x in each if survived(x).any()])
            for each in (ours, theirs)
        ]
        if not all(map(len, means)):
            return cls(0.0, 0.0)
        squares = [standard_error(x) ** 2 for x in means if len(x) > 1]
        return cls(float(means[1].mean() - means[0].mean()), sum(squares) ** 0.5)


@dataclasses.dataclass(frozen=True)
class Result:
    """A comparison for each task, in which several meta-trainings may stand for one optimizer."""

    comparisons: list[Comparison]

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """Optimizers, learned ones first, and the names of the meta-trainings of each."""
        return self.comparisons[0].groups

    def margins(self, ours: str, theirs: str) -> list[Margin]:
        """How far ahead one optimizer is of another on each task, in the last tenth."""
        found = []
        for one in self.comparisons:
            a, b = ([one.curves[n].last for n in self.groups[name]] for name in (ours, theirs))
            both = len(a) == len(b) == 1
            found.append(Margin.between(a[0], b[0]) if both else Margin.apart(a, b))
        return found

    def to_json(self) -> str:
        """Every cell, how often each learned optimizer is ahead, and all curves."""
        cells, ahead = {}, {}
        for one in self.comparisons:
            cells[one.task] = {name: _cell(curves.last) for name, curves in one.curves.items()}
        for ours, theirs, margins in self._verdicts():
            ahead.setdefault(ours, {})[theirs] = {
                "ahead": sum(margin.mean > 0 for margin in margins),
                "within_two_standard_errors": sum(margin.is_small for margin in margins),
                "tasks": len(margins),
            }
        whole = [json.loads(one.to_json()) for one in self.comparisons]
        return json.dumps({"cells": cells, "ahead": ahead, "comparisons": whole}, indent=1)

    def __str__(self) -> str:
        names, first = list(self.groups), self.comparisons[0]
        lines = [_row("", *map(title, names)), _row(*["---"] * (len(names) + 1))]
        for one in self.comparisons:
            cells = {name: describe_losses(*one.losses(name)) for name in names}
            cells[one.ranking[0]] = f"**{cells[one.ranking[0]]}**"
            lines.append(_row(f"{one.task} on {one.dataset}", *(cells[name] for name in names)))
        lines.append(
            f"\nTraining loss over the last tenth, mean ± standard error over "
            f"{first.over_what}; the best is bold.\n"
        )
        wins: dict[str, dict[str, str]] = {}
        for ours, theirs, margins in self._verdicts():
            ahead, small = sum(m.mean > 0 for m in margins), sum(m.is_small for m in margins)
            within = f", {small} within two standard errors" if small else ""
            wins.setdefault(ours, {})[theirs] = f"{ahead} of {len(margins)}{within}"
        lines += [_row("ahead of", *map(title, names)), _row(*["---"] * (len(names) + 1))]
        lines += [_row(title(n), *(row.get(m, "") for m in names)) for n, row in wins.items()]
        lines.append("\nThe number of tasks, by mean loss; standard errors are of the difference.")
        return "\n".join(lines)

    def _verdicts(self) -> list[tuple[str, str, list[Margin]]]:
        learned = [name for name in self.groups if name not in GRIDS]
        pairs = [(a, b) for a in learned for b in self.groups if a != b]
        return [(a, b, self.margins(a, b)) for a, b in pairs]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(losses: Float[np.ndarray, " seeds"]) -> dict[str, Any]:
    kept = survivors(losses)
    return {
        "mean": float(kept.mean()) if len(kept) else None,
        "standard_error": standard_error(kept) if len(kept) > 1 else None,
        "networks": len(losses),
        "diverged": len(losses) - len(kept),
    }


def run(
    out: Path,
    optimizers: Sequence[str],
    *,
    tasks: Sequence[str] = tuple(UNSEEN),
    setting: Setting = FULL,
    seeds: int = 5,
    folder: str | None = None,
    announce: Callable[[str], None] = lambda text: None,
    show_progress: bool = True,
) -> Result:
    """Train fresh networks of every task with every optimizer.

    What an earlier call found in the same folder is kept, optimizer by optimizer, so that tuning is
    done once.

    Args:
        out: the folder for everything; a file for each task appears when it is done.
        optimizers: folders of meta-trainings, files, or names of shipped optimizers; each must
            work on every network. A folder of several seeds stands for all of them.
        tasks: some of the seven.
        setting: `FULL` or `SMALL`.
        seeds: networks that are trained with each optimizer.
        folder: where the data are, by default the folder that the variable UNF_DATA names.
        announce: is called with a line about each task's data.
        show_progress: show the time left on standard error.

    Raises:
        ValueError: if an optimizer is missing or belongs to one weight space, or there is no such
            task.
        DataError: if the data are missing or damaged.
    """
    unknown = [name for name in tasks if name not in UNSEEN]
    if unknown or not tasks:
        raise ValueError(f"unknown tasks {unknown}; expected some of {list(UNSEEN)}")
    if seeds < 1:
        raise ValueError(f"seeds is {seeds}; expected at least 1")
    learned = [_Learned.read(name, path) for name, path in named(optimizers).items()]
    made = [make_task(t, folder=folder, **setting.options.get(t, {})) for t in tasks]
    comparisons = []
    for task, about in made:
        announce(f"{task.name}: {about}")
        comparisons.append(_compare(task, learned, setting, range(seeds), out, show_progress))
    result = Result(comparisons)
    plots.save(plots.optimizer_curves(result.comparisons), out / "generalize.png")
    write_whole(out / "generalize.json", result.to_json())
    each = "\n\n".join(f"## {one.task}\n\n{one}" for one in comparisons)
    write_whole(out / "generalize.md", f"{result}\n\n{each}\n")
    return result


class _Learned(NamedTuple):
    name: str
    theta: Theta
    digest: str
    notes: dict[str, Any]

    @classmethod
    def read(cls, name: str, path: str | Path) -> "_Learned":
        theta, steps = load(path), origin(path).get("trained_steps")
        if theta.space is not None:
            raise ValueError(
                f"{path}: this {theta.kind!r} optimizer belongs to the weight space that it was "
                "meta-trained on; expected one that works on every network, of the kind 'tied', "
                "'deepset' or 'sgdm'"
            )
        whole = b"".join(np.asarray(x).tobytes() for x in jax.tree.leaves(theta))
        digest = hashlib.sha256(f"{theta.kind} {theta.form}".encode() + whole).hexdigest()
        return cls(name, theta, digest, {} if steps is None else {"meta-steps": steps})


def _compare(
    task: Task, learned: list[_Learned], setting: Setting, seeds: range, out: Path, progress: bool
) -> Comparison:
    """The comparison on a task, with what is in the folder already of the same networks."""
    fields = {key: x for key, x in dataclasses.asdict(task).items() if key != "folder"}
    horizon, file = setting.horizon or task.horizon, out / f"{task.name}.json"
    job = {"task": fields, "horizon": horizon, "runs": setting.runs, "seeds": list(seeds)}
    optimizers = {one.name: one.digest for one in learned} | {
        name: {key: values.tolist() for key, values in options.items()}
        for name, (_, options) in setting.baselines.items()
    }
    job, optimizers = json.loads(json.dumps([job, optimizers]))
    known, origins = _read(file, job)
    missing = {
        name for name, it in optimizers.items() if origins.get(name, {}).get("identity") != it
    }
    if missing:
        found = compare(
            task,
            {one.name: one.theta for one in learned if one.name in missing},
            horizon=horizon,
            seeds=seeds,
            baselines={name: grid for name, grid in setting.baselines.items() if name in missing},
            runs=setting.runs,
            notes={one.name: one.notes for one in learned},
            show_progress=progress,
        )
        known = found if known is None else _joined(known, found)
        out.mkdir(parents=True, exist_ok=True)
        origins |= {name: {"identity": optimizers[name], **provenance()} for name in missing}
        described = json.loads(known.to_json()) | {"job": job, "optimizers": origins}
        write_whole(file, json.dumps(described))
    assert known is not None
    curves, notes = ({name: x[name] for name in optimizers} for x in (known.curves, known.notes))
    return dataclasses.replace(known, curves=curves, notes=notes)


def _read(file: Path, job: Any) -> tuple[Comparison | None, dict[str, Any]]:
    """What a file has of the same networks, and of each optimizer, what it is and when it ran."""
    try:
        text = file.read_text()
        described = json.loads(text)
        if described["job"] == job:
            return Comparison.from_json(text), described["optimizers"]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # there is none, or it is damaged
    return None, {}


def _joined(known: Comparison, found: Comparison) -> Comparison:
    """Both, where optimizers of the same name are those found now."""
    curves, notes = known.curves | found.curves, known.notes | found.notes
    return dataclasses.replace(found, curves=curves, notes=notes)
