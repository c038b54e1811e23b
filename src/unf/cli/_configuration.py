"""The options of a run as a TOML file, written beside its results and read by `--config`."""

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any

from .._files import write_whole
from .._provenance import provenance
from ._command import Command, Option, OptionError, options_of


def read_configuration(path: Path, name: str, command: type[Command]) -> dict[str, Any]:
    """The options in a file, for one command; tables are only for people to read.

    Raises:
        OptionError: if the file is missing, no TOML, of another command, or has other keys.
    """
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise OptionError(f"--config {path}: cannot be read ({error})") from error
    found = content.pop("command", name)
    if found != name:
        raise OptionError(
            f"--config {path}: has options of another command; run: unf {found} --config {path}"
        )
    flat: dict[str, Any] = {}
    for key, value in content.items():
        flat |= value if isinstance(value, dict) else {key: value}
    known = {option.name: option for option in options_of(command)}
    values = {}
    for key, value in flat.items():
        option = known.get(key.replace("-", "_"))
        if option is None:
            raise OptionError(f"--config {path}: unf {name} has no option {key!r}; it has "
                              f"{', '.join(known)}")  # fmt: skip
        try:
            values[option.name] = option.accept(value)
        except OptionError as error:
            raise OptionError(f"--config {path}: {error}") from error
    return values


def write_configuration(command: Command, name: str) -> None:
    """Write all options beside the results, if there are any."""
    place = command.results()
    if place is None or not place.exists():
        return
    path = place / "config.toml" if place.is_dir() else place.with_suffix(".toml")
    write_whole(path, as_toml(command, name, path))


def as_toml(command: Command, name: str, path: Path) -> str:
    """All options that are part of what was done, with versions and date."""
    origin = ", ".join(f"{key} {value}" for key, value in provenance().items())
    lines = [
        f"# {origin}",
        f"# To run it again, into another folder: unf {name} --config {path.name} --out FOLDER",
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
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)
