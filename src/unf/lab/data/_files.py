"""The files of datasets: finding them, and reading arrays without trusting what they claim."""

import gzip
import io
import math
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..._persistence import write_whole

Folder = str | os.PathLike | None
"""A folder with data; None is the folder that the variable UNF_DATA names."""
_MAX_BYTES = 2**32
_MAX_RATIO = 1032
"""No compressed byte becomes more bytes than this."""


class DataError(ValueError):
    """Data that are missing or damaged: which file, what is wrong, and the remedy."""


class MissingDataError(DataError):
    """Data, or a package that contains them, that were not found."""


class Files(NamedTuple):
    """Where a dataset is stored.

    Attributes:
        prepared: the name of the prepared file.
        official: official files or folders; the first one that exists is read.
        words: the official files, for messages.
        instead: a dataset that needs no file.
    """

    prepared: str
    official: tuple[str, ...]
    words: str
    instead: str


def data_folder(folder: Folder) -> Path | None:
    """The given folder, or else the one that UNF_DATA names, if any."""
    where = folder or os.environ.get("UNF_DATA")
    return Path(where) if where else None


def find(name: str, folder: Folder, files: Files, *, prepared: bool = True) -> Path:
    """The path to read a dataset from: its prepared file, if that counts, else an official one.

    Raises:
        MissingDataError: if there is none; it says what was expected and where.
    """
    where = data_folder(folder)
    wanted = f"the official files ({files.words})"
    wanted = f"the file {files.prepared} or {wanted}" if prepared else wanted
    remedy = (
        "name a folder with --data-folder, set the variable UNF_DATA, or use the dataset "
        f"{files.instead!r}"
    )
    if where is None:
        raise MissingDataError(f"{name} needs {wanted}, and no folder was named: {remedy}")
    for path in ((files.prepared,) if prepared else ()) + files.official:
        if (where / path).exists():
            return where / path
    raise MissingDataError(f"{name} is not in {where}: expected {wanted}; put it there, {remedy}")


def read_bytes(path: Path) -> bytes:
    """The whole file, or a `DataError`."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); copy it again") from error


def read_idx(path: Path, ndim: int) -> np.ndarray:
    """The array of bytes in an IDX file, which may be compressed (.gz).

    Raises:
        DataError: if the file does not hold exactly one array of bytes with `ndim` axes.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            header = file.read(4 + 4 * ndim)
            if len(header) < 4 + 4 * ndim or header[:4] != bytes([0, 0, 8, ndim]):
                raise DataError(f"{path}: not an IDX file of bytes with {ndim} axes; copy it again")
            shape = struct.unpack(f">{ndim}I", header[4:])
            size, fits = math.prod(shape), _MAX_RATIO * path.stat().st_size
            content = file.read(size + 1) if size <= fits else b""
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read to its end ({error}); copy it again") from error
    if len(content) != size:
        raise DataError(f"{path}: does not hold the {size} bytes that it claims; copy it again")
    return np.frombuffer(content, np.uint8).reshape(shape)


def read_prepared(path: Path, fields: Sequence[str]) -> list[np.ndarray]:
    """The arrays of a prepared file, in the order of `fields`.

    Raises:
        DataError: if an array is missing, damaged, or claims to be larger than its file allows.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return [_read_member(stored, field, path.stat().st_size) for field in fields]
    except Exception as error:  # damaged archives and headers raise almost anything
        raise DataError(
            f"{path}: cannot read {tuple(fields)} ({error}); make it again with unf data prepare"
        ) from error


def _read_member(stored: Any, field: str, length: int) -> np.ndarray:
    """One array, after comparing the size that it claims with the file's."""
    member, library = stored.zip.getinfo(f"{field}.npy"), np.lib.format
    with stored.zip.open(member) as file:
        old = library.read_magic(file) == (1, 0)
        read = library.read_array_header_1_0 if old else library.read_array_header_2_0
        shape, _, dtype = read(file)
    size = math.prod(shape) * dtype.itemsize
    if size > min(member.file_size, _MAX_RATIO * length, _MAX_BYTES):
        raise ValueError(f"{field} claims {size} bytes, more than fits")
    return stored[field]


def write_prepared(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a prepared file, whole or not at all; the same arrays give the same bytes."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, buffer.getvalue())
