"""Figure 2: training curves of meta-trained optimizers on four tasks (§4.2)."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .._files import write_whole
from . import plots
from .lopt import (
    OPTIMIZER,
    SMALL,
    Comparison,
    MetaTraining,
    Pace,
    compare,
    make_task,
    meta_train,
)
from .tasks import Task

KINDS = {
    "mlp": ("sgdm", "deepset", "unf"),
    "cnn": ("sgdm", "deepset", "nfn", "unf"),
    "rnn": ("sgdm", "deepset", "unf"),
    "transformer": ("sgdm", "deepset", "unf"),
}
"""Optimizers of each panel; on MLPs NFN is UNF, and on the last two it does not apply."""


@dataclasses.dataclass(frozen=True)
class Result:
    """The panels, and where everything is."""

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
    """Meta-train what is not trained yet, evaluate, draw.

    Args:
        out: folder for everything; what is meta-trained or evaluated there is not done again.
        tasks: the panels.
        options: of meta-training, by default the paper's.
        steps: meta-steps by task, for those that shall have others than `options` says.
        small: a version for CPUs.
        folder: where data are, by default what the variable UNF_DATA names.
        seed: of meta-training.
        seeds: networks that are trained for each curve.
        announce: is told about data.
        show_progress: show rates and time left on standard error.
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
        comparisons.append(_panel(task, out, chosen, seed, range(seeds), show_progress))
        plots.save(plots.optimizer_curves(comparisons), out / "figure2.png")
    return Result(comparisons, out)


def _panel(
    task: Task, out: Path, options: MetaTraining, seed: int, seeds: range, show_progress: bool
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
    known = _known(file, seeds, [out / task.name / kind for kind in thetas])
    if known is not None:
        return known
    comparison = compare(
        task, thetas, horizon=horizon, seeds=seeds, notes=notes, show_progress=show_progress
    )
    write_whole(file, comparison.to_json())
    return comparison


def _known(file: Path, seeds: range, folders: list[Path]) -> Comparison | None:
    """The evaluation of an earlier call, if there was one of these seeds after meta-training."""
    trained = [folder / OPTIMIZER for folder in folders]
    if not file.exists() or any(x.stat().st_mtime > file.stat().st_mtime for x in trained):
        return None
    try:
        found = Comparison.from_json(file.read_text())
    except ValueError:
        return None
    return found if found.seeds == list(seeds) else None
