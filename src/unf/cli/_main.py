"""Choosing a command, and turning errors people can mend into messages."""

import argparse
import sys
from collections.abc import Sequence

from .._version import __version__
from ..data import DataError
from ..experiments.predict import PredictError
from ..meta import MetaError
from ..spec import SpecError
from ..zoo import ZooError
from . import _cost, _data, _demo, _doctor, _lopt, _predict, _reproduce, _spec, _zoo
from ._load import TargetError
from ._options import INTERRUPTED, MissingExtra, OptionError
from ._processes import run_job

MENDABLE = (
    DataError,
    MetaError,
    MissingExtra,
    OptionError,
    OSError,
    PredictError,
    SpecError,
    TargetError,
    ZooError,
)
"""Errors whose message is all that is needed; others keep their traceback."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `unf` with these arguments, by default the command line's; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="unf", description="Networks that read, edit and optimize the weights of others."
    )
    parser.add_argument("--version", action="version", version=f"unf {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in (_demo, _spec, _cost, _data, _zoo, _predict, _lopt, _reproduce, _doctor):
        command.add_parser(commands)
    words = sys.argv[1:] if arguments is None else list(arguments)
    options = parser.parse_args(words)
    try:
        return run_job(options, words)
    except MENDABLE as error:
        print(f"unf {options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"unf {options.command}: stopped", file=sys.stderr)
        return INTERRUPTED
