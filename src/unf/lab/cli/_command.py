"""Commands are frozen dataclasses: their fields are options, on the command line and in files.

`tyro` reads the types, the defaults and the comments of the fields. A field that is itself a
dataclass is a group of options, and a table in a file.
"""

import dataclasses
import json
import re
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

from tyro.conf import Positional, arg
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from ..._persistence import write_whole
from ..._progress import say
from .._folder import provenance

_OURS = b"# unf "
"""How a configuration begins that was written here, and may be written again."""
_NOT_STORED = ("config", "json", "open", "overwrite", "processes", "quiet", "repair", "resume")
"""Options that say how a run is started or watched, not what it does."""
_OTHER_NAMES = {"folder": "data", "sizes": "split"}
"""Options that are named differently from the library's arguments."""


class CommandError(Exception):
    """A command cannot run with these options: what is wrong, and the remedy."""


@dataclass(frozen=True, kw_only=True)
class Command(ABC):
    """What somebody asks for. The docstring is shown by `--help`, with its examples."""

    at_once: ClassVar[bool] = False
    """Whether the folder of results appears only when they are complete."""

    # A TOML file with values for options, such as the one beside results; flags override it.
    config: Annotated[Path | None, arg(metavar="FILE")] = None

    @abstractmethod
    def run(self) -> int | None:
        """Do it; returns an exit code, or None for 0."""

    @classmethod
    def presets(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Groups whose defaults follow from other options, such as `--small`."""
        return {}

    def record(self) -> Path | None:
        """The file for the full configuration of this run, if it makes results."""
        return None

    def settled(self) -> "Command":
        """This command after it has run, with the values it found where none were given."""
        return self


@dataclass(frozen=True, kw_only=True)
class Job(Command):
    """A command that makes results, which takes a while."""

    quiet: bool = False  # Show no progress.
    json: bool = False  # Print JSON, for scripts.

    @property
    @abstractmethod
    def results(self) -> Path:
        """Where the results go."""

    def record(self) -> Path:
        """In the folder of the results."""
        return self.results / "config.toml"


Data = Annotated[Path | None, arg(aliases=("--data-folder",), metavar="DIR")]
File = Annotated[Path | None, arg(metavar="FILE")]
Folder = Annotated[Path | None, arg(metavar="DIR")]
REGISTRY = ConstructorRegistry()
"""Types that we read differently from tyro."""


@REGISTRY.primitive_rule
def _comma_separated(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Read `tuple[int, ...]` from one word, `32,64,128`; positional arguments stay several."""
    if get_origin(info.type) is not tuple or Positional in info.markers:
        return None
    kind: Any = get_args(info.type)[0]
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{kind.__name__.upper()},…",
        instance_from_str=lambda words: tuple(kind(x) for x in words[0].split(",") if x),
        is_instance=lambda x: isinstance(x, tuple),
        str_from_instance=lambda x: [",".join(map(str, x))],
    )


def one_of(names: Sequence[str]) -> PrimitiveConstructorSpec[str]:
    """An annotation of text that is one of several names."""
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{{{','.join(names)}}}",
        instance_from_str=lambda words: words[0],
        is_instance=lambda x: x in names,
        str_from_instance=lambda x: [x],
        choices=tuple(names),
    )


def options_of(kind: Any) -> dict[str, dataclasses.Field]:
    """All fields of a command, those of its groups too, by name."""
    plain = get_origin(kind) or kind
    hints, found = get_type_hints(plain), {}
    for field in dataclasses.fields(plain):
        hint = get_args(kind)[0] if isinstance(hints[field.name], TypeVar) else hints[field.name]
        found |= options_of(hint) if dataclasses.is_dataclass(hint) else {field.name: field}
    return found


def with_flags(text: str, names: Container[str]) -> str:
    """Name options where a message of the library names arguments.

    >>> with_flags("choose fewer pairs= or pass overwrite=True", {"pairs", "overwrite"})
    'choose fewer --pairs or pass --overwrite'
    """

    def flag(found: re.Match[str]) -> str:
        name = _OTHER_NAMES.get(found[1], found[1])
        value = "" if found[2] in ("", "True") else f" {found[2]}"
        return f"--{name.replace('_', '-')}{value}" if name in names else found[0]

    return re.sub(r"(?<![\w/.:-])([a-z_]+)=(\w*)", flag, text)


