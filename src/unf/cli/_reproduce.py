"""`unf reproduce`: the paper's tables and figure."""

import argparse
from pathlib import Path
from typing import Any

from ..experiments import table1
from ._options import Help, require

EPILOG = """\
examples:
  unf reproduce table1 --small       a few minutes on two CPU cores
  unf reproduce table1               10,000 models; for a GPU
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
    parser.add_argument("what", choices=["table1"], help="table1: the Tiny RNN Zoo")
    parser.add_argument("--small", action="store_true", help="a small version, for CPUs")
    parser.add_argument("--seed", type=int, default=0, help="of the zoo")
    parser.add_argument("--seeds", type=int, default=None, help="predictors of each method")
    parser.add_argument("--out", type=Path, default=None, metavar="DIR", help="for results")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    require(["matplotlib"], "plots")
    setting = table1.SMALL if options.small else table1.FULL
    out = options.out or Path("out") / ("table1-small" if options.small else "table1")
    result = table1.run(
        setting,
        out,
        seed=options.seed,
        seeds=options.seeds,
        show_progress=not options.quiet,
    )
    print(result)
    return 0
