"""Small labeled images."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from ._files import (
    DataError,
    Files,
    Folder,
    MissingDataError,
    find,
    read_bytes,
    read_idx,
    read_prepared,
)

_IDX = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
_CIFAR = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
_MAX_CLASSES = 256


def _idx_files(prepared: str, *folders: str) -> Files:
    """Four IDX files, plain or compressed, in one of several folders."""
    named = " or ".join(folder.strip("/") for folder in folders if folder)
    return Files(
        prepared,
        tuple(f"{folder}{_IDX[0]}-ubyte{end}" for folder in folders for end in ("", ".gz")),
        f"{', '.join(f'{file}-ubyte' for file in _IDX)}, all plain or all .gz, "
        f"{'there or ' if '' in folders else ''}in {named}",
        "digits",
    )


DATASETS: dict[str, Files | None] = {
    "cifar10": Files(
        "cifar10_16x16.npz",
        ("cifar-10-batches-bin",),
        "the folder cifar-10-batches-bin, extracted from cifar-10-binary.tar.gz",
        "digits",
    ),
    "fashion-mnist": _idx_files("fashion_mnist_8x8.npz", "", "fashion-mnist/", "FashionMNIST/raw/"),
    "mnist": _idx_files("mnist_28x28.npz", "mnist/", "MNIST/raw/"),
    "digits": None,
}
"""Names of datasets, and where they are stored; the digits need no file."""
_SIZES = {"cifar10": 16, "fashion-mnist": 8, "mnist": 28}
"""The size at which official images are used."""


class Images(NamedTuple):
    """Images with 8 bits per value, channels last, and their classes."""

    train_x: UInt8[np.ndarray, "train height width channels"]
    train_y: Int[np.ndarray, " train"]
    test_x: UInt8[np.ndarray, "test height width channels"]
    test_y: Int[np.ndarray, " test"]


def load_images(name: str, folder: Folder = None, *, full: bool = False) -> Images:
    """Read a dataset of images.

    Args:
        name: "cifar10", "fashion-mnist", "mnist" or "digits".
        folder: where the prepared file is, or the official files, whose images are shrunk if
            the dataset is used at a smaller size; by default the folder that the variable
            UNF_DATA names.
        full: read the official files, if they are there, and do not shrink their images.

    Returns:
        `train_x`, `train_y`, `test_x` and `test_y`: images with 8 bits per value, channels last,
        and their classes.

    Raises:
        DataError: if there is no such dataset, or its files are missing or damaged.
    """
    if full and DATASETS.get(name) is not None:
        try:
            return read_images(name, find_images(name, folder, prepared=False), full=True)
        except MissingDataError:
            pass
    return read_images(name, find_images(name, folder))


def find_images(name: str, folder: Folder = None, *, prepared: bool = True) -> Path | None:
    """The path that a dataset is read from; None for the digits."""
    if name not in DATASETS:
        raise DataError(f"unknown dataset {name!r}; expected one of {list(DATASETS)}")
    files = DATASETS[name]
    return None if files is None else find(name, folder, files, prepared=prepared)


def read_images(name: str, path: Path | None, *, full: bool = False) -> Images:
    """The images of a dataset, at the path that `find_images` returned."""
    if path is None:
        return _digits()
    if path.suffix == ".npz":
        x0, y0, x1, y1 = read_prepared(path, Images._fields)
    elif path.name == "cifar-10-batches-bin":
        size = 32 if full else _SIZES[name]
        *train, (x1, y1) = [_cifar_batch(path / file, size) for file in _CIFAR]
        x0, y0 = (np.concatenate(part) for part in zip(*train, strict=True))
    else:
        names = [path.name.replace(_IDX[0], file) for file in _IDX]
        x0, y0, x1, y1 = (read_idx(path.with_name(n), 3 if "idx3" in n else 1) for n in names)
        size = 28 if full else _SIZES[name]
        x0, x1 = (_shrunk(path, x[:, None], 28, size) for x in (x0, x1))
    return Images(*_checked(path, "train", x0, y0), *_checked(path, "test", x1, y1))


def _cifar_batch(path: Path, size: int) -> tuple[np.ndarray, np.ndarray]:
    content = np.frombuffer(read_bytes(path), np.uint8)
    if content.size % 3073:
        raise DataError(f"{path}: {content.size} bytes, expected a multiple of 3073; copy it again")
    records = content.reshape(-1, 3073)  # a label, then 32×32 red, green and blue values
    return _shrunk(path, records[:, 1:].reshape(-1, 3, 32, 32), 32, size), records[:, 0]


def _shrunk(path: Path, x: np.ndarray, old: int, new: int) -> np.ndarray:
    """Official images at a smaller size, channels last."""
    if x.shape[2:] != (old, old):
        raise DataError(f"{path}: images of {x.shape[2:]}, expected {old}×{old}; copy it again")
    return np.ascontiguousarray(np.moveaxis(shrink(x, new), 1, -1))


def _checked(path: Path, part: str, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Images with a channel axis, and their classes, or an error."""
    valid = x.dtype == np.uint8 and y.dtype.kind in "ui" and x.size > 0
    if not valid or x.ndim not in (3, 4) or y.shape != x.shape[:1]:
        raise DataError(
            f"{path}: the {part} part has images {x.dtype}{list(x.shape)} and classes {y.dtype}"
            f"{list(y.shape)}; expected uint8 [n, height, width(, channels)] and integers [n]"
        )
    if y.min() < 0 or y.max() >= _MAX_CLASSES:
        raise DataError(
            f"{path}: {part} classes from {y.min()} to {y.max()}, expected 0 to {_MAX_CLASSES - 1}"
        )
    return x if x.ndim == 4 else x[..., None], y.astype(np.int32)


def shrink(
    images: UInt8[np.ndarray, "*batch n n"], size: int
) -> UInt8[np.ndarray, "*batch size size"]:
    """Square images at a smaller size: each new pixel is the mean of the area that it covers.

    >>> shrink(np.array([[0, 2], [4, 4]], np.uint8), 1)
    array([[3]], dtype=uint8)
    """
    old = images.shape[-1]  # in units of 1/(old·size), a new pixel is `old` wide, an old one `size`
    starts, old_starts = np.arange(size)[:, None] * old, np.arange(old)[None] * size
    overlaps = np.minimum(starts + old, old_starts + size) - np.maximum(starts, old_starts)
    weights = np.maximum(overlaps, 0).astype(np.float32)
    sums = weights @ images.astype(np.float32) @ weights.T  # integers far below 2²⁴, so exact
    return np.floor(sums / old**2 + 0.5).astype(np.uint8)


def _digits() -> Images:
    """1,797 handwritten digits of 8×8 pixels; every fifth is for testing."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingDataError(
            "the digits are part of scikit-learn, which is not installed; "
            "run: pip install 'universal-neural-functionals[lab]'"
        ) from error
    bunch: Any = load_digits()
    x = (bunch.images * 15.9375).astype(np.uint8)[..., None]  # 16 shades
    y, test = bunch.target.astype(np.int32), np.arange(len(x)) % 5 == 0
    return Images(x[~test], y[~test], x[test], y[test])
