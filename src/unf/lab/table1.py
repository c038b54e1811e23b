"""Table 1: predicting the success of recurrent networks from their weights (§4.1)."""

import dataclasses
import json
import os
from pathlib import Path

from .._files import write_whole
from ..zoo import Zoo
from . import plots
from ._scores import summary
from .predict import (
    METHODS,
    RESULT,
    PredictError,
    Report,
    Training,
    train,
)
from .zoos import TinyRNN, build

PAPER = {"deepset": "0.8306", "statnn": "0.8839 ± 0.0007", "unf": "0.8968 ± 0.0006"}


@dataclasses.dataclass(frozen=True)
class Setting:
    """How large the experiment is."""

    recipe: TinyRNN
    models: int
    sizes: tuple[int, int, int]
    seeds: int
    methods: tuple[str, ...] = tuple(METHODS)
    epochs: int | None = None
    """Instead of each method's own."""
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
        first = self.reports[0]
        lines = [
            "| method | test τ | R² | paper's τ |\n|---|---|---|---|",
            *(
                f"| {r.title} | {summary(r.tau, 4)} | {summary(r.r2, 3)} "
                f"| {PAPER.get(r.method, '')} |"
                for r in self.reports
            ),
            f"\n{len(first.true):,} test models, mean ± standard error of {len(first.seeds)} seeds",
            f"τ between two measurements of the truth {first.cap:.4f}; of boosted trees that know "
            f"only the training settings {first.settings:.4f}",
            f"reordering hidden neurons changes predictions by at most "
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
    """Build the zoo, or what is missing of it, and train every predictor that has no result yet.

    Args:
        setting: `FULL` or `SMALL`.
        out: folder for the zoo, the predictors and the results.
        seed: of the zoo.
        seeds: predictors of each method, by default the setting's.
        show_progress: show rates and time left on standard error.
    """
    folder = Path(out)
    zoo = build(
        setting.recipe,
        folder / "zoo",
        models=setting.models,
        seed=seed,
        chunk=setting.chunk,
        resume=True,
        show_progress=show_progress,
    )
    reports = [
        _report(
            setting, zoo, method, folder, setting.seeds if seeds is None else seeds, show_progress
        )
        for method in setting.methods
    ]
    plots.save(plots.predictions(reports), folder / "predictions.png")
    plots.save(plots.training_curves(reports), folder / "curves.png")
    result = Result(reports, folder)
    table = [
        {"method": r.method, "tau": r.tau.tolist(), "r2": r.r2.tolist(), "cap": r.cap}
        for r in reports
    ]
    write_whole(folder / "table1.json", json.dumps(table, indent=1))
    write_whole(folder / "table1.md", f"{result}\n")
    return result


def _report(
    setting: Setting, zoo: Zoo, method: str, folder: Path, seeds: int, show_progress: bool
) -> Report:
    """A method's result, from its folder if it is there and of this very experiment."""
    training, file = setting.training(method), folder / method / RESULT
    known = _read(file)
    wanted = {
        "method": method,
        "training": dataclasses.asdict(training),
        "zoo": zoo.origin,
        "split": dict(zip(("train", "valid", "test"), setting.sizes, strict=True)),
        "seeds": list(range(seeds)),
        "include_diverged": False,
    }
    if known is not None and all(getattr(known, name) == wanted[name] for name in wanted):
        return known
    return train(
        zoo,
        method,
        folder / method,
        training=training,
        seeds=seeds,
        sizes=setting.sizes,
        overwrite=True,
        show_progress=show_progress,
    )


def _read(file: Path) -> Report | None:
    try:
        return Report.from_json(file.read_text())
    except (OSError, UnicodeDecodeError, PredictError):
        return None
