"""Text as one long stream of bytes or subwords."""

from pathlib import Path

import numpy as np

from ._find import Folder, data_folder, find
from ._prepared import read_prepared
from ._sentences import LM1B, LM1B_ARCHIVE, python_docs, read_lm1b
from ._subwords import BYTES, subwords
from ._types import DataError, Text

TEXTS = {"lm1b": "lm1b", "python-docs": "python_docs"}
"""Names, and how the names of their prepared files begin; python-docs need no file."""

UNITS = ("bytes", "subwords")
"""What a text may be a stream of."""


def load_text(
    name: str,
    folder: Folder = None,
    *,
    unit: str = "bytes",
    vocabulary: int = 4096,
    shards: int = 1,
) -> Text:
    """Read a text.

    >>> text = load_text("python-docs")
    >>> text.vocabulary, text.train.dtype
    (256, dtype('uint8'))

    Args:
        name: one of `TEXTS`.
        folder: where the prepared file is, or the official files; by default the folder named by
            the variable UNF_DATA.
        unit: `bytes`, of the sentences joined by newlines; or `subwords`, chosen on the
            training text by byte-pair encoding.
        vocabulary: how many subwords there may be, with the 256 bytes.
        shards: how many training shards of the official archive of lm1b to read; more than one
            are always read from the archive.

    Raises:
        DataError: if there is no such text or file, or a file is not what it should be.
    """
    path = find_text(name, folder, unit=unit, vocabulary=vocabulary, shards=shards)
    if path is not None and path.suffix == ".npz":
        return _read(path)
    return _make(path, unit, vocabulary, shards)


def find_text(
    name: str,
    folder: Folder = None,
    *,
    unit: str = "bytes",
    vocabulary: int = 4096,
    shards: int = 1,
    prepared: bool = True,
) -> Path | None:
    """The file that a text is read from; none for python-docs, unless they were prepared.

    Args:
        name: one of `TEXTS`.
        folder: as for `load_text`.
        unit: as for `load_text`.
        vocabulary: as for `load_text`.
        shards: as for `load_text`.
        prepared: whether the prepared file counts.

    Raises:
        DataError: if there is no such text or file.
    """
    file = prepared_name(name, unit, vocabulary)
    if shards < 1:
        raise DataError(f"shards is {shards}; expected at least 1")
    if name == "lm1b":
        official = LM1B if shards == 1 else LM1B_ARCHIVE
        return find(name, folder, file if prepared and shards == 1 else None, official)
    where = data_folder(folder)
    there = prepared and where is not None and (where / file).is_file()
    return where / file if where and there else None


def official_text(name: str, folder: Folder, unit: str, vocabulary: int) -> Text:
    """The text made from the official files, whether or not there is a prepared file."""
    path = find_text(name, folder, unit=unit, vocabulary=vocabulary, prepared=False)
    return _make(path, unit, vocabulary, 1)


def prepared_name(name: str, unit: str, vocabulary: int) -> str:
    """What the prepared file is called.

    >>> prepared_name("lm1b", "bytes", 4096), prepared_name("lm1b", "subwords", 4096)
    ('lm1b_bytes.npz', 'lm1b_bpe4096.npz')
    """
    if name not in TEXTS:
        raise DataError(f"unknown text {name!r}; expected one of {list(TEXTS)}")
    if unit not in UNITS:
        raise DataError(f"unknown unit {unit!r}; expected one of {list(UNITS)}")
    return f"{TEXTS[name]}_{'bytes' if unit == 'bytes' else f'bpe{vocabulary}'}.npz"


def _make(path: Path | None, unit: str, vocabulary: int, shards: int) -> Text:
    train, heldout = python_docs() if path is None else read_lm1b(path, shards)
    if unit == "subwords":
        return subwords(train, heldout, vocabulary)
    train_bytes, heldout_bytes = (
        np.frombuffer(text.encode(), np.uint8).copy() for text in (train, heldout)
    )
    return Text(train_bytes, heldout_bytes, BYTES)


def _read(path: Path) -> Text:
    train, heldout, vocabulary = read_prepared(path, Text._fields)
    if vocabulary.shape != () or vocabulary.dtype.kind not in "ui":
        raise DataError(f"{path}: vocabulary is {vocabulary.dtype}{list(vocabulary.shape)}")
    size = int(vocabulary)
    for kind, stream in (("train", train), ("heldout", heldout)):
        if stream.dtype.kind not in "ui" or stream.ndim != 1 or len(stream) == 0:
            raise DataError(
                f"{path}: {kind} is {stream.dtype}{list(stream.shape)}; expected integers [n]"
            )
        if stream.min() < 0 or stream.max() >= size:
            raise DataError(
                f"{path}: {kind} has numbers from {stream.min()} to {stream.max()}, expected "
                f"0 to {size - 1}"
            )
    return Text(train, heldout, size)
