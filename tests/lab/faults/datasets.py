"""Small files of datasets, and their readers."""

import gzip
import io
import struct
import zipfile
from typing import NamedTuple

import numpy as np

from tests.lab.faults.mutations import changed_bytes
from unf.lab.data import DataError, load_images, load_text
from unf.lab.data._files import read_idx


class File(NamedTuple):
    """A file, altered, and who reads it."""

    name: str
    content: bytes


def npz(**arrays):
    """The members of a file of arrays."""
    members = {}
    for name, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, array)
        members[f"{name}.npy"] = buffer.getvalue()
    return members


def zipped(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


class Datasets:
    """IDX files and prepared arrays."""

    errors = (DataError,)

    def __init__(self, folder):
        self.folder = folder / "data"
        self.folder.mkdir()
        self.name_in_errors = str(self.folder)
        x, y = np.zeros((2, 4, 4), np.uint8), np.arange(2)
        self.idx = struct.pack(">4I", 0x803, 2, 3, 4) + bytes(24)
        self.arrays = {
            "cifar10_16x16.npz": npz(train_x=x, train_y=y, test_x=x, test_y=y, sha256=np.array("")),
            "lm1b_bytes.npz": npz(train=y, heldout=y, vocabulary=np.array(2, np.int32)),
        }
        self.good = File("x.idx", self.idx)

    def alter(self, rng):
        name = rng.choice(["x.idx", "x.idx.gz", *self.arrays])
        if name.endswith("npz"):
            members = dict(self.arrays[name])
            member = rng.choice(list(members))
            if rng.random() < 0.3:
                return File(name, changed_bytes(rng, zipped(members)))
            members[member] = changed_bytes(rng, members[member])
            return File(name, zipped(members))
        content = changed_bytes(rng, self.idx)
        if not name.endswith("gz"):
            return File(name, content)
        packed = gzip.compress(content, 1)
        return File(name, packed if rng.random() < 0.7 else changed_bytes(rng, packed))

    def read(self, given):
        path = self.folder / given.name
        path.write_bytes(given.content)
        if given.name.startswith("x.idx"):
            read_idx(path, 3)
        elif given.name.startswith("cifar10"):
            load_images("cifar10", self.folder)
        else:
            load_text("lm1b", self.folder)
