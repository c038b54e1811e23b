"""Small files in the form of the official ones."""

import gzip
import io
import pickle
import struct
import tarfile

import numpy as np

IMAGES = np.random.default_rng(0).integers(0, 256, (7, 28, 28), np.uint8)
LABELS = np.arange(7, dtype=np.uint8)
FASHION = {
    "train-images-idx3-ubyte": IMAGES[:4],
    "train-labels-idx1-ubyte": LABELS[:4],
    "t10k-images-idx3-ubyte": IMAGES[4:],
    "t10k-labels-idx1-ubyte": LABELS[4:],
}
BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
PIXELS = np.random.default_rng(1).integers(0, 256, (6, 2, 3072), np.uint8)
CLASSES = np.arange(12).reshape(6, 2) % 10


def idx(array):
    """An array of bytes as an IDX file."""
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def write_fashion(folder, *, compress=False, **changes):
    """The four files; changes are other contents, by file, none to leave it out."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {file: idx(array) for file, array in FASHION.items()}
    for file, content in (files | changes).items():
        if content is not None and compress:
            (folder / f"{file}.gz").write_bytes(gzip.compress(content))
        elif content is not None:
            (folder / file).write_bytes(content)


def batch_as_pickle(pixels, labels):
    """A batch as Python 2 wrote it: old module names, strings without encoding."""

    def string(value):
        return b"T" + struct.pack("<I", len(value)) + value

    number = b"J%b".__mod__
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + string(b"b") + b"tR"
        b"(K\x01(" + b"".join(number(struct.pack("<i", n)) for n in pixels.shape) + b"t"
        b"cnumpy\ndtype\n(" + string(b"u1") + b"K\x00K\x01tR"
        b"(K\x03" + string(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89" + string(pixels.tobytes()) + b"tb"
    )
    classes = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + string(b"data") + array + string(b"labels") + classes + b"u."


def python_batches():
    return {
        name: batch_as_pickle(x, y) for name, x, y in zip(BATCHES, PIXELS, CLASSES, strict=True)
    }


def new_python_batches():
    """As a new Python and a new NumPy write them."""
    return {
        name: pickle.dumps({b"data": x, b"labels": y.tolist()}, protocol=4)
        for name, x, y in zip(BATCHES, PIXELS, CLASSES, strict=True)
    }


def binary_batches():
    return {
        f"{name}.bin": np.concatenate([y[:, None].astype(np.uint8), x], 1).tobytes()
        for name, x, y in zip(BATCHES, PIXELS, CLASSES, strict=True)
    }


def archive(members):
    """A .tar.gz of files by name; a member that is a TarInfo is added as it is."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            content = b"" if content is info else content
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def cifar_archive(form, batches):
    return archive({f"cifar-10-batches-{form}/{name}": batches[name] for name in batches})


def lm1b_archive(train, heldout):
    """Shards by number."""
    top = "1-billion-word-language-modeling-benchmark-r13output"
    return archive(
        {
            f"{top}/heldout-monolingual.tokenized.shuffled/news.en.heldout-{i:05}-of-00050": text
            for i, text in heldout.items()
        }
        | {
            f"{top}/training-monolingual.tokenized.shuffled/news.en-{i:05}-of-00100": text
            for i, text in train.items()
        }
    )
