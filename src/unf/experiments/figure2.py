"""Figure 2: training curves of meta-trained optimizers on four tasks (§4.2)."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from .._files import write_whole
from ..meta import MetaTraining, meta_train
from .lopt import SMALL, Comparison, compare, draw_comparisons, make_task

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
    small: bool = False,
    folder: str | None = None,
    seed: int = 0,
    seeds: int = 5,
    announce: Callable[[str], None] = lambda text: None,
    show_progress: bool = True,
) -> Result:
    """Meta-train what is not trained yet, evaluate, draw.

    Args:
        out: folder for everything; what is meta-trained there is not trained again.
        tasks: the panels.
        options: of meta-training, by default the paper's.
        small: a version for CPUs.
        folder: where data are, by default what the variable UNF_DATA names.
        seed: of meta-training.
        seeds: networks that are trained for each curve.
        announce: is told about data.
        show_progress: show rates and time left on standard error.
    """
    unknown = [name for name in tasks if name not in KINDS]
    if unknown:
        raise ValueError(f"unknown tasks {unknown}; expected some of {list(KINDS)}")
    if seeds < 1:
        raise ValueError(f"seeds is {seeds}; expected at least 1")
    options = options or (SMALL if small else MetaTraining())
    comparisons, prepared = [], [make_task(name, folder=folder) for name in tasks]
    for name, (task, about) in zip(tasks, prepared, strict=True):
        announce(f"{name}: {about}")
        thetas, notes = {}, {}
        for kind in KINDS[name]:
            thetas[kind] = meta_train(
                task, kind, out / name / kind, options, seed=seed, resume=True,
                show_progress=show_progress,
            )  # fmt: skip
            notes[kind] = {"meta-steps": options.steps}
        horizon = options.horizon or task.horizon
        comparison = compare(
            task, thetas, horizon=horizon, seeds=range(seeds), notes=notes,
            show_progress=show_progress,
        )  # fmt: skip
        write_whole(out / f"{name}.json", comparison.to_json())
        comparisons.append(comparison)
        draw_comparisons(comparisons, out / "figure2.png")
    return Result(comparisons, out)
