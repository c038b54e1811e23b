"""Small files of datasets, and their readers."""

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from typing import NamedTuple

import numpy as np

from tests.lab.faults.mutations import changed_bytes
from unf.lab.data import DataError, load_images, load_text
from unf.lab.data._archive import read_members
from unf.lab.data._cifar import _from_pickle
from unf.lab.data._idx import read_idx

PIXELS = np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072)
OPERATIONS = b"().012FINTUX]adeghjlmopqrstu}\x80\x81\x85\x86\x87\x88\x8a\x8c\x8f\x91\x93\x94\x95"


class File(NamedTuple):
    """A file, altered, and who reads it."""

    name: str
    content: bytes


def tar(members):
    """An archive that is not compressed."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = len(content), {"comment": "x"}
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


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
    """Archives, IDX files, pickles and prepared arrays."""

    errors = (DataError,)

    def __init__(self, folder):
        self.folder = folder / "data"
        self.folder.mkdir()
        self.name_in_errors = str(self.folder)
        x, y = np.zeros((2, 4, 4), np.uint8), np.arange(2)
        self.tar = tar({"a/one": b"1" * 700, "a/two": bytes(range(256))})
        self.idx = struct.pack(">4I", 0x803, 2, 3, 4) + bytes(24)
        self.pickles = [
            pickle.dumps({b"data": PIXELS, b"labels": [1, 2]}, protocol) for protocol in (2, 4)
        ]
        self.arrays = {
            "cifar10_16x16.npz": npz(train_x=x, train_y=y, test_x=x, test_y=y, sha256=np.array("")),
            "lm1b_bytes.npz": npz(train=y, heldout=y, vocabulary=np.array(2, np.int32)),
        }
        self.good = File("x.tar.gz", gzip.compress(self.tar))

    def alter(self, rng):
        name = rng.choice(["x.tar.gz", "x.idx", "x.idx.gz", "x.pickle", *self.arrays])
        if name == "x.tar.gz":
            inner = changed_bytes(rng, self.tar) if rng.random() < 0.8 else self.tar
            outer = gzip.compress(inner, 1)
            return File(name, outer if inner is not self.tar else changed_bytes(rng, outer))
        if name == "x.pickle":
            return File(name, _changed_pickle(rng, rng.choice(self.pickles)))
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
        if given.name == "x.pickle":
            _from_pickle(given.content, str(path))
            return
        path.write_bytes(given.content)
        if given.name == "x.tar.gz":
            read_members(path, ["a/one", "a/two"])
        elif given.name.startswith("x.idx"):
            read_idx(path, 3)
        elif given.name.startswith("cifar10"):
            load_images("cifar10", self.folder)
        else:
            load_text("lm1b", self.folder)


def _changed_pickle(rng, content):
    """Bytes altered; where the numbers are, nothing happens, so mostly elsewhere."""
    start = content.index(PIXELS.tobytes()[:64]) if rng.random() < 0.1 else 0
    head, tail = content[: start + 120], content[start + 120 :]
    if rng.random() < 0.5:
        at = rng.randrange(len(head))
        extra = bytes(rng.choice(OPERATIONS) for _ in range(rng.choice((1, 2, 5, 30))))
        return head[:at] + extra * rng.choice((1, 1, 1, 3000)) + head[at:] + tail
    if rng.random() < 0.3:
        return head + changed_bytes(rng, tail, max(len(tail) - 40, 0))
    return changed_bytes(rng, head) + tail
