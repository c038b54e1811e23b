"""Comparing everything that reads weights, on several zoos: `unf reproduce inr` and `zoos`."""

import dataclasses
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._persistence import write_whole
from .._progress import say
from . import plots
from ._folder import provenance
from ._scores import summary, too_few
from .predict import METHODS, Report, Training, train
from .predict._methods import defaults_of
from .zoos import ImplicitZoo, Recipe, SmallCNNZoo, TinyRNN, VariedRNN, build

BATCH = 64
_AUGMENTED = ("reader", "probe", "reader-probe")
"""Methods for which images are moved, which helps them on validation networks."""


@dataclasses.dataclass(frozen=True)
class Row:
    """A zoo, and how predictors are trained on it.

    Attributes:
        title: its name in tables.
        recipe: how it is built.
        models: the number of networks; None is one for each image and copy.
        sizes: how many to train on, validate with and test on, if not as usual.
        steps: the training steps of each predictor, with batches of 64 and one set of options for
            all methods; None trains every method as `unf predict train` does.
        methods: those to compare.
    """

    title: str
    recipe: Recipe
    models: int | None = None
    sizes: tuple[int, int, int] | None = None
    steps: int | None = None
    methods: tuple[str, ...] = (
        "statnn", "deepset", "unf", "tied", "reader", "probe", "reader-probe"
    )  # fmt: skip

    def training(self, method: str, networks: int) -> Training:
        """How a method is trained on that many networks."""
        usual = defaults_of(method, mixed=False)
        if self.steps is None:
            return usual
        epochs = max(1, round(self.steps * BATCH / networks))
        return dataclasses.replace(
            usual, epochs=epochs, batch_size=BATCH, learning_rate=1e-3, schedule="cosine", clip=1.0,
            weight_decay=1e-2, standardize=method != "probe",
            augment=method in _AUGMENTED and isinstance(self.recipe, ImplicitZoo),
        )  # fmt: skip


def _images(title: str, dataset: str, copies: int, **options: Any) -> Row:
    title = f"{title}, {'one network' if copies == 1 else f'{copies} networks'} an image"
    recipe = ImplicitZoo(dataset=dataset, copies=copies, steps=500)
    return Row(title, recipe, steps=17_000, **options)


