"""Prepared files: what is written is what is loaded, or an error; and the list of datasets."""

import numpy as np
import pytest

from tests.lab.data.official_files import write_cifar, write_fashion, write_lm1b
from unf.lab.data import DataError, MissingDataError, load_images, load_text
from unf.lab.data._catalogue import catalogue, prepare


@pytest.fixture
def official(tmp_path):
    """A folder with official files of everything."""
    folder = tmp_path / "official"
    write_fashion(folder)
    write_fashion(folder / "mnist")
    write_cifar(folder)
    write_lm1b(folder / "lm1b")
    return folder


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("cifar10", "cifar10_16x16.npz"),
        ("fashion-mnist", "fashion_mnist_8x8.npz"),
        ("mnist", "mnist_28x28.npz"),
    ],
)
def test_images(official, tmp_path, name, file):
    path = prepare(name, official, tmp_path / "new" / "out")
    assert path == tmp_path / "new" / "out" / file
    assert [file.name for file in path.parent.iterdir()] == [file]
    for loaded, expected in zip(
        load_images(name, path.parent), load_images(name, official), strict=True
    ):
        np.testing.assert_array_equal(loaded, expected)
        assert loaded.dtype == expected.dtype


@pytest.mark.parametrize(
    ("name", "options", "file"),
    [
        ("lm1b", {}, "lm1b_bytes.npz"),
        ("lm1b", {"unit": "subwords", "vocabulary": 260}, "lm1b_bpe260.npz"),
        ("python-docs", {"unit": "subwords", "vocabulary": 300}, "python_docs_bpe300.npz"),
    ],
)
def test_text(official, tmp_path, name, options, file):
    path = prepare(name, official, tmp_path / "one", **options)
    assert path == tmp_path / "one" / file
    loaded, expected = (load_text(name, x, **options) for x in (tmp_path / "one", official))
    assert loaded.vocabulary == expected.vocabulary and loaded.train.dtype == expected.train.dtype
    np.testing.assert_array_equal(loaded.train, expected.train)
    np.testing.assert_array_equal(loaded.heldout, expected.heldout)
    again = prepare(name, official, tmp_path / "two", **options)
    assert again.read_bytes() == path.read_bytes()


def test_preparing_replaces_a_damaged_file(official):
    path = prepare("fashion-mnist", official, official)
    whole = path.read_bytes()
    path.write_bytes(whole[:300])
    with pytest.raises(DataError, match=r"cannot read .*make it again with unf data prepare"):
        load_images("fashion-mnist", official)
    prepare("fashion-mnist", official, official)
    assert path.read_bytes() == whole


def test_nothing_is_left_behind(official, tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        prepare("lm1b", official, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": np.zeros((2, 2), np.uint8)}, r"train is uint8\[2, 2\]; expected integers"),
        ({"train": np.zeros(3)}, r"train is float64\[3\]"),
        ({"heldout": np.zeros(0, np.uint8)}, r"heldout is uint8\[0\]"),
        ({"heldout": np.array([256])}, r"heldout is int64\[1\]; expected integers \[n\] from 0 to"),
        ({"vocabulary": np.array([256])}, r"vocabulary is int64\[1\]"),
        ({"vocabulary": None}, "cannot read"),
    ],
)
def test_damaged_text(official, tmp_path, changes, message):
    path = prepare("lm1b", official, tmp_path)
    with np.load(path) as stored:
        arrays = dict(stored) | changes
    np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
    with pytest.raises(DataError, match=message):
        load_text("lm1b", tmp_path)


def test_every_byte_matters(official, tmp_path):
    """A changed byte is noticed, or changes nothing that is read."""
    path = prepare("lm1b", official, tmp_path)
    whole, expected = path.read_bytes(), load_text("lm1b", official)
    noticed = 0
    for place in range(0, len(whole), 5):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            loaded = load_text("lm1b", tmp_path)
        except DataError:
            noticed += 1
        else:
            assert loaded.train.tobytes() == expected.train.tobytes()
            assert loaded.heldout.tobytes() == expected.heldout.tobytes()
    assert noticed > len(whole) / 5 / 2


def test_mistakes(official, tmp_path):
    with pytest.raises(DataError, match="unknown dataset 'svhn'; expected one of"):
        prepare("svhn", official, tmp_path)
    with pytest.raises(DataError, match="digits are part of a package"):
        prepare("digits", official, tmp_path)
    with pytest.raises(MissingDataError, match=r"expected the official files \(the folder cifar"):
        prepare("cifar10", tmp_path, tmp_path)
    with pytest.raises(MissingDataError, match=r"needs the official files .*, and no folder"):
        prepare("fashion-mnist", None, tmp_path)
    assert list(tmp_path.glob("*.npz")) == []


def test_catalogue(official):
    prepare("lm1b", official, official, unit="subwords", vocabulary=260)
    (official / "cifar10_16x16.npz").write_bytes(b"")
    (official / "lm1b" / "train.txt").unlink()
    entries = {entry.name: entry for entry in catalogue(official)}
    assert list(entries) == [
        "cifar10", "fashion-mnist", "mnist", "digits", "lm1b bytes", "lm1b subwords",
        "python-docs bytes",
    ]  # fmt: skip
    assert entries["cifar10"].status == "damaged" and "cannot read" in entries["cifar10"].note
    assert entries["fashion-mnist"].path == official / "train-images-idx3-ubyte"
    assert entries["fashion-mnist"].note == "4 train and 3 test images of 8×8×1, 7 classes"
    assert entries["mnist"].note == "4 train and 3 test images of 28×28×1, 7 classes"
    assert entries["lm1b bytes"].status == "missing"
    assert entries["lm1b subwords"].path == official / "lm1b_bpe260.npz"
    assert entries["lm1b subwords"].note.endswith("(uint16), vocabulary 260")
    assert entries["digits"][1:3] == entries["python-docs bytes"][1:3] == ("found", None)
