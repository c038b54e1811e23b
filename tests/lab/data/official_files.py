"""Small files in the form of the official ones."""

import gzip
import struct

import numpy as np

IMAGES = np.random.default_rng(0).integers(0, 256, (7, 28, 28), np.uint8)
LABELS = np.arange(7, dtype=np.uint8)
FASHION = {
    "train-images-idx3-ubyte": IMAGES[:4],
    "train-labels-idx1-ubyte": LABELS[:4],
    "t10k-images-idx3-ubyte": IMAGES[4:],
    "t10k-labels-idx1-ubyte": LABELS[4:],
}
PIXELS = np.random.default_rng(1).integers(0, 256, (6, 2, 3072), np.uint8)
CLASSES = np.arange(12, dtype=np.uint8).reshape(6, 2) % 10


def idx(array):
    """An array of bytes as an IDX file."""
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def write_fashion(folder, *, compress=False, **changes):
    """The four files; changes are other contents by file, None to leave a file out."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {file: idx(array) for file, array in FASHION.items()}
    for file, content in (files | changes).items():
        if content is not None and compress:
            (folder / f"{file}.gz").write_bytes(gzip.compress(content))
        elif content is not None:
            (folder / file).write_bytes(content)


def write_cifar(folder):
    """The six files of the binary version."""
    (folder / "cifar-10-batches-bin").mkdir(parents=True, exist_ok=True)
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    for name, x, y in zip(names, PIXELS, CLASSES, strict=True):
        content = np.concatenate([y[:, None], x], axis=1).tobytes()
        (folder / "cifar-10-batches-bin" / f"{name}.bin").write_bytes(content)


def write_lm1b(folder, train=b"one two\none two three\n" * 9, heldout=b"two three\n"):
    """Two files of sentences, or one of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("train.txt", train), ("heldout.txt", heldout)):
        if content is not None:
            (folder / name).write_bytes(content)