INR = {
    f"{dataset}-{copies}": _images(title, dataset, copies)
    for title, dataset in (
        ("MNIST", "mnist"), ("Fashion-MNIST", "fashion-mnist"), ("CIFAR-10", "cifar10")
    )
    for copies in (1, 10)
}  # fmt: skip
"""Which class an image has, from the weights of its implicit network."""
INR_SMALL = {
    "digits-1": Row(
        "digits, one network an image", ImplicitZoo(dataset="digits", hidden=8, steps=200),
        models=500, steps=200, methods=("statnn", "deepset", "unf", "reader", "probe"),
    )
}  # fmt: skip
ZOOS = {
    "small-cnn": Row(
        "CNNs on gray CIFAR-10", SmallCNNZoo(dataset="cifar10", gray=True, steps=1000), 10_000
    ),
    "varied-rnn": Row("RNNs whose weights matter", VariedRNN(), 8_000),
    "tiny-rnn": Row("RNNs of the paper's zoo", TinyRNN(), 10_000),
}
"""How successful a network is, from its weights."""
ZOOS_SMALL = {
    "small-cnn": Row(
        "CNNs on digits", SmallCNNZoo(channels=4, steps=100), 300,
        steps=100, methods=("statnn", "deepset", "unf", "probe"),
    ),
    "varied-rnn": Row(
        "RNNs whose weights matter",
        VariedRNN(hidden=8, digits=1, steps=300, min_steps=30, problems=1000, batch_sizes=(32,)),
        300, steps=100, methods=("statnn", "deepset", "unf", "probe"),
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Result:
    """The tables: for each zoo, a report of each method."""

    rows: dict[str, Row]
    reports: dict[str, list[Report]]
    out: Path

    @property
    def found(self) -> dict[str, list[dict[str, Any]]]:
        """The scores of every seed and the like, of each method on each zoo."""
        return {
            name: [
                {
                    "method": r.method,
                    "measure": r.measure,
                    "scores": r.main.tolist(),
                    "best_valid_scores": np.nanmax(r.valid_scores, axis=0).tolist(),
                    "error_over_networks": r.error_over_networks,
                    "retest": r.retest,
                    "settings": r.settings,
                    "parameters": r.parameters,
                    "seconds": r.seconds,
                    "networks": {part: int(count) for part, count in r.split.items()},
                    "training": r.training,
                }
                for r in reports
            ]
            for name, reports in self.reports.items()
        }

    def to_json(self) -> str:
        """The scores of every seed, with versions, machine and date."""
        return json.dumps({"zoos": self.found, **provenance()}, indent=1)

    def __str__(self) -> str:
        lines = []
        for name, reports in self.reports.items():
            lines += [*_table(self.rows[name].title, reports), ""]
        seeds = len(next(iter(self.reports.values()))[0].seeds)
        lines += [
            f"± is the standard error over {seeds} seeds; seconds are of all seeds together",
            f"pictures and numbers in {self.out}",
        ]
        return "\n".join(lines)


def _table(title: str, reports: Sequence[Report]) -> list[str]:
    """Test scores of each method on one zoo."""
    first = reports[0]
    lines = [
        f"| {title} | {first.measure} | best in validation | parameters | seconds |",
        "|---|---|---|---|---|",
    ]
    for r in reports:
        best = summary(np.nanmax(r.valid_scores, axis=0), 4)
        cells = [r.title, summary(r.main, 4), best, f"{r.parameters:,}", f"{r.seconds:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    tested = f"{len(first.true):,} test networks"
    few = too_few(len(first.true), first.error_over_networks, first.measure)
    return [*lines, "", *filter(None, (tested, first.baselines, few))]


def run(
    rows: dict[str, Row],
    out: str | os.PathLike,
    *,
    seed: int = 0,
    seeds: int = 5,
    methods: Sequence[str] = (),
    folder: str | None = None,
    show_progress: bool = True,
) -> Result:
    """Build the zoos and train every predictor; what an earlier call has finished is kept.

    Args:
        rows: some of `INR`, `ZOOS`, or their small versions.
        out: the folder for the zoos, the predictors and the results.
        seed: the seed of the zoos.
        seeds: predictors of each method.
        methods: which methods, by default those of each row.
        folder: the folder of the datasets' files; by default the one that UNF_DATA names.
        show_progress: show rates and the time left on standard error.

    Raises:
        ZooError: if a folder has another zoo.
        PredictError: if a folder has predictors that were trained with other settings.
    """
    for method in methods:
        defaults_of(method, mixed=False)  # refuses unknown methods before anything is built
    target, started = Path(out), time.perf_counter()

    def note(what: str) -> None:
        if show_progress:
            say(f"{what} after {time.perf_counter() - started:.0f} s")

    reports: dict[str, list[Report]] = {}
    for name, row in rows.items():
        recipe: Any = row.recipe
        if any(field.name == "data_folder" for field in dataclasses.fields(recipe)):
            recipe = dataclasses.replace(recipe, data_folder=folder or "")
        zoo = build(
            recipe, target / name / "zoo", models=row.models or recipe.most_models, seed=seed,
            chunk=1000 if isinstance(recipe, ImplicitZoo) else None, resume=True,
            show_progress=show_progress,
        )  # fmt: skip
        note(f"{row.title}: the zoo is complete")
        learned = len(zoo.split(row.sizes).train)
        reports[name] = []
        for method in methods or row.methods:
            report = train(
                zoo, method, target / name / method, training=row.training(method, learned),
                seeds=seeds, sizes=row.sizes, resume=True, show_progress=show_progress,
            )  # fmt: skip
            reports[name].append(report)
            note(f"{row.title}: {METHODS[method].title} is trained and tested")
        plots.save(plots.training_curves(reports[name]), target / name / "curves.png")
        plots.save(plots.predictions(reports[name]), target / name / "predictions.png")
        if isinstance(recipe, ImplicitZoo):
            plots.save(plots.zoo_overview(zoo), target / name / "images.png")
    result = Result(dict(rows), reports, target)
    plots.save(
        plots.scores_by_size({rows[name].title: each for name, each in result.found.items()}),
        target / "scores.png",
    )
    write_whole(target / "readers.json", result.to_json())
    write_whole(target / "readers.md", f"{result}\n")
    return result
