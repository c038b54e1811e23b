"""Prepared arrays: compressed, without pickles, with a checksum."""

import hashlib
import io
import math
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ..._files import write_whole
from ._idx import MOST_RATIO
from ._types import DataError

_CHECKSUM = "sha256"
_MOST_BYTES = 2**32


def read_prepared(path: Path, fields: Sequence[str]) -> list[np.ndarray]:
    """The arrays of a prepared file.

    Args:
        path: the file.
        fields: their names, in order.

    Raises:
        DataError: if one is missing or damaged, or they do not have the file's checksum; a file
            without a checksum is accepted.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            for field in (*fields, *({_CHECKSUM} & {*stored})):
                _check_size(stored.zip, field, path.stat().st_size)
            arrays = {field: stored[field] for field in fields}
            expected = str(stored[_CHECKSUM]) if _CHECKSUM in stored else None
    except Exception as error:  # damaged archives and headers raise almost anything
        raise DataError(
            f"{path}: not a whole file of {tuple(fields)} ({error}); "
            "make it again with unf data prepare"
        ) from error
    if expected is not None and checksum(arrays) != expected:
        raise DataError(
            f"{path}: its arrays have the checksum {checksum(arrays)[:12]}…, but were written with "
            f"{expected[:12]}…; make it again with unf data prepare"
        )
    return list(arrays.values())


def _check_size(archive: zipfile.ZipFile, field: str, length: int) -> None:
    """Compare an array's size with its file's, before room is made for it."""
    member = archive.getinfo(f"{field}.npy")
    with archive.open(member) as file:
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[np.lib.format.read_magic(file)]
        shape, _, dtype = read(file)
    size = math.prod(shape) * dtype.itemsize
    if size > min(member.file_size, MOST_RATIO * length, _MOST_BYTES):
        raise ValueError(f"{field} is said to have {size} bytes, more than there can be")


def write_prepared(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a prepared file, whole or not at all; the same arrays give the same file."""
    buffer = io.BytesIO()
    everything = {**arrays, _CHECKSUM: np.array(checksum(arrays))}
    np.savez_compressed(buffer, **everything)  # type: ignore[arg-type]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, buffer.getvalue())


def checksum(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of names, types, shapes and values.

    >>> checksum({"x": np.arange(3, dtype=np.uint8)})[:12]
    'b4c7ad392222'
    """
    digest = hashlib.sha256()
    for name, array in arrays.items():
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(f"{name} {little.dtype.str} {little.shape}\n".encode())
        digest.update(np.ascontiguousarray(little).tobytes())
    return digest.hexdigest()
