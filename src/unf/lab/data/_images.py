"""Small images with labels: from a folder, or the digits that come with SciKit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ._cifar import CIFAR10, read_cifar10
from ._fashion import FASHION_MNIST, read_fashion_mnist
from ._find import Folder, Official, find
from ._prepared import read_prepared
from ._types import DataError, Images, MissingDataError

DATASETS = {
    "cifar10": "cifar10_16x16.npz",
    "fashion-mnist": "fashion_mnist_8x8.npz",
    "digits": None,
}
"""Names, and the files with the arrays train_x, train_y, test_x, test_y; digits need none."""

_MOST_CLASSES = 256

_OFFICIAL: dict[str, tuple[Official, Callable[[Path], Images]]] = {
    "cifar10": (CIFAR10, read_cifar10),
    "fashion-mnist": (FASHION_MNIST, read_fashion_mnist),
}


def load_images(name: str, folder: Folder = None) -> Images:
    """Read a dataset of images.

    Args:
        name: one of `DATASETS`.
        folder: where the prepared file is, or the official files, which are made smaller after
            reading; by default the folder named by the variable UNF_DATA.

    Raises:
        DataError: if there is no such dataset or file, or its arrays do not fit together.
    """
    path = find_images(name, folder)
    if path is None:
        return _digits()
    return _read(path) if path.name == DATASETS[name] else _OFFICIAL[name][1](path)


def find_images(name: str, folder: Folder = None, *, prepared: bool = True) -> Path | None:
    """The file that a dataset is read from; none for digits.

    Args:
        name: one of `DATASETS`.
        folder: as for `load_images`.
        prepared: whether the prepared file counts.

    Raises:
        DataError: if there is no such dataset or file.
    """
    if name not in DATASETS:
        raise DataError(f"unknown dataset {name!r}; expected one of {list(DATASETS)}")
    if name not in _OFFICIAL:
        return None
    return find(name, folder, DATASETS[name] if prepared else None, _OFFICIAL[name][0])


def official_images(name: str, folder: Folder) -> Images:
    """The images made from the official files, whether or not there is a prepared file."""
    path = find_images(name, folder, prepared=False)
    return _digits() if path is None else _OFFICIAL[name][1](path)


def _read(path: Path) -> Images:
    train_x, train_y, test_x, test_y = read_prepared(path, Images._fields)
    for kind, x, y in (("train", train_x, train_y), ("test", test_x, test_y)):
        right = x.dtype == np.uint8 and y.dtype.kind in "ui" and x.size > 0
        if not right or x.ndim not in (3, 4) or y.shape != x.shape[:1]:
            raise DataError(
                f"{path}: {kind}_x is {x.dtype}{list(x.shape)} and {kind}_y {y.dtype}"
                f"{list(y.shape)}; expected uint8 [n, height, width(, channels)] and integers [n]"
            )
        if y.min() < 0 or y.max() >= _MOST_CLASSES:
            raise DataError(
                f"{path}: {kind}_y has classes from {y.min()} to {y.max()}, expected 0 to "
                f"{_MOST_CLASSES - 1}"
            )
    train_x, test_x = (x if x.ndim == 4 else x[..., None] for x in (train_x, test_x))
    return Images(train_x, train_y.astype(np.int32), test_x, test_y.astype(np.int32))


def _digits() -> Images:
    """1,797 handwritten digits of 8×8 pixels; every fifth is for testing."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        remedy = "pip install 'universal-neural-functionals[zoo]'"
        raise MissingDataError(
            f"the digits come with scikit-learn, not installed; run: {remedy}"
        ) from error
    bunch: Any = load_digits()
    x = (bunch.images * 15.9375).astype(np.uint8)[..., None]  # 16 shades
    y, test = bunch.target.astype(np.int32), np.arange(len(x)) % 5 == 0
    return Images(x[~test], y[~test], x[test], y[test])
