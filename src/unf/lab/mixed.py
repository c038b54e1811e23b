"""Predicting accuracy in a zoo of many architectures, also of architectures never seen."""

import dataclasses
import json
import os
import time
from pathlib import Path

from .._persistence import write_whole
from .._progress import say
from . import plots
from ._scores import jackknife_error, leave_one_out_tau, summary, too_few
from .predict import Report, Training, train
from .predict._methods import defaults_of
from .zoos import MixedRecipe, build_mixed

METHODS = ("tied", "statnn", "deepset")
_BASELINE = "statnn"


@dataclasses.dataclass(frozen=True)
class Setting:
    """How large the experiment is; `epochs` replaces the usual number."""

    recipe: MixedRecipe
    models: int
    seeds: int
    epochs: int | None = None

    def training(self, method: str) -> Training:
        """How a method is trained."""
        training = defaults_of(method, mixed=True)
        return dataclasses.replace(training, epochs=self.epochs) if self.epochs else training


FULL = Setting(MixedRecipe(), 10_000, 3)
SMALL = Setting(
    MixedRecipe(
        architectures=6,
        held_out=3,
        datasets=("digits",),
        depths=(2, 3),
        widths=(4, 8),
        new_depths=(4,),
        new_widths=(6,),
        steps=100,
        batch_size=32,
    ),
    540,
    2,
    epochs=10,
)


@dataclasses.dataclass(frozen=True)
class Result:
    """The table."""

    reports: list[Report]
    out: Path

    def __str__(self) -> str:
        parts = {"networks of known architectures": self.reports}
        if self.reports[0].held_out is not None:
            parts["networks of held-out architectures"] = [r.on_held_out for r in self.reports]
        lines = []
        for name, reports in parts.items():
            lines += [*_table(name, reports), ""]
        gap = max(report.invariance for report in self.reports)
        lines += [
            f"± is the standard error over {len(self.reports[0].seeds)} seeds, and of differences "
            "that over test networks",
            f"reordering hidden neurons changes predictions by at most {gap:.0e}",
            f"pictures and numbers in {self.out}",
        ]
        return "\n".join(lines)


def _table(name: str, reports: list[Report]) -> list[str]:
    """Test τ of each method on one part of the zoo, and how far it is ahead of the baseline."""
    first = reports[0]
    base = next((report for report in reports if report.method == _BASELINE), first)
    left_out = leave_one_out_tau(base.predicted, base.true)
    lines = [f"| {len(first.true):,} {name} | τ | ahead of {base.title} | R² |\n|---|---|---|---|"]
    errors = [0.0]
    for report in reports:
        errors.append(jackknife_error(leave_one_out_tau(report.predicted, report.true) - left_out))
        ahead = f"{report.tau.mean() - base.tau.mean():+.4f} ± {errors[-1]:.4f}"
        cells = [report.title, summary(report.tau, 4), "" if report is base else ahead]
        lines.append(f"| {' | '.join(cells)} | {summary(report.r2, 3)} |")
    few = too_few(len(first.true), max(errors))
    return [*lines, "", *filter(None, (first.baselines, few))]


def run(
    setting: Setting,
    out: str | os.PathLike,
    *,
    seed: int = 0,
    seeds: int | None = None,
    folder: str | None = None,
    show_progress: bool = True,
) -> Result:
    """Build the zoo and train every predictor; what an earlier call has finished is kept.

    Args:
        setting: `FULL` or `SMALL`.
        out: the folder for the zoo, the predictors and the results.
        seed: the seed of the zoo.
        seeds: predictors of each method, by default the setting's number.
        folder: the folder of the datasets' files; by default the one that UNF_DATA names.
        show_progress: show rates and the time left on standard error.

    Raises:
        ZooError: if the folder has another zoo.
        PredictError: if the folder has predictors that were trained with other settings.
    """
    target, started = Path(out), time.perf_counter()

    def note(what: str) -> None:
        if show_progress:
            say(f"{what} after {time.perf_counter() - started:.0f} s")

    recipe = dataclasses.replace(setting.recipe, data_folder=folder or "")
    zoo = build_mixed(
        recipe, target / "zoo", models=setting.models, seed=seed, resume=True,
        show_progress=show_progress,
    )  # fmt: skip
    note("the zoo is complete")
    reports = []
    for method in METHODS:
        reports.append(
            train(
                zoo, method, target / method, training=setting.training(method),
                seeds=setting.seeds if seeds is None else seeds, resume=True,
                show_progress=show_progress,
            )
        )  # fmt: skip
        note(f"{reports[-1].title} is trained and tested")
    result = Result(reports, target)
    plots.save(plots.mixed_scores(reports), target / "scores.png")
    plots.save(plots.training_curves(reports), target / "curves.png")
    held = [report.on_held_out for report in reports if report.held_out is not None]
    plots.save(plots.predictions(held or reports), target / "predictions.png")
    table = [
        {"method": r.method, "tau": r.tau.tolist(), "r2": r.r2.tolist(), "settings": r.settings}
        | ({} if r.held_out is None else {"held_out_tau": r.held_out["tau"].tolist()})
        | {"held_out_settings": None if r.held_out is None else r.held_out["settings"]}
        | {"architectures": r.architectures}
        for r in reports
    ]
    write_whole(target / "mixed-table.json", json.dumps(table, indent=1))
    write_whole(target / "mixed-table.md", f"{result}\n")
    return result
