"""Figure 2: training curves of meta-trained optimizers on four tasks (§4.2)."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .._persistence import write_whole
from ..meta import Task
from . import plots
from .lopt import Comparison, MetaTraining, compare, meta_train
from .lopt._job import OPTIMIZER, Pace, apart
from .lopt._options import SMALL, make_task
from .lopt._tune import best_options

KINDS = {
    "mlp": ("sgdm", "deepset", "unf", "tied"),
    "cnn": ("sgdm", "deepset", "nfn", "unf", "tied"),
    "rnn": ("sgdm", "deepset", "unf", "tied"),
    "transformer": ("sgdm", "deepset", "unf", "tied"),
}
"""Optimizers of each panel; on MLPs NFN is UNF, and on the last two it does not apply. The paper
has all but the tied one."""
STEPS = {"mlp": 50_000, "cnn": 10_000, "rnn": 20_000, "transformer": 5_000}
"""Meta-steps; the paper has 50,000 on every task."""


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
    tuned: Path | None = None,
    steps: Mapping[str, int] | None = None,
    small: bool = False,
    folder: str | None = None,
    seed: int = 0,
    seeds: int = 3,
    networks: int = 5,
    announce: Callable[[str], None] = lambda text: None,
    show_progress: bool = True,
) -> Result:
    """Meta-train, evaluate and draw; what an earlier call has finished is kept.

    Args:
        out: the folder for everything.
        tasks: the panels.
        options: the settings of meta-training, by default the paper's.
        tuned: a folder with the trials of `tune_meta_training` for every task and kind, in folders
            such as `mlp-unf`, or `mlp-unf-small`; the best settings replace `options`, except for
            the horizon, because trials may have a shorter one.
        steps: meta-steps by task, by default `STEPS`, or those of `options`.
        small: a version for CPUs.
        folder: where the data are, by default the folder that the variable UNF_DATA names.
        seed: the seed of the first meta-training.
        seeds: meta-trainings of each optimizer.
        networks: networks that each of them trains.
        announce: is called with a line about each task's data.
        show_progress: show rates and the time left on standard error.
    """
    unknown = [name for name in (*tasks, *(steps or {})) if name not in KINDS]
    if unknown:
        raise ValueError(f"unknown tasks {unknown}; expected some of {list(KINDS)}")
    if seeds < 1 or networks < 1:
        raise ValueError(f"seeds is {seeds} and networks {networks}; expected at least 1")
    usual = options or (SMALL if small else None)
    comparisons, prepared = [], [make_task(name, folder=folder) for name in tasks]
    chosen, suffix = {}, "-small" if small else ""
    for name, kind in ((task, kind) for task in tasks for kind in KINDS[task]):
        count = (steps or {}).get(name, usual.steps if usual else STEPS[name])
        default = dataclasses.replace(usual or MetaTraining(), steps=count)
        chosen[name, kind] = default
        if tuned:
            best = best_options(tuned / f"{name}-{kind}{suffix}", kind, count)
            chosen[name, kind] = dataclasses.replace(best, horizon=default.horizon)
    for name, (task, _) in zip(tasks, prepared, strict=True):
        for kind in KINDS[name]:
            chosen[name, kind].make_estimator(task, 1.0)  # fails now if windows do not fit
    for name, (task, about) in zip(tasks, prepared, strict=True):
        announce(f"{name}: {about}")
        panel = {kind: chosen[name, kind] for kind in KINDS[name]}
        comparison = _panel(task, out, panel, range(seed, seed + seeds), networks, show_progress)
        comparisons.append(comparison)
        plots.save(plots.optimizer_curves(comparisons), out / "figure2.png")
    return Result(comparisons, out)


def _panel(
    task: Task,
    out: Path,
    options: Mapping[str, MetaTraining],
    seeds: range,
    networks: int,
    show_progress: bool,
) -> Comparison:
    thetas: dict[str, Any] = {}
    notes: dict[str, dict[str, Any]] = {}
    files = []
    for kind, chosen in options.items():
        pace, place = Pace(chosen, len(seeds)), out / task.name / kind
        theta = meta_train(
            task, kind, place, chosen, seed=seeds[0], seeds=len(seeds), resume=True,
            on_metrics=pace, show_progress=show_progress,
        )  # fmt: skip
        note: dict[str, Any] = {"meta-steps": chosen.steps}
        if pace.rate:
            note["trajectory-steps/s"] = round(pace.rate)
        names = [f"{kind}/seed-{seed}" for seed in seeds] if len(seeds) > 1 else [kind]
        thetas |= dict(zip(names, apart(theta), strict=True))
        notes |= dict.fromkeys(names, note)
        files += [out / task.name / name / OPTIMIZER for name in names]
    file = out / f"{task.name}.json"
    horizon = max(x.horizon or task.horizon for x in options.values())
    known = _evaluated(file, files)
    if known is not None and len(known.seeds) == networks and {*thetas} <= {*known.curves}:
        return known
    comparison = compare(
        task,
        thetas,
        horizon=horizon,
        seeds=range(networks),
        notes=notes,
        show_progress=show_progress,
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
