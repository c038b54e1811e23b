"""Prepared files: what is written is what is loaded, or an error."""

import numpy as np
import pytest

from tests.lab.data.official_files import binary_batches, cifar_archive, write_fashion
from unf.lab.data import (
    DataError,
    MissingDataError,
    Text,
    catalogue,
    load_images,
    load_text,
    prepare,
)


@pytest.fixture
def official(tmp_path):
    """A folder with official files of everything."""
    folder = tmp_path / "official"
    write_fashion(folder)
    (folder / "cifar-10-binary.tar.gz").write_bytes(cifar_archive("bin", binary_batches()))
    (folder / "lm1b").mkdir()
    (folder / "lm1b" / "train.txt").write_text("one two\none two three\n" * 9)
    (folder / "lm1b" / "heldout.txt").write_text("two three\n")
    return folder


def change(path, **changes):
    """The file with other arrays, and the checksum it had."""
    with np.load(path) as stored:
        arrays = dict(stored)
    np.savez(path, **{k: v for k, v in (arrays | changes).items() if v is not None})


@pytest.mark.parametrize(
    ("name", "file"),
    [("cifar10", "cifar10_16x16.npz"), ("fashion-mnist", "fashion_mnist_8x8.npz")],
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
    with np.load(path, allow_pickle=False) as stored:
        assert set(stored) == {"train_x", "train_y", "test_x", "test_y", "sha256"}


@pytest.mark.parametrize(
    ("name", "options", "file"),
    [
        ("lm1b", {}, "lm1b_bytes.npz"),
        ("lm1b", {"unit": "subwords", "vocabulary": 260}, "lm1b_bpe260.npz"),
        ("python-docs", {"unit": "subwords", "vocabulary": 300}, "python_docs_bpe300.npz"),
    ],
)
def test_text(official, tmp_path, name, options, file, monkeypatch):
    path = prepare(name, official, tmp_path, **options)
    assert path == tmp_path / file
    expected = load_text(name, official, **options)
    monkeypatch.setattr("unf.lab.data._text._make", None)  # only the prepared file is read
    loaded = load_text(name, tmp_path, **options)
    assert isinstance(loaded, Text) and loaded.vocabulary == expected.vocabulary
    assert loaded.train.dtype == expected.train.dtype
    np.testing.assert_array_equal(loaded.train, expected.train)
    np.testing.assert_array_equal(loaded.heldout, expected.heldout)


def test_the_same_file_again(official, tmp_path):
    for unit in ("bytes", "subwords"):
        one = prepare("lm1b", official, tmp_path / "one", unit=unit, vocabulary=260)
        two = prepare("lm1b", official, tmp_path / "two", unit=unit, vocabulary=260)
        assert one.read_bytes() == two.read_bytes()


def test_preparing_mends_a_damaged_file(official):
    path = prepare("fashion-mnist", official, official)
    whole = path.read_bytes()
    path.write_bytes(whole[:300])
    with pytest.raises(DataError, match=r"not a whole file of .*make it again with unf data"):
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
    "changes",
    [
        {"train": np.array([1, 2, 3], np.uint8)},
        {"vocabulary": np.array(300, np.int32)},
        {"sha256": np.array("0" * 64)},
        {"heldout": np.array(list(b"two three"), np.uint16)},
    ],
)
def test_wrong_checksum(official, tmp_path, changes):
    path = prepare("lm1b", official, tmp_path)
    change(path, **changes)
    with pytest.raises(DataError, match=r"lm1b_bytes.npz: its arrays have the checksum"):
        load_text("lm1b", tmp_path)


def test_wrong_checksum_of_images(official, tmp_path):
    path = prepare("cifar10", official, tmp_path)
    change(path, test_y=np.zeros(2, np.int32))
    with pytest.raises(DataError, match=r"were written with .*make it again with unf data prepare"):
        load_images("cifar10", tmp_path)


