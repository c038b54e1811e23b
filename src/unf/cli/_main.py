"""Choosing a command, and turning errors people can mend into messages."""

import argparse
import sys
from collections.abc import Sequence

from .._version import __version__
from ..spec import SpecError
from . import _spec
from ._load import TargetError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `unf` with these arguments, by default the command line's; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="unf", description="Networks that read, edit and optimize the weights of others."
    )
    parser.add_argument("--version", action="version", version=f"unf {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _spec.add_parser(commands)
    options = parser.parse_args(arguments)
    try:
        return options.run(options)
    except (TargetError, SpecError) as error:
        print(f"unf {options.command}: {error}", file=sys.stderr)
        return 1
