"""Table 1: predicting the success of recurrent networks from their weights (§4.1)."""

import dataclasses
import json
import os
from pathlib import Path

from .._persistence import write_whole
from . import plots
from ._scores import jackknife_error, leave_one_out_tau, summary, too_few
from .predict import METHODS, Report, Training, train
from .zoos import TinyRNN, build

PAPER = {"deepset": "0.8306", "statnn": "0.8839 ± 0.0007", "unf": "0.8968 ± 0.0006"}
"""Kendall's τ as printed."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """How large the experiment is; `epochs` replaces each method's own number."""

    recipe: TinyRNN
    models: int
    sizes: tuple[int, int, int]
    seeds: int
    methods: tuple[str, ...] = ("deepset", "statnn", "unf", "unf-plus")
    epochs: int | None = None
    chunk: int | None = None

    def training(self, method: str) -> Training:
        """How a method is trained."""
        training = Training(**METHODS[method].defaults)
        return dataclasses.replace(training, epochs=self.epochs) if self.epochs else training


FULL = Setting(TinyRNN(), 10_000, (8000, 1000, 1000), 5)
SMALL = Setting(
    TinyRNN(hidden=8, digits=1, steps=300, problems=1000, batch_sizes=(16, 32, 64)),
    256,
    (160, 48, 48),
    2,
    epochs=6,
)


@dataclasses.dataclass(frozen=True)
class Result:
    """The table."""

    reports: list[Report]
    out: Path

    def __str__(self) -> str:
        first, best = self.reports[0], max(self.reports, key=lambda r: r.tau.mean())
        left_out = leave_one_out_tau(best.predicted, best.true)
        lines = ["| method | test τ | below the best | R² | paper's τ |\n|---|---|---|---|---|"]
        errors = []
        for r in self.reports:
            errors.append(jackknife_error(left_out - leave_one_out_tau(r.predicted, r.true)))
            below = f"{best.tau.mean() - r.tau.mean():.4f} ± {errors[-1]:.4f}"
            cells = [r.title, summary(r.tau, 4), "" if r is best else below, summary(r.r2, 3)]
            lines.append(f"| {' | '.join(cells)} | {PAPER.get(r.method, '')} |")
        lines.append(
            f"\n{len(first.true):,} test networks; ± is the standard error over "
            f"{len(first.seeds)} seeds, and of differences that over test networks"
        )
        if few := too_few(len(first.true), max(errors)):
            lines.append(few)
        lines += [
            first.baselines,
            "reordering hidden neurons changes predictions by at most "
            f"{max(r.invariance for r in self.reports):.0e}",
            f"pictures and numbers in {self.out}",
        ]
        return "\n".join(lines)


def run(
    setting: Setting,
    out: str | os.PathLike,
    *,
    seed: int = 0,
    seeds: int | None = None,
    show_progress: bool = True,
) -> Result:
    """Build the zoo and train every predictor; what an earlier call has finished is kept.

    Args:
        setting: `FULL` or `SMALL`.
        out: the folder for the zoo, the predictors and the results.
        seed: the seed of the zoo.
        seeds: predictors of each method, by default the setting's number.
        show_progress: show rates and the time left on standard error.

    Raises:
        ZooError: if the folder has another zoo.
        PredictError: if the folder has predictors that were trained with other settings.
    """
    folder = Path(out)
    zoo = build(
        setting.recipe, folder / "zoo", models=setting.models, seed=seed, chunk=setting.chunk,
        resume=True, show_progress=show_progress,
    )  # fmt: skip
    reports = [
        train(
            zoo, method, folder / method, training=setting.training(method),
            seeds=setting.seeds if seeds is None else seeds, sizes=setting.sizes, resume=True,
            show_progress=show_progress,
        )
        for method in setting.methods
    ]  # fmt: skip
    plots.save(plots.predictions(reports), folder / "predictions.png")
    plots.save(plots.training_curves(reports), folder / "curves.png")
    result = Result(reports, folder)
    table = [
        {"method": r.method, "tau": r.tau.tolist(), "r2": r.r2.tolist(), "retest": r.retest}
        for r in reports
    ]
    write_whole(folder / "table1.json", json.dumps(table, indent=1))
    write_whole(folder / "table1.md", f"{result}\n")
    return result
