"""Commands are dataclasses: their fields are the options.

A field's metadata may say how the option looks: `help`, `choices`, `metavar`, `names` (flags
instead of its own), `positional`, `bare` (its value where only the flag is given), `passing`
(a matter of this one call, like `--quiet`: not part of the configuration). A field that is
itself a dataclass is a group of options; its metadata has a `title`.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

C = TypeVar("C", bound="Command")


class OptionError(Exception):
    """An option has a value that does not serve."""


class UsageError(Exception):
    """An option that is needed was not given."""


@dataclass(frozen=True, kw_only=True)
class Command(ABC):
    """What somebody asks for. The docstring's first line is its help."""

    examples: ClassVar[str] = ""
    results_are_a_file: ClassVar[bool] = False

    @abstractmethod
    def run(self) -> int:
        """Do it; returns the exit code."""

    @classmethod
    def presets(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Defaults that follow from the options given, such as those of `--small`."""
        return {}

    def results(self) -> Path | None:
        """The folder that gets results, or the file; the configuration is written beside them."""
        return None

    def settled(self) -> "Command":
        """This command with what it left open: what was found here, once it has run."""
        return self


@dataclass(frozen=True)
class Option:
    """One option of a command.

    Attributes:
        field: of the command, or of its group.
        kind: the type of one value.
        several: whether there may be many.
        group: the command's field that it belongs to, if any.
    """

    field: dataclasses.Field
    kind: type
    several: bool
    group: dataclasses.Field | None = None

    @property
    def name(self) -> str:
        """The field's name, which is also the key in a configuration."""
        return self.field.name

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.field.default is MISSING and self.field.default_factory is MISSING

    @property
    def shown(self) -> str:
        """Its name as people type it."""
        about = self.field.metadata
        if about.get("positional"):
            return about.get("metavar", self.name.upper())
        return about.get("names", (f"--{self.name.replace('_', '-')}",))[0]

    def read(self, text: str) -> Any:
        """The value that is meant by a word of the command line."""
        if self.several and not self.field.metadata.get("positional"):
            return tuple(self.kind(part) for part in text.split(","))
        return self.kind(text)

    def accept(self, value: Any) -> Any:
        """The value that is meant by one of a configuration file.

        Raises:
            OptionError: if it has another type.
        """
        stored = {float: (int, float), Path: (str,)}.get(self.kind, (self.kind,))
        values = value if self.several and isinstance(value, list) else [value]
        fits = [isinstance(x, stored) and (isinstance(x, bool) == (bool in stored)) for x in values]
        if not all(fits) or self.several != isinstance(value, list):
            kind = f"a list of {self.kind.__name__}" if self.several else self.kind.__name__
            raise OptionError(f"{self.name} is {value!r}; expected {kind}")
        made = tuple(self.kind(x) for x in values)
        choices = self.field.metadata.get("choices", made)
        if not set(made) <= set(choices):
            raise OptionError(f"{self.name} is {value!r}; expected one of {list(choices)}")
        return made if self.several else made[0]


def group(title: str) -> Any:
    """A field whose type is a dataclass of options."""
    return dataclasses.field(metadata={"title": title})


def options_of(command: type[Command]) -> list[Option]:
    """All options, those of groups too, in the order in which they are written.

    >>> @dataclass(frozen=True, kw_only=True)
    ... class Greet(Command):
    ...     names: tuple[str, ...] = ("world",)
    ...     def run(self): return 0
    >>> [(o.shown, o.kind.__name__, o.several) for o in options_of(Greet)]
    [('--names', 'str', True)]
    """
    return list(_options(command, None))


def _options(kind: type, within: dataclasses.Field | None):
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            yield from _options(hint, field)  # type: ignore[arg-type]
        elif field.init:
            yield Option(field, *_value_type(hint), within)


def _value_type(hint: Any) -> tuple[type, bool]:
    """The type of one value, and whether there may be several."""
    if get_origin(hint) in (Union, UnionType):
        (hint,) = [part for part in get_args(hint) if part is not NoneType]
    if get_origin(hint) is tuple:
        return get_args(hint)[0], True
    return (str if get_origin(hint) is Literal else hint), False


def make(command: type[C], given: Mapping[str, Any]) -> C:
    """The command with the options given, and defaults for the others.

    Raises:
        UsageError: if one is missing.
        OptionError: if one has a value that does not serve.
    """
    options = options_of(command)
    missing = [o.shown for o in options if o.required and o.name not in given]
    if missing:
        raise UsageError(f"the following arguments are required: {', '.join(missing)}")
    values = {**command.presets(given), **given}
    hints, fields = get_type_hints(command), {}
    try:
        for field in dataclasses.fields(command):
            within = [o.name for o in options if o.group is field and o.name in values]
            if dataclasses.is_dataclass(hints[field.name]):
                fields[field.name] = hints[field.name](**{name: values[name] for name in within})
            elif field.name in values:
                fields[field.name] = values[field.name]
        return command(**fields)
    except ValueError as error:
        raise OptionError(str(error)) from error
