"""Images from the official files of Fashion-MNIST and CIFAR-10."""

import gzip
import os
import pickle
import struct

import numpy as np
import pytest

from tests.lab.data.official_files import (
    CLASSES,
    FASHION,
    IMAGES,
    LABELS,
    PIXELS,
    batch_as_pickle,
    binary_batches,
    cifar_archive,
    idx,
    new_python_batches,
    python_batches,
    write_fashion,
)
from unf.lab.data import DataError, load_images
from unf.lab.data._box import overlaps, shrink
from unf.lab.data._pickles import read_pickle

MAKERS = {"py": python_batches, "bin": binary_batches}
ARCHIVES = {"py": "cifar-10-python.tar.gz", "bin": "cifar-10-binary.tar.gz"}


def box_matrix(old, new):
    """The weight of every old pixel in every new one, pixel by pixel on a finer grid."""
    fine = np.zeros((new, old))
    for step in range(old * new):  # new·old steps are `old` for each new pixel, `new` for each old
        fine[step // old, step // new] += 1 / old
    return fine


@pytest.mark.parametrize(("old", "new"), [(28, 8), (32, 16), (5, 3), (4, 4)])
def test_box_filter_is_a_weighted_mean(old, new):
    images = np.random.default_rng(0).integers(0, 256, (5, 2, old, old), np.uint8)
    weights = box_matrix(old, new)
    np.testing.assert_allclose(weights.sum(1), 1)
    np.testing.assert_allclose(overlaps(old, new) / old, weights, rtol=1e-6)
    expected = np.einsum("ij,abjk,lk->abil", weights, images, weights)
    np.testing.assert_array_equal(shrink(images, new), np.floor(expected + 0.5 + 1e-9))


def test_box_filter_of_fashion_covers_three_pixels_and_a_half():
    np.testing.assert_array_equal(overlaps(28, 8)[0, :5] / 8, [1, 1, 1, 0.5, 0])
    np.testing.assert_array_equal(overlaps(28, 8)[1, 2:8] / 8, [0, 0.5, 1, 1, 1, 0])
    assert (shrink(np.full((5000, 28, 28), 255, np.uint8), 8) == 255).all()


@pytest.mark.parametrize("folder", ["", "fashion-mnist", "FashionMNIST/raw"])
@pytest.mark.parametrize("compress", [False, True])
def test_fashion(tmp_path, folder, compress):
    write_fashion(tmp_path / folder, compress=compress)
    images = load_images("fashion-mnist", tmp_path)
    np.testing.assert_array_equal(images.train_x[..., 0], shrink(IMAGES[:4], 8))
    np.testing.assert_array_equal(images.test_x[..., 0], shrink(IMAGES[4:], 8))
    assert images.train_y.tolist() == [0, 1, 2, 3] and images.test_y.tolist() == [4, 5, 6]
    assert images.train_y.dtype == np.int32


def test_prepared_file_comes_first(tmp_path):
    write_fashion(tmp_path)
    np.savez(
        tmp_path / "fashion_mnist_8x8.npz",
        train_x=np.zeros((2, 8, 8), np.uint8), train_y=np.zeros(2, np.uint8),
        test_x=np.zeros((1, 8, 8), np.uint8), test_y=np.zeros(1, np.uint8),
    )  # fmt: skip
    assert len(load_images("fashion-mnist", tmp_path).train_x) == 2


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("t10k-labels-idx1-ubyte", None, "no file t10k-labels-idx1-ubyte or .*gz in"),
        ("train-images-idx3-ubyte", b"", "train-images.*: ends within its header"),
        ("train-images-idx3-ubyte", idx(IMAGES)[:15], "ends within its header"),
        ("train-images-idx3-ubyte", idx(IMAGES[:4])[:-1], r"\[4, 28, 28\], 3136 bytes.* are 3135"),
        ("train-images-idx3-ubyte", idx(IMAGES[:4]) + b"0", "3136 bytes, but there are more"),
        ("train-images-idx3-ubyte", idx(LABELS) + bytes(9), "magic number 2049, expected 2051"),
        ("t10k-labels-idx1-ubyte", idx(IMAGES[4:]), "magic number 2051, expected 2049"),
        ("t10k-labels-idx1-ubyte", idx(LABELS[:4]), "4 labels, but 3 images in t10k-images"),
        ("train-labels-idx1-ubyte", idx(LABELS[:4] + 7), "a label is 10, expected 0 to 9"),
        ("train-images-idx3-ubyte", idx(IMAGES[:4, :27]), r"images \[4, 27, 28\], expected"),
        ("train-images-idx3-ubyte", idx(IMAGES[:0]), r"images \[0, 28, 28\], expected"),
        (
            "train-images-idx3-ubyte",
            struct.pack(">4I", 2051, 2**32 - 1, 2**32 - 1, 28),
            r"more than the \d+ bytes that there can be",
        ),
    ],
)
@pytest.mark.parametrize("compress", [False, True])
def test_damaged_fashion(tmp_path, file, content, message, compress):
    write_fashion(tmp_path, compress=compress, **{file: content})
    with pytest.raises(DataError, match=message):
        load_images("fashion-mnist", tmp_path)


@pytest.mark.parametrize("keep", [5, 12, 1000, -9, -1])
def test_truncated_compressed_fashion(tmp_path, keep):
    write_fashion(tmp_path, compress=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(idx(FASHION["train-images-idx3-ubyte"]))[:keep])
    with pytest.raises(DataError, match=r"train-images.*: cannot be read to its end"):
        load_images("fashion-mnist", tmp_path)


