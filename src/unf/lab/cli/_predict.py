"""`unf predict`: how well networks work, from their weights alone."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._devices import is_first
from ...zoo import Zoo
from .. import plots, predict
from .._option import option
from ._command import Command, group
from ._processes import Processes
from ._shared import print_json, require


@dataclass(frozen=True, kw_only=True)
class Train(Command):
    """Train predictors and test them once."""

    examples = """\
  unf predict train --zoo out/zoo --method unf --seeds 5 --out out/unf
  unf predict train --zoo out/zoo --method statnn
"""
    zoo: Path = option(help="whose models' success to predict", metavar="DIR")
    method: str = option(help="what reads the weights", choices=tuple(predict.METHODS))
    out: Path | None = option(None, "for results; by default out/predict-METHOD", metavar="DIR")
    seeds: int = option(5, "how many predictors")
    seed: int = option(0, "of the first predictor")
    split: tuple[int, ...] | None = option(
        None, "models to train on, validate with and test on; by default 8:1:1", metavar="A,B,C"
    )
    include_diverged: bool = option(False, "use models with NaN weights, as zeros")
    resume: bool = option(False, "go on after the last epoch of a stopped run", passing=True)
    overwrite: bool = option(False, "replace an earlier training in the folder", passing=True)
    json: bool = option(False, "print result.json", passing=True)
    quiet: bool = option(False, "show no progress", passing=True)
    training: predict.Training = group("training (defaults: the paper's; unf-plus has its own)")
    processes: Processes = group("several processes")

    @classmethod
    def presets(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the method trains with."""
        return predict.METHODS[given["method"]].defaults if "method" in given else {}

    def results(self) -> Path:
        """The folder of the predictors."""
        return self.out or Path("out") / f"predict-{self.method}"

    def run(self) -> int:
        """Train, test, draw."""
        require(["matplotlib"], "plots")
        out = self.results()
        report = predict.train(
            Zoo(self.zoo),
            self.method,
            out,
            training=self.training,
            seeds=self.seeds,
            seed=self.seed,
            sizes=self.split,
            include_diverged=self.include_diverged,
            resume=self.resume,
            overwrite=self.overwrite,
            show_progress=not self.quiet,
        )
        if not is_first():
            return 0
        plots.save(plots.predictions([report]), out / "predictions.png")
        plots.save(plots.training_curves([report]), out / "curves.png")
        if self.json:
            print_json(json.loads(report.to_json()))
        else:
            print(report)
        print(f"results in {out}", file=sys.stderr)
        return 0


@dataclass(frozen=True, kw_only=True)
class Apply(Command):
    """Predict the success of a zoo's networks, as CSV."""

    examples = """\
  unf predict apply --checkpoint out/unf --zoo out/another-zoo > predictions.csv
"""
    checkpoint: Path = option(help="a predictor, or a folder of several", metavar="PATH")
    zoo: Path = option(help="whose weights to read", metavar="DIR")
    out: Path | None = option(None, "by default standard output", metavar="FILE")

    def run(self) -> int:
        """Predict, and print or write a line for each model."""
        zoo = Zoo(self.zoo)
        rows, predicted = predict.apply(self.checkpoint, zoo)
        lines = ["model,predicted,measured"]
        lines += [
            f"{row},{value:.6f},{zoo.success[row, 0]:.6f}"
            for row, value in zip(rows, predicted, strict=True)
        ]
        text = "\n".join(lines) + "\n"
        if self.out:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self.out.write_text(text)
        else:
            sys.stdout.write(text)
        return 0


FAMILIES = {"predict": "predict how well networks work from their weights"}
COMMANDS: dict[str, type[Command]] = {"predict train": Train, "predict apply": Apply}
