"""Fashion-MNIST from its four official files."""

from pathlib import Path

import numpy as np

from ._box import shrink
from ._find import Official
from ._idx import read_idx
from ._types import DataError, Images

SIZE, OFFICIAL_SIZE, CLASSES = 8, 28, 10
_FILES = tuple(
    f"{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")
)
_FOLDERS = ("", "fashion-mnist/", "FashionMNIST/raw/")

FASHION_MNIST = Official(
    paths=tuple(f"{folder}{_FILES[0]}{end}" for folder in _FOLDERS for end in ("", ".gz")),
    words=f"{', '.join(_FILES)}, each plain or .gz, there or in fashion-mnist or FashionMNIST/raw",
    instead="digits",
)


def read_fashion_mnist(path: Path) -> Images:
    """Images of 8×8 pixels, averaged from the 28×28 of the official files.

    Args:
        path: the file with the training images; the others are in the same folder.

    Raises:
        DataError: if a file is missing, damaged, or does not fit the others.
    """
    arrays = []
    for images, labels in (_FILES[:2], _FILES[2:]):
        image_path, label_path = _either(path.parent, images), _either(path.parent, labels)
        x, y = read_idx(image_path, 3), read_idx(label_path, 1)
        if x.shape[1:] != (OFFICIAL_SIZE, OFFICIAL_SIZE) or len(x) == 0:
            raise DataError(f"{image_path}: images {list(x.shape)}, expected [n, 28, 28]")
        if len(x) != len(y):
            raise DataError(
                f"{label_path}: {len(y)} labels, but {len(x)} images in {image_path.name}; "
                "are both of the same dataset?"
            )
        if y.max() >= CLASSES:
            raise DataError(f"{label_path}: a label is {y.max()}, expected 0 to {CLASSES - 1}")
        arrays += [shrink(x, SIZE)[..., None], y.astype(np.int32)]
    return Images(*arrays)


def _either(folder: Path, file: str) -> Path:
    """The file, or the compressed file."""
    for path in (folder / file, folder / f"{file}.gz"):
        if path.exists():
            return path
    raise DataError(f"no file {file} or {file}.gz in {folder}: put it with the other three")