def assert_is_cifar(images):
    colours = PIXELS.reshape(12, 3, 32, 32).astype(int)
    means = colours.reshape(12, 3, 16, 2, 16, 2).sum((3, 5))
    expected = np.moveaxis((means + 2) // 4, 1, -1)
    np.testing.assert_array_equal(images.train_x, expected[:10])
    np.testing.assert_array_equal(images.test_x, expected[10:])
    np.testing.assert_array_equal(images.train_y, CLASSES[:5].ravel())
    np.testing.assert_array_equal(images.test_y, CLASSES[5])


@pytest.mark.parametrize("form", MAKERS)
def test_cifar(tmp_path, form):
    batches = MAKERS[form]()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ARCHIVES[form]).write_bytes(cifar_archive(form, batches))
    assert_is_cifar(load_images("cifar10", tmp_path / "a"))
    assert [path.name for path in (tmp_path / "a").iterdir()] == [ARCHIVES[form]]
    folder = tmp_path / f"cifar-10-batches-{form}"
    folder.mkdir()
    for name, content in batches.items():
        (folder / name).write_bytes(content)
    assert_is_cifar(load_images("cifar10", tmp_path))
    (folder / next(iter(batches))).unlink()
    with pytest.raises(DataError, match=r"no file data_batch_1.* in .*unpack the official"):
        load_images("cifar10", tmp_path)


def test_cifar_of_a_new_python(tmp_path):
    content = cifar_archive("py", new_python_batches())
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(content)
    assert_is_cifar(load_images("cifar10", tmp_path))


class Harmful:
    def __init__(self, call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ((os.mkdir, ("ran",)), "mkdir"),
        ((eval, ("__import__('os').mkdir('ran')",)), "eval"),
        ((getattr, ("ran", "join")), "getattr"),
        ((np.load, ("x",)), "load"),
    ],
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_pickles_run_nothing(tmp_path, monkeypatch, call, name, protocol):
    monkeypatch.chdir(tmp_path)
    harmful = pickle.dumps({b"data": Harmful(call), b"labels": [1]}, protocol)
    batches = python_batches() | {"data_batch_3": harmful}
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(cifar_archive("py", batches))
    with pytest.raises(DataError, match=rf"data_batch_3: the pickle names .*\.{name}, expected"):
        load_images("cifar10", tmp_path)
    assert not (tmp_path / "ran").exists()


def dumped(data, labels):
    return pickle.dumps({b"data": data, b"labels": labels}, 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "test_batch: not a whole pickle"),
        (python_batches()["test_batch"][:300], "not a whole pickle"),
        (python_batches()["test_batch"][:-1], "not a whole pickle"),
        (b"\x80\x02K\x05.", "expected a dictionary"),
        (pickle.dumps({b"data": PIXELS[0]}, 2), "expected a dictionary with"),
        (dumped(PIXELS[0], [1]), r"images \[2, 3072\] and 1 labels"),
        (dumped(PIXELS[0][:, :-1], [1, 2]), r"images \[2, 3071\] and 2 labels"),
        (dumped(PIXELS[0].astype(np.float32), [1, 2]), "values of type 'f4', expected 'u1'"),
        (dumped(PIXELS[0], [1, 10]), "labels from 1 to 10, expected 0 to 9"),
        (dumped(PIXELS[0].astype(object), [1, 2]), "values of type 'O8', expected 'u1'"),
        (dumped(PIXELS[0], [1, b"x"]), "a label is not a whole number"),
        (batch_as_pickle(PIXELS[0][:0], []), r"images \[0, 3072\]"),
    ],
)
def test_damaged_python_batches(tmp_path, content, message):
    batches = python_batches() | {"test_batch": content}
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(cifar_archive("py", batches))
    with pytest.raises(DataError, match=message):
        load_images("cifar10", tmp_path)


ARRAY = b"cnumpy\nndarray\n)\x81"


@pytest.mark.parametrize(
    ("pickled", "message"),
    [
        (ARRAY, "an array without values"),
        (ARRAY + b"(K\x01K\x02tb", "an array without values"),
        (ARRAY + b"(K\x01(K\x09tcnumpy\ndtype\n(U\x02u1tRK\x00U\x03abctb", r"3 values in an array"),
        (ARRAY + b"(K\x01(Ntcnumpy\ndtype\n(U\x02u1tRK\x00U\x03abctb", "has the shape"),
        (b"cnumpy\nndarray\n(K\x01tb", "not a whole pickle"),
        (b"K\x01r\xff\xff\xff\xff", "counts more parts than bytes"),
        (b"\x96\xff\xff\xff\xff\xff\xff\xff\x00", "not a whole pickle"),
    ],
)
def test_pickles_that_pretend(tmp_path, pickled, message):
    """State that NumPy would trust, and sizes that would fill the memory."""
    content = b"\x80\x02}(U\x04data" + pickled + b"U\x06labels](K\x01eu."
    batches = python_batches() | {"data_batch_1": content}
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(cifar_archive("py", batches))
    with pytest.raises(DataError, match=rf"data_batch_1: .*{message}"):
        load_images("cifar10", tmp_path)


def test_arrays_by_column():
    pickled = pickle.dumps(np.asfortranarray(PIXELS[0]), 2)
    np.testing.assert_array_equal(read_pickle(pickled, "x").as_bytes("x"), PIXELS[0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"data_batch_2.bin: images \[0, 3072\]"),
        (bytes(3072), "3072 bytes, expected a multiple of 3073"),
        (b"\x0a" + bytes(3072), "labels from 10 to 10"),
    ],
)
def test_damaged_binary_batches(tmp_path, content, message):
    batches = binary_batches() | {"data_batch_2.bin": content}
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(cifar_archive("bin", batches))
    with pytest.raises(DataError, match=message):
        load_images("cifar10", tmp_path)
