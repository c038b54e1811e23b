"""Which datasets there are, what is in them, and making prepared files."""

import os
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from ._files import DataError, Folder, MissingDataError, data_folder, write_prepared
from ._images import DATASETS, find_images, read_images
from ._text import TEXTS, find_text, prepared_name, read_text


class Entry(NamedTuple):
    """A dataset in the catalogue.

    Attributes:
        name: the dataset; for texts also the unit.
        status: whether it can be loaded.
        path: the file it is read from; None if it is missing or needs no file.
        note: what is in it, or what is wrong and what to do about it.
    """

    name: str
    status: Literal["found", "missing", "damaged"]
    path: Path | None
    note: str


def catalogue(folder: Folder = None) -> list[Entry]:
    """Load every dataset and describe it; subwords are listed only where they were prepared.

    Args:
        folder: where to look; by default the folder that the variable UNF_DATA names.
    """
    entries = [_entry(name, folder, None) for name in DATASETS]
    for name in TEXTS:
        start, where = prepared_name(name, "subwords", 0).removesuffix("0.npz"), data_folder(folder)
        names = [file.stem.removeprefix(start) for file in where.glob("*.npz")] if where else []
        sizes = sorted(int(size) for size in names if size.isdecimal())
        entries += [_entry(name, folder, size) for size in (0, *sizes)]
    return entries


def _entry(name: str, folder: Folder, subwords: int | None) -> Entry:
    """One dataset; `subwords` is 0 for the bytes of a text, None for images."""
    unit, path = "subwords" if subwords else "bytes", None
    title = name if subwords is None else f"{name} {unit}"
    try:
        if subwords is None:
            path = find_images(name, folder)
            x, y, test_x, test_y = read_images(name, path)
            shape, classes = "×".join(map(str, x.shape[1:])), len({*y.tolist(), *test_y.tolist()})
            note = f"{len(x):,} train and {len(test_x):,} test images of {shape}, {classes} classes"
        else:
            path = find_text(name, folder, unit, subwords)
            train, heldout, size = read_text(path, unit, subwords)
            counts = f"{len(train):,} train and {len(heldout):,} held out"
            note = f"{counts} ({train.dtype}), vocabulary {size:,}"
    except DataError as error:
        missing = isinstance(error, MissingDataError)
        return Entry(title, "missing" if missing else "damaged", path, str(error))
    return Entry(title, "found", path, note)


def prepare(
    name: str, folder: Folder, out: str | os.PathLike, *, unit: str = "bytes",
    vocabulary: int = 4096,
) -> Path:  # fmt: skip
    """Make a dataset's prepared file from its official files, and return its path.

    Args:
        name: one of `DATASETS` or `TEXTS`.
        folder: where the official files are; None is the folder that UNF_DATA names.
        out: the folder to write to, created if needed.
        unit: `bytes` or `subwords`, for texts.
        vocabulary: how many subwords, for texts.

    Raises:
        DataError: if there is no such dataset, its files are missing or damaged, or it needs none.
    """
    if name in TEXTS:
        file = prepared_name(name, unit, vocabulary)
        source = find_text(name, folder, unit, vocabulary, prepared=False)
        arrays = read_text(source, unit, vocabulary)._asdict()
        arrays["vocabulary"] = np.array(arrays["vocabulary"], np.int32)
    else:
        source = find_images(name, folder, prepared=False)
        files = DATASETS[name]
        if files is None:
            raise DataError(f"{name} are part of a package: there is nothing to prepare")
        file, arrays = files.prepared, read_images(name, source)._asdict()
    write_prepared(Path(out) / file, arrays)
    return Path(out) / file
