"""Choosing a command, and turning errors people can mend into messages."""

import sys
from collections.abc import Sequence
from typing import Any

from ..._version import __version__
from ...spec import SpecError
from ...zoo import ZooError
from ..data import DataError
from ..lopt import MetaError
from ..predict import PredictError
from ..report import ReportError
from . import (
    _completion,
    _cost,
    _data,
    _demo,
    _doctor,
    _lopt,
    _predict,
    _report,
    _reproduce,
    _spec,
    _zoo,
)
from ._command import Command, OptionError, UsageError, make, options_of
from ._configuration import read_configuration
from ._load import TargetError
from ._parser import Parser, make_parser
from ._processes import run_job
from ._shared import INTERRUPTED, MissingExtra

_MODULES = (
    _demo, _spec, _cost, _data, _zoo, _predict, _lopt, _reproduce, _report, _doctor, _completion,
)  # fmt: skip
COMMANDS: dict[str, type[Command]] = {
    name: command for module in _MODULES for name, command in module.COMMANDS.items()
}
"""Every command, by the words that call it."""
MENDABLE = (
    DataError,
    MetaError,
    MissingExtra,
    OptionError,
    OSError,
    PredictError,
    ReportError,
    SpecError,
    TargetError,
    ZooError,
)
"""Errors whose message is all that is needed; others keep their traceback."""
_EPILOG = """\
Every command has --help with examples, and --config FILE for its options. What takes long shows
its progress on standard error. Zoos, predictors and meta-trainings can be stopped, and go on with
--resume; unf reproduce goes on when it is called again.

exit codes:
  0    done
  1    failed: a value that does not serve, a file that is missing, a check that found something
  2    the command line cannot be understood
  130  stopped with Ctrl-C
"""


def parser() -> Parser:
    """The parser of all commands."""
    families = {k: v for module in _MODULES for k, v in getattr(module, "FAMILIES", {}).items()}
    return make_parser(
        COMMANDS,
        families,
        description="Networks that read, edit and optimize the weights of others.",
        epilog=_EPILOG,
        version=f"unf {__version__}",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `unf` with these arguments, by default the command line's; returns the exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if not words:
        parser().print_help()
        return 2
    try:
        return run_job(*understand(words), words)
    except MENDABLE as error:
        print(f"unf {words[0]}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"unf {words[0]}: stopped", file=sys.stderr)
        return INTERRUPTED


def _without_presets(
    command: type[Command], stored: dict[str, Any], given: dict[str, Any]
) -> dict[str, Any]:
    """What a file says, but for presets of an option that is now another, such as the method."""
    before, now = command.presets(stored), command.presets(stored | given)
    if before == now:
        return stored
    usual = {o.name: before.get(o.name, o.field.default) for o in options_of(command)}
    changed = {*before, *now}
    return {k: v for k, v in stored.items() if k not in changed or v != usual[k]}


def understand(words: Sequence[str]) -> tuple[str, Command]:
    """The command that is meant by words, and its name; ends the program where they are wrong.

    Raises:
        OptionError: if an option has a value that does not serve.
    """
    found = vars(parser().parse_args(words))
    name, used, file = (found.pop(key) for key in ("_name", "_parser", "_config"))
    given = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in found.items()
        if value not in (None, [])  # positional ones that were not given
    }
    stored = read_configuration(file, name, COMMANDS[name]) if file else {}
    try:
        return name, make(COMMANDS[name], _without_presets(COMMANDS[name], stored, given) | given)
    except UsageError as error:
        return used.error(str(error))
