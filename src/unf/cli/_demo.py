"""`unf demo`: a first job, from nothing, in a minute."""

import argparse
import time
from pathlib import Path
from typing import Any

from ..experiments.demo import Config, run
from ._options import Help, OptionError, require


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "demo",
        help="predict how accurate small networks are, from their weights alone",
        description="Train small networks, and predict their accuracy from their weights alone.",
        epilog="examples:\n  unf demo                      (two CPU cores, a minute)\n",
        formatter_class=Help,
    )
    option = parser.add_argument
    option("--networks", type=int, default=Config.networks, help="how many networks to train")
    option("--repeats", type=int, default=Config.repeats, help="training runs of each predictor")
    option("--seed", type=int, default=Config.seed, help="of everything random")
    option("--out", type=Path, default=Config.out, help="folder for the picture")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    require(["matplotlib"], "plots")
    started = time.perf_counter()
    config = Config(
        networks=options.networks, repeats=options.repeats, seed=options.seed, out=options.out
    )
    try:
        run(config)
    except ValueError as error:
        raise OptionError(str(error)) from error
    print(f"{time.perf_counter() - started:.0f} s in all")
    return 0
