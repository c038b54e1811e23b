"""Small files that would become large: refused before they do."""

import gzip
import io
import struct

import numpy as np
import pytest

from tests.lab.faults.datasets import npz, zipped
from unf.lab.data import DataError, load_images
from unf.lab.data._files import read_idx


@pytest.mark.parametrize("end", ["", ".gz"])
def test_idx_headers_that_lie(tmp_path, end):
    path = tmp_path / f"x{end}"
    content = struct.pack(">4I", 0x803, 2**9, 2**9, 2**9)
    path.write_bytes(gzip.compress(content) if end else content)
    with pytest.raises(DataError, match="does not hold the 134217728 bytes that it claims"):
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
        (header((10**12,)), "train_x claims 1000000000000 bytes"),
        (header((10**30, 10**30)), r"train_x claims 10+ bytes"),
        (header((10**6,), "<U1000000"), "train_x claims 4000000000000 bytes"),
        (header((3,), "|O") + b"x" * 24, "Object arrays cannot be loaded"),
        (b"\x93NUMPY\x01\x00\xb8\x0b" + b"(" * 3000, "cannot read"),
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
    monkeypatch.setattr("unf.lab.data._files._MAX_BYTES", 10**6)
    x, y = np.zeros((10**5, 4, 4), np.uint8), np.zeros(10**5, np.uint8)
    members = npz(train_x=x, train_y=y, test_x=x, test_y=y)
    (tmp_path / "cifar10_16x16.npz").write_bytes(zipped(members))
    with pytest.raises(DataError, match="train_x claims 1600000 bytes, more than"):
        load_images("cifar10", tmp_path)


@pytest.mark.parametrize("classes", [np.array(["a", "b"]), np.array([0.5, np.nan])])
def test_classes_are_whole_numbers(tmp_path, classes):
    x = np.zeros((2, 4, 4), np.uint8)
    members = npz(train_x=x, train_y=classes, test_x=x, test_y=classes)
    (tmp_path / "cifar10_16x16.npz").write_bytes(zipped(members))
    with pytest.raises(DataError, match=r"expected uint8 .* and integers \[n\]"):
        load_images("cifar10", tmp_path)
