"""Images that are built in, from prepared arrays, and from official files."""

import gzip
import struct

import numpy as np
import pytest

from tests.lab.data.official_files import (
    CLASSES,
    FASHION,
    IMAGES,
    LABELS,
    PIXELS,
    idx,
    write_cifar,
    write_fashion,
)
from unf.lab.data import DataError, MissingDataError, load_images
from unf.lab.data._images import shrink


def write_arrays(path, **changes):
    arrays = {
        "train_x": np.zeros((6, 8, 8), np.uint8),
        "train_y": np.arange(6, dtype=np.uint8),
        "test_x": np.ones((4, 8, 8), np.uint8),
        "test_y": np.arange(4, dtype=np.uint8),
    }
    np.savez(path, **{k: v for k, v in (arrays | changes).items() if v is not None})


def test_prepared_arrays(tmp_path, monkeypatch):
    write_arrays(tmp_path / "fashion_mnist_8x8.npz")
    write_fashion(tmp_path)  # the prepared file takes precedence
    images = load_images("fashion-mnist", tmp_path)
    assert images.train_x.shape == (6, 8, 8, 1) and images.test_y.tolist() == [0, 1, 2, 3]
    monkeypatch.setenv("UNF_DATA", str(tmp_path))
    assert load_images("fashion-mnist").test_x.shape == (4, 8, 8, 1)


def test_full_size_is_that_of_official_files(tmp_path):
    write_arrays(tmp_path / "fashion_mnist_8x8.npz")
    assert load_images("fashion-mnist", tmp_path, full=True).train_x.shape == (6, 8, 8, 1)
    write_fashion(tmp_path)
    images = load_images("fashion-mnist", tmp_path, full=True)
    np.testing.assert_array_equal(images.train_x[..., 0], FASHION["train-images-idx3-ubyte"])
    write_cifar(tmp_path)
    assert load_images("cifar10", tmp_path, full=True).test_x.shape[1:] == (32, 32, 3)
    with pytest.raises(MissingDataError, match="mnist"):
        load_images("mnist", tmp_path, full=True)


def test_digits_need_no_file():
    images = load_images("digits")
    assert len(images.train_x) + len(images.test_x) == 1797
    assert images.train_x.max() > 200 and set(images.train_y) == set(range(10))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_x": None}, "cannot read .*make it again with unf data prepare"),
        ({"train_y": np.array([None] * 6)}, "cannot read .*Object arrays"),
        ({"test_y": np.zeros(3, np.uint8)}, "the test part has images uint8.* and classes"),
        ({"train_x": np.zeros((6, 8, 8))}, "the train part has images float64"),
        ({"train_y": np.full(6, 300)}, "train classes from 300 to 300, expected 0 to 255"),
    ],
)
def test_damaged_arrays(tmp_path, changes, message):
    write_arrays(tmp_path / "cifar10_16x16.npz", **changes)
    with pytest.raises(DataError, match=rf"cifar10_16x16.npz: {message}"):
        load_images("cifar10", tmp_path)