def test_files_without_a_checksum_are_accepted(official, tmp_path):
    path = prepare("lm1b", official, tmp_path)
    change(path, sha256=None, heldout=np.array([5, 6], np.uint8))
    assert load_text("lm1b", tmp_path).heldout.tolist() == [5, 6]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": np.zeros((2, 2), np.uint8)}, r"train is uint8\[2, 2\]; expected integers"),
        ({"train": np.zeros(3)}, r"train is float64\[3\]"),
        ({"heldout": np.zeros(0, np.uint8)}, r"heldout is uint8\[0\]"),
        ({"heldout": np.array([256])}, "heldout has numbers from 256 to 256, expected 0 to 255"),
        ({"train": np.array([-1])}, "train has numbers from -1"),
        ({"vocabulary": np.array([256])}, r"vocabulary is int64\[1\]"),
        ({"vocabulary": None}, "not a whole file of"),
        ({"train": np.array([None])}, "not a whole file of"),
    ],
)
def test_damaged_text(official, tmp_path, changes, message):
    path = prepare("lm1b", official, tmp_path)
    change(path, sha256=None, **changes)
    with pytest.raises(DataError, match=message):
        load_text("lm1b", tmp_path)


@pytest.mark.parametrize("fraction", [0, 0.2, 0.5, 0.8, 0.99])
def test_truncated(official, tmp_path, fraction):
    path = prepare("lm1b", official, tmp_path)
    path.write_bytes(path.read_bytes()[: int(fraction * path.stat().st_size)])
    with pytest.raises(DataError, match="not a whole file of"):
        load_text("lm1b", tmp_path)


def test_every_byte_matters(official, tmp_path):
    """A changed byte is noticed, or changes nothing that is read."""
    path = prepare("lm1b", official, tmp_path)
    whole, expected = path.read_bytes(), load_text("lm1b", official)
    noticed = 0
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            loaded = load_text("lm1b", tmp_path)
        except DataError:
            noticed += 1
        else:
            assert loaded.train.tobytes() == expected.train.tobytes()
            assert loaded.heldout.tobytes() == expected.heldout.tobytes()
    assert noticed > len(whole) / 3 / 2


def test_an_array_that_is_no_archive(tmp_path):
    with (tmp_path / "lm1b_bytes.npz").open("wb") as file:
        np.save(file, np.arange(3))
    with pytest.raises(DataError, match="not a whole file of"):
        load_text("lm1b", tmp_path)


def test_mistakes(official, tmp_path):
    with pytest.raises(DataError, match=r"unknown dataset 'mnist'; expected one of .*'lm1b'"):
        prepare("mnist", official, tmp_path)
    with pytest.raises(DataError, match="digits come with a package and need no file"):
        prepare("digits", official, tmp_path)
    with pytest.raises(
        MissingDataError, match=r"no official files \(cifar-10-python.* \(for cifar10\) in"
    ):
        prepare("cifar10", tmp_path, tmp_path)
    with pytest.raises(
        MissingDataError, match=r"is in the official files \(train-images.*, and no folder"
    ):
        prepare("fashion-mnist", None, tmp_path)
    assert list(tmp_path.glob("*.npz")) == []


def test_catalogue(official):
    prepare("lm1b", official, official, unit="subwords", vocabulary=260)
    (official / "cifar10_16x16.npz").write_bytes(b"")
    (official / "lm1b" / "train.txt").unlink()
    entries = {entry.name: entry for entry in catalogue(official)}
    assert list(entries) == [
        "cifar10", "fashion-mnist", "digits", "lm1b bytes", "lm1b subwords", "python-docs bytes"
    ]  # fmt: skip
    assert entries["cifar10"].status == "damaged" and "not a whole" in entries["cifar10"].note
    assert entries["fashion-mnist"].path == official / "train-images-idx3-ubyte"
    assert entries["fashion-mnist"].note == "4 train and 3 test images of 8×8×1, 7 classes"
    assert entries["lm1b bytes"].status == "missing"
    assert entries["lm1b subwords"].path == official / "lm1b_bpe260.npz"
    assert entries["lm1b subwords"].note.endswith("(uint16), vocabulary 260")
    assert entries["digits"][1:3] == entries["python-docs bytes"][1:3] == ("found", None)
