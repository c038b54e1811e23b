"""`unf reproduce`: the paper's tables and figure."""

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from .. import figure2, table1, table2
from .._option import option
from .._progress import say
from ..data import DataError
from ..lopt import MetaError
from ._command import Command, OptionError
from ._data import FOLDER
from ._shared import print_json, require


@dataclass(frozen=True, kw_only=True)
class Table1(Command):
    """Predict success from weights on the Tiny RNN Zoo, with every method."""

    examples = """\
  unf reproduce table1 --small       (two CPU cores, a few minutes)
  unf reproduce table1               (10,000 models; for a GPU)
"""
    small: bool = option(False, "a small version, for CPUs")
    seed: int = option(0, "of the zoo")
    seeds: int | None = option(None, "predictors of each method; by default 5, in small 2")
    out: Path | None = option(None, "for results; by default out/table1", metavar="DIR")
    json: bool = option(False, "for scripts", passing=True)
    quiet: bool = option(False, "show no progress", passing=True)

    def results(self) -> Path:
        """The folder of the zoo and the predictors."""
        return self.out or Path("out") / ("table1-small" if self.small else "table1")

    def run(self) -> int:
        """Build, train what has no result yet, print the table."""
        require(["matplotlib"], "plots")
        out = self.results()
        result = table1.run(
            table1.SMALL if self.small else table1.FULL,
            out,
            seed=self.seed,
            seeds=self.seeds,
            show_progress=not self.quiet,
        )
        if self.json:
            print((out / "table1.json").read_text())
        else:
            print(result)
        return 0


@dataclass(frozen=True, kw_only=True)
class Table2(Command):
    """Count the parameters of learned optimizers."""

    examples = "  unf reproduce table2               (two CPU cores, half a minute)\n"
    json: bool = option(False, "for scripts", passing=True)

    def run(self) -> int:
        """Make every optimizer, print the table."""
        say("making every optimizer …")
        rows = table2.run()
        if self.json:
            print_json([dataclasses.asdict(row) for row in rows])
        else:
            print(table2.as_text(rows))
        return 0


@dataclass(frozen=True, kw_only=True)
class Figure2(Command):
    """Meta-train learned optimizers on four tasks, and draw what they do."""

    examples = """\
  unf reproduce figure2 --small      (two CPU cores, some minutes)
  unf reproduce figure2 --data DIR   (at full size; for a GPU)
  unf reproduce figure2 --tasks mlp,cnn --steps mlp=50000,cnn=1000 --data DIR
"""
    small: bool = option(False, "a small version, for CPUs")
    seed: int = option(0, "of meta-training")
    seeds: int = option(5, "networks trained for each curve")
    tasks: tuple[str, ...] = option(tuple(figure2.KINDS), "panels", metavar="A,B,…")
    steps: str | None = option(
        None, "meta-steps: a number, or by task as mlp=50000,cnn=1000; by default the paper's",
        metavar="N",
    )  # fmt: skip
    data: Path | None = option(
        None, "by default what UNF_DATA names, or what needs no files", names=FOLDER, metavar="DIR"
    )
    out: Path | None = option(None, "for results; by default out/figure2", metavar="DIR")
    json: bool = option(False, "for scripts", passing=True)
    quiet: bool = option(False, "show no progress", passing=True)

    def results(self) -> Path:
        """The folder of the optimizers and their curves."""
        return self.out or Path("out") / ("figure2-small" if self.small else "figure2")

    def run(self) -> int:
        """Meta-train and evaluate what has no result yet, draw, print the tables."""
        require(["matplotlib"], "plots")
        try:
            result = figure2.run(
                self.results(),
                tasks=self.tasks,
                steps=_steps(self.steps, self.tasks),
                small=self.small,
                folder=self.data and str(self.data),
                seed=self.seed,
                seeds=self.seeds,
                announce=lambda text: print(text, file=sys.stderr),
                show_progress=not self.quiet,
            )
        except (DataError, MetaError):
            raise
        except ValueError as error:
            raise OptionError(str(error)) from error
        if self.json:
            print_json([json.loads(one.to_json()) for one in result.comparisons])
        else:
            print(result)
        return 0


def _steps(text: str | None, tasks: tuple[str, ...]) -> dict[str, int]:
    """Meta-steps by task, from a number for all or from `task=number,…`."""
    if text is None:
        return {}
    pairs = (
        [part.split("=") for part in text.split(",")]
        if "=" in text
        else [(task, text) for task in tasks]
    )
    try:
        return {task: int(steps) for task, steps in pairs}
    except ValueError:
        raise OptionError(
            f"--steps is {text!r}; expected a number, or tasks with numbers as mlp=50000,cnn=1000"
        ) from None


FAMILIES = {"reproduce": "run the paper's experiments again, from nothing"}
COMMANDS: dict[str, type[Command]] = {
    "reproduce table1": Table1,
    "reproduce table2": Table2,
    "reproduce figure2": Figure2,
}
