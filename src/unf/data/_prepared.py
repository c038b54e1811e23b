"""Prepared arrays: compressed, without pickles, with a checksum."""

import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from .._files import write_whole
from ._types import DataError

_CHECKSUM = "sha256"
_DAMAGE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


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
            arrays = {field: stored[field] for field in fields}
            expected = str(stored[_CHECKSUM]) if _CHECKSUM in stored else None
    except _DAMAGE as error:
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
