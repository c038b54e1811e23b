"""Small images with labels: prepared arrays in a folder, or the digits that come with SciKit."""

import os
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

DATASETS = {
    "cifar10": "cifar10_16x16.npz",
    "fashion-mnist": "fashion_mnist_8x8.npz",
    "digits": None,
}
"""Names, and the files with the arrays train_x, train_y, test_x, test_y; digits need none."""


class DataError(ValueError):
    """Data that is missing, or not what it should be."""


class Images(NamedTuple):
    """Images of shape height × width × channels with 8 bits a value, and their classes."""

    train_x: UInt8[np.ndarray, "train height width channels"]
    train_y: Int[np.ndarray, " train"]
    test_x: UInt8[np.ndarray, "test height width channels"]
    test_y: Int[np.ndarray, " test"]


def load_images(name: str, folder: str | os.PathLike | None = None) -> Images:
    """Read a dataset of images.

    Args:
        name: one of `DATASETS`.
        folder: where the file is; by default the folder named by the variable UNF_DATA.

    Raises:
        DataError: if there is no such dataset or file, or its arrays do not fit together.
    """
    if name not in DATASETS:
        raise DataError(f"unknown dataset {name!r}; expected one of {list(DATASETS)}")
    file = DATASETS[name]
    return _digits() if file is None else _read(_find(name, file, folder))


def _find(name: str, file: str, folder: str | os.PathLike | None) -> Path:
    where = folder or os.environ.get("UNF_DATA")
    remedy = (
        "name the folder with --data-folder or the variable UNF_DATA, or use the dataset 'digits'"
    )
    if not where:
        raise DataError(f"{name} is in a file {file}, and no folder was named: {remedy}")
    path = Path(where) / file
    if not path.is_file():
        raise DataError(f"no file {file} (for {name}) in {where}: {remedy}")
    return path


def _read(path: Path) -> Images:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            images = [arrays[field] for field in Images._fields]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not a whole file of {Images._fields} ({error})") from error
    train_x, train_y, test_x, test_y = images
    for kind, x, y in (("train", train_x, train_y), ("test", test_x, test_y)):
        if x.dtype != np.uint8 or x.ndim not in (3, 4) or y.shape != x.shape[:1]:
            raise DataError(
                f"{path}: {kind}_x is {x.dtype}{list(x.shape)} and {kind}_y {list(y.shape)}; "
                "expected uint8 [n, height, width(, channels)] and [n]"
            )
    train_x, test_x = (x if x.ndim == 4 else x[..., None] for x in (train_x, test_x))
    return Images(train_x, train_y.astype(np.int32), test_x, test_y.astype(np.int32))


def _digits() -> Images:
    """1,797 handwritten digits of 8×8 pixels; every fifth is for testing."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        remedy = "pip install 'universal-neural-functionals[zoo]'"
        raise DataError(
            f"the digits come with scikit-learn, not installed; run: {remedy}"
        ) from error
    bunch: Any = load_digits()
    x = (bunch.images * 15.9375).astype(np.uint8)[..., None]  # 16 shades
    y, test = bunch.target.astype(np.int32), np.arange(len(x)) % 5 == 0
    return Images(x[~test], y[~test], x[test], y[test])
