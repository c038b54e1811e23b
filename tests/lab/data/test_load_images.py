"""Images from files and from SciKit."""

import numpy as np
import pytest

from unf.lab.data import DataError, load_images


def write(path, **changes):
    arrays = {
        "train_x": np.zeros((6, 8, 8), np.uint8),
        "train_y": np.arange(6, dtype=np.uint8),
        "test_x": np.ones((4, 8, 8), np.uint8),
        "test_y": np.arange(4, dtype=np.uint8),
    }
    np.savez(path, **{k: v for k, v in (arrays | changes).items() if v is not None})


def test_prepared_arrays(tmp_path, monkeypatch):
    write(tmp_path / "fashion_mnist_8x8.npz")
    images = load_images("fashion-mnist", tmp_path)
    assert images.train_x.shape == (6, 8, 8, 1) and images.test_y.tolist() == [0, 1, 2, 3]
    monkeypatch.setenv("UNF_DATA", str(tmp_path))
    assert load_images("fashion-mnist").test_x.shape == (4, 8, 8, 1)


def test_digits_need_no_file():
    images = load_images("digits")
    assert len(images.train_x) + len(images.test_x) == 1797
    assert images.train_x.max() > 200 and set(images.train_y) == set(range(10))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_x": None}, "not a whole file of"),
        ({"test_y": np.zeros(3, np.uint8)}, "test_x is uint8.* and test_y"),
        ({"train_x": np.zeros((6, 8, 8))}, "train_x is float64"),
        ({"train_y": np.array([None] * 6)}, "not a whole file of"),
    ],
)
def test_damaged_files(tmp_path, changes, message):
    write(tmp_path / "cifar10_16x16.npz", **changes)
    with pytest.raises(DataError, match=message):
        load_images("cifar10", tmp_path)


def test_torn_file(tmp_path):
    path = tmp_path / "cifar10_16x16.npz"
    write(path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match="not a whole file of"):
        load_images("cifar10", tmp_path)


def test_missing_data_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)
    with pytest.raises(DataError, match="no folder was named: name the folder with --data-folder"):
        load_images("cifar10")
    with pytest.raises(DataError, match=r"no file cifar10_16x16.npz \(for cifar10\) in"):
        load_images("cifar10", tmp_path)
    with pytest.raises(DataError, match="unknown dataset 'mnist'"):
        load_images("mnist")
