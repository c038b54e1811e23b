"""The options of a run as a TOML file, written beside its results and read by `--config`."""

import dataclasses
import json
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..._files import write_whole
from .._progress import say
from .._provenance import provenance
from ._command import Command, Option, OptionError, options_of

_OURS = b"# unf "
"""How a file begins that was written here, and may be written again."""


def read_configuration(path: Path, name: str, command: type[Command]) -> dict[str, Any]:
    """The options in a file, for one command; those of a group may stand in its table.

    Raises:
        OptionError: if the file is missing, no TOML, of another command, or has other keys.
    """
    try:
        content = tomllib.loads(path.read_bytes().decode())
    except (OSError, ValueError, RecursionError) as error:
        raise OptionError(f"--config {path}: cannot be read ({error})") from error
    found = content.pop("command", name)
    if found != name:
        raise OptionError(
            f"--config {path}: has options of another command; run: unf {found} --config {path}"
        )
    known = {option.name: option for option in options_of(command)}
    tables = {option.group.name for option in known.values() if option.group}
    values: dict[str, Any] = {}
    for key, value in _flat(content, tables):
        option = known.get(key.replace("-", "_"))
        if option is None:
            raise OptionError(
                f"--config {path}: unf {name} has no option {key!r}; it has {', '.join(known)}"
            )
        if option.name in values:
            raise OptionError(f"--config {path}: {option.name} is there twice")
        try:
            values[option.name] = option.accept(value)
        except OptionError as error:
            raise OptionError(f"--config {path}: {error}") from error
    return values


def _flat(content: Mapping[str, Any], tables: set[str]) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if key in tables and isinstance(value, dict):
            yield from value.items()
        else:
            yield key, value


@contextmanager
def recorded(command: Command, name: str) -> Iterator[None]:
    """Write all options beside the results of what is done meanwhile.

    A folder that is new gets them at once, so that what is killed can be resumed; if the command
    refuses to run, nothing is left. Afterwards what it left open is settled.
    """
    place = command.results()
    if place is None:
        yield
        return
    if command.results_are_a_file:
        path, new = place.with_name(f"{place.name}.config.toml"), False
    else:
        path, new = place / "config.toml", not place.exists()
    if new:
        place.mkdir(parents=True)
        write_whole(path, as_toml(command, name, path))
    try:
        yield
    except Exception:
        if new and place.exists() and list(place.iterdir()) == [path]:
            path.unlink()
            place.rmdir()
        raise
    if path.exists() and not path.read_bytes().startswith(_OURS):
        say(f"{path} is your own, and stays as it is")
    elif place.exists():
        write_whole(path, as_toml(command.settled(), name, path))


def as_toml(command: Command, name: str, path: Path) -> str:
    """All options that are part of what was done, with versions and date."""
    origin = ", ".join(f"{key} {value}" for key, value in provenance().items())
    lines = [
        f"# {origin}",
        f"# Again: unf {name} --config {_value(path)} --out ANOTHER",
        f"command = {_value(name)}",
    ]
    within: dataclasses.Field | None = None
    options = sorted(options_of(type(command)), key=lambda option: option.group is not None)
    for option in options:
        value = _held(command, option)
        if value is None or option.field.metadata.get("passing"):
            continue
        if option.group is not within:
            within = option.group
            lines += ["", f"[{within.name}]" if within else ""]
        lines.append(f"{option.name} = {_value(value)}")
    return "\n".join(lines) + "\n"


def _held(command: Command, option: Option) -> Any:
    holder = getattr(command, option.group.name) if option.group else command
    return getattr(holder, option.name)


def _value(value: Any) -> str:
    """As TOML writes it; JSON's strings are TOML's."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Path):
        return _value(str(value.absolute()))  # found from anywhere
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)
