"""Predicting accuracy in a zoo of many architectures, also of architectures never seen."""

import dataclasses
import json
import os
import time
from functools import cached_property
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

    @cached_property
    def parts(self) -> dict[str, list[Report]]:
        """The reports on networks of known architectures and, if any, of held-out ones."""
        found = {"known": self.reports}
        if self.reports[0].held_out is not None:
            found["held-out"] = [report.on_held_out for report in self.reports]
        return found

    @cached_property
    def margins(self) -> dict[str, list[tuple[float, float]]]:
        """By how much the τ of each report is above the baseline's, with its standard error.

        The standard error is over test networks.
        """
        found = {}
        for name, reports in self.parts.items():
            base = _base(reports)
            others = leave_one_out_tau(base.predicted, base.true)
            found[name] = []
            for one in reports:
                taus = others if one is base else leave_one_out_tau(one.predicted, one.true)
                mean = float(one.tau.mean() - base.tau.mean())
                found[name].append((mean, jackknife_error(taus - others)))
        return found

    def to_json(self) -> str:
        """The scores of every seed, on each part of the zoo and within each architecture."""
        rows = []
        for i, one in enumerate(self.reports):
            row = {"method": one.method, "architectures": one.architectures}
            for name, reports in self.parts.items():
                report, (mean, error) = reports[i], self.margins[name][i]
                row[name] = {
                    "networks": len(report.true),
                    "tau": report.tau.tolist(),
                    "r2": report.r2.tolist(),
                    "retest": report.retest,
                    "settings": report.settings,
                    "ahead": {"of": _base(reports).method, "mean": mean, "standard_error": error},
                }
            rows.append(row)
        return json.dumps(rows, indent=1)

    def __str__(self) -> str:
        lines = []
        for name, reports in self.parts.items():
            title = f"networks of {name} architectures"
            lines += [*_table(title, reports, self.margins[name]), ""]
        gap = max(report.invariance for report in self.reports)
        lines += [
            f"± is the standard error over {len(self.reports[0].seeds)} seeds, and of differences "
            "that over test networks",
            f"reordering hidden neurons changes predictions by at most {gap:.0e}",
            f"pictures and numbers in {self.out}",
        ]
        return "\n".join(lines)


def _table(name: str, reports: list[Report], margins: list[tuple[float, float]]) -> list[str]:
    """Test τ of each method on one part of the zoo, and how far it is ahead of the baseline."""
    first, base = reports[0], _base(reports)
    lines = [f"| {len(first.true):,} {name} | τ | ahead of {base.title} | R² |\n|---|---|---|---|"]
    for report, (mean, error) in zip(reports, margins, strict=True):
        ahead = "" if report is base else f"{mean:+.4f} ± {error:.4f}"
        cells = [report.title, summary(report.tau, 4), ahead]
        lines.append(f"| {' | '.join(cells)} | {summary(report.r2, 3)} |")
    few = too_few(len(first.true), max(error for _, error in margins))
    return [*lines, "", *filter(None, (first.baselines, few))]


def _base(reports: list[Report]) -> Report:
    """The report that others are compared with."""
    return next((report for report in reports if report.method == _BASELINE), reports[0])


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
    *_, last = result.parts.values()
    plots.save(plots.predictions(last), target / "predictions.png")
    write_whole(target / "mixed-table.json", result.to_json())
    write_whole(target / "mixed-table.md", f"{result}\n")
    return result