def print_json(value: Any) -> None:
    """Print one JSON value on standard output, for scripts."""
    print(json.dumps(value, indent=1))


def read_configuration(path: Path, name: str, kind: Any) -> dict[str, Any]:
    """The options in a file, for one command; those of a group may be in its table.

    Raises:
        CommandError: if the file is missing, not TOML, for another command, or has other options.
    """
    try:
        content = tomllib.loads(path.read_bytes().decode())
    except (OSError, ValueError, RecursionError) as error:
        raise CommandError(f"--config {path}: cannot be read ({error})") from error
    if (found := content.pop("command", name)) != name:
        raise CommandError(
            f"--config {path}: for another command; run: unf {found} --config {path}"
        )
    known, values = options_of(kind), {}
    groups = {field.name for field in dataclasses.fields(get_origin(kind) or kind)} - {*known}
    for key, value in content.items():
        values |= value if key in groups and isinstance(value, dict) else {key: value}
    values = {key.replace("-", "_"): value for key, value in values.items()}
    for key, value in values.items():
        if key not in known:
            has = ", ".join(known)
            raise CommandError(f"--config {path}: unf {name} has no option {key!r}; it has {has}")
        if isinstance(value, bool) != isinstance(known[key].default, bool):
            raise CommandError(f"--config {path}: {key} is {value!r}, which has the wrong type")
    return values


def as_words(values: Mapping[str, Any]) -> list[str]:
    """Options from a file as the words of a command line.

    >>> as_words({"steps": 3, "small": False, "batch_sizes": [1, 2]})
    ['--steps=3', '--no-small', '--batch-sizes=1,2']
    """
    words = []
    for key, value in values.items():
        flag = key.replace("_", "-")
        text = ",".join(map(str, value)) if isinstance(value, list) else value
        on = f"--{flag}" if value is True else f"--{flag}={text}"
        words.append(f"--no-{flag}" if value is False else on)
    return words


@contextmanager
def recorded(command: Command, name: str) -> Iterator[None]:
    """Write the configuration of a command that runs beside its results.

    A new folder has it from the start, so that a run that is killed can be resumed; a command
    that refuses to run leaves nothing behind. Files that people wrote themselves stay.
    """
    path = command.record()
    if path is None:
        yield
        return
    folder = path.parent
    new = path.name == "config.toml" and not folder.exists() and not command.at_once
    if new:
        folder.mkdir(parents=True)
        write_whole(path, as_toml(command, name, path))
    try:
        yield
    except Exception:
        if new and folder.exists() and list(folder.iterdir()) == [path]:
            path.unlink()
            folder.rmdir()
        raise
    if path.exists() and not path.read_bytes().startswith(_OURS):
        say(f"{path} was not written by unf and is left as it is")
    elif folder.exists():
        write_whole(path, as_toml(command.settled(), name, path))


def as_toml(command: Command, name: str, path: Path) -> str:
    """The full configuration of a run, with versions and date."""
    origin = ", ".join(f"{key} {value}" for key, value in provenance().items())
    again = f"unf {name} --config {_toml(path)} --out OTHER"
    lines, tables = [f"# {origin}", f"# Repeat with: {again}", f"command = {_toml(name)}"], []
    for key, value in _stored(command):
        if dataclasses.is_dataclass(value):
            tables += ["", f"[{key}]", *(f"{k} = {_toml(v)}" for k, v in _stored(value))]
        else:
            lines.append(f"{key} = {_toml(value)}")
    return "\n".join([*lines, *tables]) + "\n"


def _stored(options: Any) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value is not None and field.name not in _NOT_STORED:
            yield field.name, value


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, Path):
        return _toml(str(value.absolute()))  # so that it is found from anywhere
    if isinstance(value, str):  # JSON's strings are TOML's, but for one character
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)
