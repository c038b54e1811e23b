"""Command-line options from the fields of a dataclass."""

import argparse
import dataclasses
import importlib.util
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")
INTERRUPTED = 130
"""The exit code after Ctrl-C."""


class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows defaults, and examples as they were written."""


def add_options(parser: Any, kind: type, *, defaults: bool = True) -> None:
    """An option for every field, with its type, default and help.

    Args:
        parser: the parser, or a group of it.
        kind: a dataclass whose fields have defaults, and the metadata `help`.
        defaults: without, options that are not given are left out of the result.
    """
    for field in dataclasses.fields(kind):
        several = isinstance(field.default, tuple)
        example: Any = field.default[0] if isinstance(field.default, tuple) else field.default
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=_several(type(example)) if several else type(example),
            default=field.default if defaults else argparse.SUPPRESS,
            metavar="A,B,…" if several else type(example).__name__.upper(),
            help=_help(field, defaults),
        )


def _help(field: Any, defaults: bool) -> str:
    """The field's own text, with its default where argparse does not know it."""
    text = field.metadata.get("help", "").replace("%", "%%")
    return text if defaults else f"{text} (default: {field.default})"


def from_options(kind: type[T], options: argparse.Namespace, **known: Any) -> T:
    """The dataclass with the options given."""
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    given = {name: value for name, value in vars(options).items() if name in names}
    try:
        return kind(**{**known, **given})
    except ValueError as error:
        raise OptionError(str(error)) from error


def whole_numbers(text: str) -> tuple[int, ...]:
    """E.g. 8000,1000,1000."""
    return _several(int)(text)


def _several(kind: type) -> Any:
    def parse(text: str) -> tuple:
        return tuple(kind(part) for part in text.split(","))

    parse.__name__ = f"comma-separated {kind.__name__}s"
    return parse


def require(modules: Sequence[str], extra: str) -> None:
    """Stop with the remedy if a module of an extra is not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"{' and '.join(missing)} not installed; "
            f"run: pip install 'universal-neural-functionals[{extra}]'"
        )


class OptionError(Exception):
    """An option has a value that does not serve."""


class MissingExtra(Exception):
    """An optional dependency that a command needs is not installed."""
