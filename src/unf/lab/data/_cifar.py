"""CIFAR-10 from its official files, in either form."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8

from ._archive import read_members
from ._box import shrink
from ._find import Official, read_file
from ._pickles import PickledArray, read_pickle
from ._types import DataError, Images

SIZE, OFFICIAL_SIZE, CHANNELS, CLASSES = 16, 32, 3, 10
_VALUES = CHANNELS * OFFICIAL_SIZE**2
_FORMS = {
    "cifar-10-python.tar.gz": "py",
    "cifar-10-binary.tar.gz": "bin",
    "cifar-10-batches-py": "py",
    "cifar-10-batches-bin": "bin",
}
_BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]

CIFAR10 = Official(
    paths=tuple(_FORMS),
    words="cifar-10-python.tar.gz or cifar-10-binary.tar.gz, or what they unpack to, "
    "cifar-10-batches-py or cifar-10-batches-bin",
    instead="digits",
)

Batch = tuple[UInt8[np.ndarray, "n height width channels"], Int[np.ndarray, " n"]]


def read_cifar10(path: Path) -> Images:
    """Images of 16×16 pixels, averaged from the 32×32 of the official files.

    Args:
        path: an official archive, or the folder it unpacks to.

    Raises:
        DataError: if a batch is missing, damaged, or not of the right shape.
    """
    form = _FORMS[path.name]
    contents = _contents(path, form)
    decode = _from_pickle if form == "py" else _from_records
    *train, test = [decode(contents.pop(name), f"{path}: {name}") for name in list(contents)]
    x, y = (np.concatenate(parts) for parts in zip(*train, strict=True))
    return Images(x, y, *test)


def _contents(path: Path, form: str) -> dict[str, bytes]:
    """The six batches' bytes, in order."""
    files = [f"{batch}.bin" if form == "bin" else batch for batch in _BATCHES]
    if not path.is_dir():
        folder = f"cifar-10-batches-{form}"
        members = read_members(path, [f"{folder}/{file}" for file in files])
        return {file: members[f"{folder}/{file}"] for file in files}
    for file in files:
        if not (path / file).is_file():
            raise DataError(f"no file {file} in {path}: unpack the official archive again")
    return {file: read_file(path / file) for file in files}


def _from_pickle(content: bytes, name: str) -> Batch:
    batch = read_pickle(content, name)
    pixels, labels = (
        (batch.get(b"data"), batch.get(b"labels")) if isinstance(batch, dict) else (None, None)
    )
    if not isinstance(pixels, PickledArray) or not isinstance(labels, list):
        raise DataError(f"{name}: expected a dictionary with an array 'data' and a list 'labels'")
    if not all(type(label) is int for label in labels):
        raise DataError(f"{name}: a label is not a whole number, expected 0 to {CLASSES - 1}")
    return _small(pixels.as_bytes(name), labels, name)


def _from_records(content: bytes, name: str) -> Batch:
    """Each record is a label and then the image's values."""
    count, rest = divmod(len(content), 1 + _VALUES)
    if rest:
        raise DataError(
            f"{name}: {len(content)} bytes, expected a multiple of {1 + _VALUES}; "
            "copy the official file again"
        )
    records = np.frombuffer(content, np.uint8).reshape(count, 1 + _VALUES)
    return _small(records[:, 1:], records[:, 0], name)


def _small(pixels: np.ndarray, labels: Any, name: str) -> Batch:
    """The images made smaller, channels last, and their classes."""
    if pixels.shape != (len(labels), _VALUES) or len(labels) == 0:
        raise DataError(
            f"{name}: images {list(pixels.shape)} and {len(labels)} labels; "
            f"expected [n, {_VALUES}] and n"
        )
    if min(labels) < 0 or max(labels) >= CLASSES:
        raise DataError(
            f"{name}: labels from {min(labels)} to {max(labels)}, expected 0 to {CLASSES - 1}"
        )
    images = pixels.reshape(-1, CHANNELS, OFFICIAL_SIZE, OFFICIAL_SIZE)
    small = np.ascontiguousarray(np.moveaxis(shrink(images, SIZE), 1, -1))
    return small, np.asarray(labels, np.int32)
