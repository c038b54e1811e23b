"""IDX files: a magic number, the sizes of the axes, then bytes."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from ._types import DataError

_MOST_BYTES = 2**28
MOST_RATIO = 1032
"""Of bytes to the compressed bytes that they come from."""
_UNSIGNED_BYTE = 8


def read_idx(path: Path, ndim: int) -> np.ndarray:
    """The array of bytes in an IDX file, which may be compressed (.gz).

    Args:
        path: the file.
        ndim: how many axes the array must have.

    Raises:
        DataError: if the file is not such an array, or not all of it.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            header = file.read(4 + 4 * ndim)
            if len(header) < 4 + 4 * ndim:
                raise DataError(f"{path}: ends within its header; copy the official file again")
            magic, *shape = struct.unpack(f">{1 + ndim}I", header)
            if magic != _UNSIGNED_BYTE << 8 | ndim:
                raise DataError(
                    f"{path}: magic number {magic}, expected {_UNSIGNED_BYTE << 8 | ndim} (IDX, "
                    f"bytes, {ndim} axes); is it the official file of this name?"
                )
            size = math.prod(shape)
            most = min(_MOST_BYTES, MOST_RATIO * path.stat().st_size)
            if size > most:
                raise DataError(
                    f"{path}: its header says {shape}, more than the {most} bytes that there can "
                    "be; copy the official file again"
                )
            content = file.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path}: cannot be read to its end ({error}); copy the official file again"
        ) from error
    if len(content) != size:
        longer = len(content) > size
        raise DataError(
            f"{path}: its header says {shape}, {size} bytes, but there are "
            f"{'more' if longer else len(content)}; copy the official file again"
        )
    return np.frombuffer(content, np.uint8).reshape(shape)
