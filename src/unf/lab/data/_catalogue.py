"""Which datasets are there, and what is in them."""

import re
from pathlib import Path
from typing import Literal, NamedTuple

from ._find import Folder, data_folder
from ._images import DATASETS, find_images, load_images
from ._text import TEXTS, find_text, load_text
from ._types import DataError, Images, MissingDataError, Text


class Entry(NamedTuple):
    """A dataset in the catalogue.

    Attributes:
        name: of the dataset; of a text also its unit.
        status: whether it can be loaded.
        path: the file it is read from; none if it is missing, or needs none.
        note: what is in it, or what is wrong and what to do.
    """

    name: str
    status: Literal["found", "missing", "damaged"]
    path: Path | None
    note: str


def catalogue(folder: Folder = None) -> list[Entry]:
    """Load every dataset, and say what came of it; subwords only where they were prepared.

    Args:
        folder: where to look; by default the folder named by the variable UNF_DATA.
    """
    entries = [_entry(name, folder, None) for name in DATASETS]
    for name in TEXTS:
        sizes = _prepared_sizes(name, folder)
        entries += [_entry(name, folder, size) for size in (0, *sizes)]
    return entries


def _entry(name: str, folder: Folder, subwords: int | None) -> Entry:
    """One dataset; `subwords` is 0 for a text's bytes, none for images."""
    said, path = name, None
    try:
        if subwords is None:
            path = find_images(name, folder)
            note = _images(load_images(name, folder))
        else:
            unit = "subwords" if subwords else "bytes"
            said = f"{name} {unit}"
            path = find_text(name, folder, unit=unit, vocabulary=subwords)
            note = _text(load_text(name, folder, unit=unit, vocabulary=subwords))
    except MissingDataError as error:
        return Entry(said, "missing", path, str(error))
    except DataError as error:
        return Entry(said, "damaged", path, str(error))
    return Entry(said, "found", path, note)


def _prepared_sizes(name: str, folder: Folder) -> list[int]:
    """The vocabularies of which there is a prepared file."""
    where = data_folder(folder)
    if where is None:
        return []
    pattern = re.compile(rf"{TEXTS[name]}_bpe([1-9]\d*)\.npz")
    matches = [pattern.fullmatch(path.name) for path in where.glob(f"{TEXTS[name]}_bpe*.npz")]
    return sorted(int(match[1]) for match in matches if match)


def _images(images: Images) -> str:
    shape = "×".join(map(str, images.train_x.shape[1:]))
    classes = len({*images.train_y.tolist(), *images.test_y.tolist()})
    return (
        f"{len(images.train_x):,} train and {len(images.test_x):,} test images of {shape}, "
        f"{classes} classes"
    )


def _text(text: Text) -> str:
    return (
        f"{len(text.train):,} train and {len(text.heldout):,} held out ({text.train.dtype}), "
        f"vocabulary {text.vocabulary:,}"
    )
