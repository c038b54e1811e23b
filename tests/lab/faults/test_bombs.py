"""Small files that would become large: refused before they do."""

import gzip
import io
import pickle
import struct

import numpy as np
import pytest

from tests.lab.faults.datasets import npz, tar, zipped
from unf.lab.data import DataError, load_images
from unf.lab.data._archive import read_members
from unf.lab.data._cifar import _from_pickle
from unf.lab.data._idx import read_idx
from unf.lab.data._pickles import read_pickle

ZEROS = bytes(10**7)


def test_archives_that_hold_far_more_than_their_size(tmp_path, monkeypatch):
    monkeypatch.setattr("unf.lab.data._archive._MOST_BETWEEN", 10**6)
    path = tmp_path / "x.tar.gz"
    for archive in (tar({"b/bomb": ZEROS, "a/one": b"1"}), tar({"a/one": b"1"}) + ZEROS):
        path.write_bytes(gzip.compress(archive))
        with pytest.raises(DataError, match=r"x.tar.gz: holds far more than its size of \d+ bytes"):
            read_members(path, ["a/one"])


def test_headers_that_do_not_end(tmp_path, monkeypatch):
    """Such headers are read into memory whole."""
    monkeypatch.setattr("unf.lab.data._archive._MOST_BETWEEN", 10**6)
    monkeypatch.setattr("unf.lab.data._archive._MOST_RATIO", 10**9)
    path = tmp_path / "x.tar.gz"
    name = "n" * 10**7
    path.write_bytes(gzip.compress(tar({name: b"", "a/one": b"1"})))
    with pytest.raises(DataError, match="holds far more"):
        read_members(path, ["a/one"])


def test_archives_of_very_many_members(tmp_path, monkeypatch):
    monkeypatch.setattr("unf.lab.data._archive._MOST_MEMBERS", 100)
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(tar({f"b/{i}": b"" for i in range(200)})))
    with pytest.raises(DataError, match=r"x.tar.gz: has more than 100 members"):
        read_members(path, ["a/one"])


@pytest.mark.parametrize("end", ["", ".gz"])
def test_idx_headers_that_lie(tmp_path, end):
    path = tmp_path / f"x{end}"
    content = struct.pack(">4I", 0x803, 2**9, 2**9, 2**9)
    path.write_bytes(gzip.compress(content) if end else content)
    with pytest.raises(DataError, match=r"more than the \d+ bytes that there can be"):
        read_idx(path, 3)


def header(shape, descr="|u1"):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("member", "match"),
    [
        (header((10**12,)), "train_x is said to have 1000000000000 bytes"),
        (header((10**30, 10**30)), r"train_x is said to have 10+ bytes"),
        (header((10**6,), "<U1000000"), "train_x is said to have 4000000000000 bytes"),
        (header((3,), "|O") + b"x" * 24, "Object arrays cannot be loaded"),
        (b"\x93NUMPY\x01\x00\xb8\x0b" + b"(" * 3000, "not a whole file"),
        (b"no array", "magic string is not correct"),
    ],
)
def test_prepared_arrays_that_lie(tmp_path, member, match):
    x, y = np.zeros((2, 4, 4), np.uint8), np.arange(2)
    members = npz(train_x=x, train_y=y, test_x=x, test_y=y) | {"train_x.npy": member}
    (tmp_path / "cifar10_16x16.npz").write_bytes(zipped(members))
    with pytest.raises(DataError, match=rf"cifar10_16x16.npz: .*{match}"):
        load_images("cifar10", tmp_path)


def test_a_zip_that_unpacks_to_far_more(tmp_path, monkeypatch):
    monkeypatch.setattr("unf.lab.data._prepared._MOST_BYTES", 10**6)
    x, y = np.zeros((10**5, 4, 4), np.uint8), np.zeros(10**5, np.uint8)
    members = npz(train_x=x, train_y=y, test_x=x, test_y=y)
    (tmp_path / "cifar10_16x16.npz").write_bytes(zipped(members))
    with pytest.raises(DataError, match="train_x is said to have 1600000 bytes, more than"):
        load_images("cifar10", tmp_path)


@pytest.mark.parametrize("classes", [np.array(["a", "b"]), np.array([0.5, np.nan])])
def test_classes_are_whole_numbers(tmp_path, classes):
    x = np.zeros((2, 4, 4), np.uint8)
    members = npz(train_x=x, train_y=classes, test_x=x, test_y=classes)
    (tmp_path / "cifar10_16x16.npz").write_bytes(zipped(members))
    with pytest.raises(DataError, match=r"expected uint8 .* and integers \[n\]"):
        load_images("cifar10", tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02})" + b"\x85" * 10**6 + b"Ns.",  # as a key, it would overflow the stack
        b"\x80\x02" + b"]" * (10**6 + 1) + b".",
        b"\x80\x02\x8a\xff" + b"\x7f" * 255 + b".",
    ],
    ids=["tuples in tuples", "lists", "number"],
)
def test_pickles_out_of_proportion(content):
    with pytest.raises(DataError, match="batch: a pickle of more, or longer, parts than official"):
        read_pickle(content, "batch")


def test_pickles_that_could_not_be_printed():
    """Each tuple holds the one before twice: few bytes, and a text without end."""
    laughs = b")" + b"q\x00h\x00\x86" * 60
    array = b"cnumpy\nndarray\n)\x81(K\x01%bcnumpy\ndtype\n(%btRK\x00U\x03abctb"
    for shape, code in ((laughs, b"U\x02u1"), (b"K\x03\x85", laughs)):
        content = b"\x80\x02}(U\x04data" + array % (shape, code) + b"U\x06labels](K\x01eu."
        with pytest.raises(DataError, match=r"batch: an array (has the shape of no|without)"):
            _from_pickle(content, "batch")


def test_pickled_text_has_one_encoding():
    assert read_pickle(pickle.dumps(b"\xe9\x00", 2), "x") == b"\xe9\x00"
    for encoding in (b"rot13", b"zlib", b"punycode"):
        content = b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX%b%b\x86R." % (
            struct.pack("<I", len(encoding)),
            encoding,
        )
        with pytest.raises(DataError, match="text in another encoding than latin1"):
            read_pickle(content, "x")
