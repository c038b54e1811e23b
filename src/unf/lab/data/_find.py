"""Looking for a dataset's files in a folder."""

import os
from pathlib import Path
from typing import NamedTuple

from ._types import DataError, MissingDataError

Folder = str | os.PathLike | None
"""A folder with data; none is the folder that the variable UNF_DATA names."""


class Official(NamedTuple):
    """The files that a dataset is published as.

    Attributes:
        paths: files or folders any of which shows that the dataset is there; the first counts.
        words: the same for people.
        instead: a dataset that needs no file.
    """

    paths: tuple[str, ...]
    words: str
    instead: str


def data_folder(folder: Folder) -> Path | None:
    """The folder given, else the one that UNF_DATA names, if any."""
    where = folder or os.environ.get("UNF_DATA")
    return Path(where) if where else None


def read_file(path: Path) -> bytes:
    """All of a file.

    Raises:
        DataError: if it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


def find(name: str, folder: Folder, prepared: str | None, official: Official) -> Path:
    """The file to read a dataset from: the prepared one if it is there, else an official one.

    Raises:
        MissingDataError: if none is there; says what was looked for, where, and what to do.
    """
    files = f"official files ({official.words})" if prepared is None else f"file {prepared}"
    where = data_folder(folder)
    remedy = f"with --data-folder or the variable UNF_DATA, or use the dataset {official.instead!r}"
    if where is None:
        either = "" if prepared is None else f" or the official files ({official.words})"
        raise MissingDataError(
            f"{name} is in the {files}{either}, and no folder was named: name the folder {remedy}"
        )
    for path in official.paths if prepared is None else (prepared, *official.paths):
        if (where / path).exists():
            return where / path
    nor = "" if prepared is None else f", nor the official files ({official.words})"
    raise MissingDataError(
        f"no {files} (for {name}) in {where}{nor}: put them there, name another folder {remedy}"
    )