@pytest.mark.parametrize(("old", "new"), [(28, 8), (32, 16), (5, 3), (4, 4)])
def test_shrinking_is_a_weighted_mean(old, new):
    images = np.random.default_rng(0).integers(0, 256, (5, 2, old, old), np.uint8)
    weights = np.zeros((new, old))
    for step in range(old * new):  # a grid as fine as both: `old` steps for each new pixel
        weights[step // old, step // new] += 1 / old
    expected = np.einsum("ij,abjk,lk->abil", weights, images, weights)
    np.testing.assert_array_equal(shrink(images, new), np.floor(expected + 0.5 + 1e-9))


@pytest.mark.parametrize("folder", ["", "fashion-mnist", "FashionMNIST/raw"])
@pytest.mark.parametrize("compress", [False, True])
def test_fashion(tmp_path, folder, compress):
    write_fashion(tmp_path / folder, compress=compress)
    images = load_images("fashion-mnist", tmp_path)
    np.testing.assert_array_equal(images.train_x[..., 0], shrink(IMAGES[:4], 8))
    np.testing.assert_array_equal(images.test_x[..., 0], shrink(IMAGES[4:], 8))
    assert images.train_y.tolist() == [0, 1, 2, 3] and images.test_y.tolist() == [4, 5, 6]
    assert images.train_y.dtype == np.int32


@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw"])
def test_mnist_keeps_its_size(tmp_path, folder):
    write_fashion(tmp_path / folder)  # the same names and shapes
    images = load_images("mnist", tmp_path)
    np.testing.assert_array_equal(images.train_x[..., 0], IMAGES[:4])
    np.testing.assert_array_equal(images.test_x[..., 0], IMAGES[4:])
    assert images.train_y.tolist() == [0, 1, 2, 3]


def test_mnist_and_fashion_are_not_confused(tmp_path):
    """Their official files have the same names; those that lie in the folder are Fashion-MNIST."""
    write_fashion(tmp_path)
    with pytest.raises(MissingDataError, match=r"mnist is not in .*\.gz, in mnist or MNIST/raw"):
        load_images("mnist", tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("t10k-labels-idx1-ubyte", None, "t10k-labels.*cannot be read .*No such file"),
        ("train-images-idx3-ubyte", b"", "train-images.*: not an IDX file of bytes with 3 axes"),
        ("train-images-idx3-ubyte", idx(IMAGES[:4])[:-1], "does not hold the 3136 bytes"),
        ("train-images-idx3-ubyte", idx(IMAGES[:4]) + b"0", "does not hold the 3136 bytes"),
        ("t10k-labels-idx1-ubyte", idx(IMAGES[4:]), "not an IDX file of bytes with 1 axes"),
        ("t10k-labels-idx1-ubyte", idx(LABELS[:4]), r"images .*\[3, .* and classes uint8\[4\]"),
        ("train-images-idx3-ubyte", idx(IMAGES[:4, :27]), r"images of \(27, 28\), expected 28×28"),
        ("train-images-idx3-ubyte", idx(IMAGES[:0]), r"images uint8\[0, 8, 8, 1\]"),
        (
            "train-images-idx3-ubyte",
            struct.pack(">4I", 2051, 2**32 - 1, 2**32 - 1, 28),
            "does not hold the .* bytes that it claims",
        ),
    ],
)
@pytest.mark.parametrize("compress", [False, True])
def test_damaged_fashion(tmp_path, file, content, message, compress):
    write_fashion(tmp_path, compress=compress, **{file: content})
    with pytest.raises(DataError, match=message):
        load_images("fashion-mnist", tmp_path)


@pytest.mark.parametrize("keep", [5, 1000, -9, -1])
def test_truncated_compressed_fashion(tmp_path, keep):
    write_fashion(tmp_path, compress=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(idx(FASHION["train-images-idx3-ubyte"]))[:keep])
    with pytest.raises(DataError, match=r"train-images.*: cannot be read to its end"):
        load_images("fashion-mnist", tmp_path)


def test_cifar(tmp_path):
    write_cifar(tmp_path)
    images = load_images("cifar10", tmp_path)
    means = PIXELS.reshape(12, 3, 16, 2, 16, 2).astype(int).sum((3, 5))
    expected = np.moveaxis((means + 2) // 4, 1, -1)
    np.testing.assert_array_equal(images.train_x, expected[:10])
    np.testing.assert_array_equal(images.test_x, expected[10:])
    np.testing.assert_array_equal(images.train_y, CLASSES[:5].ravel())
    np.testing.assert_array_equal(images.test_y, CLASSES[5])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (bytes(3072), "data_batch_2.bin: 3072 bytes, expected a multiple of 3073"),
        (None, "data_batch_2.bin: cannot be read .*No such file"),
    ],
)
def test_damaged_cifar(tmp_path, content, message):
    write_cifar(tmp_path)
    path = tmp_path / "cifar-10-batches-bin" / "data_batch_2.bin"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_images("cifar10", tmp_path)


def test_missing_data_names_what_to_do(tmp_path):
    with pytest.raises(
        MissingDataError,
        match=r"cifar10 needs the file .*no folder was named: name a folder with --data-folder",
    ):
        load_images("cifar10")
    (tmp_path / "cifar-10-binary.tar.gz").touch()
    with pytest.raises(MissingDataError, match=r"extracted from cifar-10-binary.tar.gz"):
        load_images("cifar10", tmp_path)
    with pytest.raises(DataError, match="unknown dataset 'svhn'"):
        load_images("svhn")
