"""`unf reproduce`: the paper's tables and figure."""

import argparse
import sys
from pathlib import Path
from typing import Any

from ..data import DataError
from ..experiments import figure2, table1, table2
from ..meta import MetaError
from ._options import Help, OptionError, require

EPILOG = """\
examples:
  unf reproduce table1 --small       a few minutes on two CPU cores
  unf reproduce table1               10,000 models; for a GPU
  unf reproduce table2               sizes of learned optimizers; seconds
  unf reproduce figure2 --small      learned optimizers; some minutes on two CPU cores
  unf reproduce figure2 --data DIR   at full size; for a GPU
"""


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "reproduce",
        help="the paper's tables and figure",
        description="Run the paper's experiments again, from nothing.",
        epilog=EPILOG,
        formatter_class=Help,
    )
    parser.add_argument(
        "what",
        choices=["table1", "table2", "figure2"],
        help="table1: the Tiny RNN Zoo; table2: sizes of optimizers; figure2: learned optimizers",
    )
    parser.add_argument("--small", action="store_true", help="a small version, for CPUs")
    parser.add_argument("--seed", type=int, default=0, help="of the zoo, or of meta-training")
    parser.add_argument("--seeds", type=int, default=None, help="predictors, or networks")
    parser.add_argument("--tasks", default=",".join(figure2.KINDS), help="panels of figure2")
    parser.add_argument(
        "--steps",
        default=None,
        metavar="N",
        help="meta-steps of figure2: a number, or by task as mlp=50000,cnn=1000",
    )
    parser.add_argument("--data", "--data-folder", default=None, metavar="DIR", help="for figure2")
    parser.add_argument("--out", type=Path, default=None, metavar="DIR", help="for results")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    name = options.what + ("-small" if options.small else "")
    out = options.out or Path("out") / name
    print({"table1": _table1, "table2": _table2, "figure2": _figure2}[options.what](options, out))
    return 0


def _table1(options: argparse.Namespace, out: Path) -> Any:
    require(["matplotlib"], "plots")
    return table1.run(
        table1.SMALL if options.small else table1.FULL,
        out,
        seed=options.seed,
        seeds=options.seeds,
        show_progress=not options.quiet,
    )


def _table2(options: argparse.Namespace, out: Path) -> str:
    return table2.as_text(table2.run())


def _figure2(options: argparse.Namespace, out: Path) -> Any:
    require(["matplotlib"], "plots")
    tasks = tuple(options.tasks.split(","))
    try:
        return figure2.run(
            out,
            tasks=tasks,
            steps=_steps(options.steps, tasks),
            small=options.small,
            folder=options.data,
            seed=options.seed,
            seeds=5 if options.seeds is None else options.seeds,
            announce=lambda text: print(text, file=sys.stderr),
            show_progress=not options.quiet,
        )
    except (DataError, MetaError):
        raise
    except ValueError as error:
        raise OptionError(str(error)) from error


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
