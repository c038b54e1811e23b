"""Figure 2: training curves of meta-trained optimizers on four tasks (§4.2)."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .._persistence import write_whole
from ..meta import Task
from . import plots
from .lopt import Comparison, MetaTraining, compare, meta_train
from .lopt._job import OPTIMIZER, Pace
from .lopt._options import SMALL, make_task

KINDS = {
    "mlp": ("sgdm", "deepset", "unf"),
    "cnn": ("sgdm", "deepset", "nfn", "unf"),
    "rnn": ("sgdm", "deepset", "unf"),
    "transformer": ("sgdm", "deepset", "unf"),
}
"""Optimizers of each panel; on MLPs NFN is UNF, and on the last two it does not apply."""


@dataclasses.dataclass(frozen=True)
class Result:
    """The panels, and the folder that holds everything."""

    comparisons: list[Comparison]
    out: Path

    def __str__(self) -> str:
        tables = "\n\n".join(str(comparison) for comparison in self.comparisons)
        return f"{tables}\n\npicture and numbers in {self.out}"


def run(
    out: Path,
    *,
    tasks: tuple[str, ...] = tuple(KINDS),
    options: MetaTraining | None = None,
    steps: Mapping[str, int] | None = None,
    small: bool = False,
    folder: str | None = None,
    seed: int = 0,
    seeds: int = 5,
    announce: Callable[[str], None] = lambda text: None,
    show_progress: bool = True,
) -> Result:
    """Meta-train, evaluate and draw; what an earlier call has finished is kept.

    Args:
        out: the folder for everything.
        tasks: the panels.
        options: the settings of meta-training, by default the paper's.
        steps: meta-steps by task, where they differ from `options`.
        small: a version for CPUs.
        folder: where the data are, by default the folder that the variable UNF_DATA names.
        seed: the seed of meta-training.
        seeds: networks that are trained for each curve.
        announce: is called with a line about each task's data.
        show_progress: show rates and the time left on standard error.
    """
    unknown = [name for name in (*tasks, *(steps or {})) if name not in KINDS]
    if unknown:
        raise ValueError(f"unknown tasks {unknown}; expected some of {list(KINDS)}")
    if seeds < 1:
        raise ValueError(f"seeds is {seeds}; expected at least 1")
    options = options or (SMALL if small else MetaTraining())
    comparisons, prepared = [], [make_task(name, folder=folder) for name in tasks]
    for name, (task, about) in zip(tasks, prepared, strict=True):
        announce(f"{name}: {about}")
        chosen = dataclasses.replace(options, steps=(steps or {}).get(name, options.steps))
        comparisons.append(_panel(task, out, chosen, seed, list(range(seeds)), show_progress))
        plots.save(plots.optimizer_curves(comparisons), out / "figure2.png")
    return Result(comparisons, out)


def _panel(
    task: Task, out: Path, options: MetaTraining, seed: int, seeds: list[int], show_progress: bool
) -> Comparison:
    thetas: dict[str, Any] = {}
    notes: dict[str, dict[str, Any]] = {}
    for kind in KINDS[task.name]:
        pace = Pace(options)
        thetas[kind] = meta_train(
            task, kind, out / task.name / kind, options, seed=seed, resume=True,
            on_metrics=pace, show_progress=show_progress,
        )  # fmt: skip
        notes[kind] = {"meta-steps": options.steps}
        if pace.rate:
            notes[kind]["trajectory-steps/s"] = round(pace.rate)
    file, horizon = out / f"{task.name}.json", options.horizon or task.horizon
    known = _evaluated(file, [out / task.name / kind / OPTIMIZER for kind in thetas])
    if known is not None and known.seeds == seeds:
        return known
    comparison = compare(
        task, thetas, horizon=horizon, seeds=seeds, notes=notes, show_progress=show_progress
    )
    write_whole(file, comparison.to_json())
    return comparison


def _evaluated(file: Path, optimizers: list[Path]) -> Comparison | None:
    """An earlier evaluation, if it is newer than the optimizers."""
    if not file.exists() or any(x.stat().st_mtime > file.stat().st_mtime for x in optimizers):
        return None
    try:
        return Comparison.from_json(file.read_text())
    except ValueError:
        return None
