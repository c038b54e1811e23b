"""Official files made into prepared ones, once."""

import os
from pathlib import Path

import numpy as np

from ._find import Folder
from ._images import DATASETS, official_images
from ._prepared import write_prepared
from ._text import TEXTS, official_text, prepared_name
from ._types import DataError


def prepare(
    name: str,
    folder: Folder,
    out: str | os.PathLike,
    *,
    unit: str = "bytes",
    vocabulary: int = 4096,
) -> Path:
    """Write the prepared file of a dataset, whole or not at all, and return its path.

    Args:
        name: one of `DATASETS` or `TEXTS`.
        folder: where the official files are; none is the folder named by the variable UNF_DATA.
        out: the folder to write to, made if needed.
        unit: of texts: `bytes` or `subwords`.
        vocabulary: of subwords: how many.

    Raises:
        DataError: if there is no such dataset or file, it is damaged, or needs no file.
    """
    if name in TEXTS:
        path = Path(out) / prepared_name(name, unit, vocabulary)
        arrays = official_text(name, folder, unit, vocabulary)._asdict()
        write_prepared(path, {**arrays, "vocabulary": np.array(arrays["vocabulary"], np.int32)})
        return path
    if name not in DATASETS:
        raise DataError(f"unknown dataset {name!r}; expected one of {[*DATASETS, *TEXTS]}")
    file = DATASETS[name]
    if file is None:
        raise DataError(f"{name} come with a package and need no file: there is nothing to prepare")
    write_prepared(Path(out) / file, official_images(name, folder)._asdict())
    return Path(out) / file
