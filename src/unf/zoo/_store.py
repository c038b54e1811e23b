"""A zoo on disk: a zarr group of arrays, each chunked by models and checksummed.

    DIR/zarr.json            attributes: format, origin, names of scores and settings, weight space
    DIR/weights.<leaf>/      [models, *shape], one array for each tensor
    DIR/status/              [models], written last: what it marks as finished is on disk

A recipe's zoo (format 1) also has

    DIR/success/ DIR/loss/   [models, 2], two independent measurements
    DIR/choices.<name>/      [models], the settings drawn for each model
    DIR/batch_size/          [models]
    DIR/seed/                [models, 2], the words of each model's random key

and a zoo of given networks (format 2)

    DIR/scores.<name>/       [models, repeats]
    DIR/settings.<name>/     [models], numbers, or positions in a list of words in the attributes

Files are replaced whole, and a chunk's status is written after all its other arrays, so that a
crash at any moment leaves a zoo that can be read. Chunks of different models are different files,
so several processes can write at once.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from .._persistence import write_whole

Form = tuple[tuple[int, ...], str]
"""The form of an array: the shape of one model's part, and the dtype."""
_CHECKSUM_BYTES = 4
_ALTERED = "its description was altered; restore it, or write the zoo again"
_CAUSES = {
    "No space left": "the disk is full; free some space, then {resume}",
    "quota exceeded": "the disk quota is used up; free some space, then {resume}",
    "Permission denied": "permission denied; choose a folder you may write to",
    "Read-only file system": "the file system is read-only; choose another folder",
    "NOT_FOUND": "an array or a chunk is missing; {repair}",
    "zarr.json": _ALTERED,
    "PRECONDITION: Error opening": _ALTERED,
    "is missing": "a chunk is missing; {repair}",
    "Digest mismatch": "a chunk was altered; {repair}",
    "Error reading": "a chunk is damaged; {repair}",
}
"""What to say, by a part of the storage engine's message."""
_REMEDIES = {
    "resume": "rebuild the zoo with the same arguments and resume=True",
    "repair": "rebuild the zoo with resume=True, repair=True to train these models again",
}
"""What to do about a zoo that a recipe has built."""


class ZooError(ValueError):
    """A zoo that cannot be built, read or written: what is wrong, where, and the remedy."""


class Status(IntEnum):
    """Whether a model is finished."""

    MISSING = 0
    TRAINED = 1
    DIVERGED = 2


class Chunks:
    """Models in chunks of equal size, the last one smaller."""

    def __init__(self, models: int, chunk: int, remedy: str = ""):
        self.models, self.chunk = models, chunk
        self.remedies = dict.fromkeys(_REMEDIES, remedy) if remedy else _REMEDIES

    @property
    def num_chunks(self) -> int:
        """How many chunks there are."""
        return -(-self.models // self.chunk)

    def rows(self, chunk: int) -> slice:
        """The models of a chunk."""
        return slice(chunk * self.chunk, min((chunk + 1) * self.chunk, self.models))


class Store(Chunks):
    """Named arrays with a leading axis of models, stored in chunks of models."""

    def __init__(self, path: str | os.PathLike, models: int, chunk: int, remedy: str = ""):
        """A store at a path that exists or will be created by `create`.

        Args:
            path: the folder.
            models: how many models.
            chunk: how many of them a file holds.
            remedy: what to do about damage; by default, build the zoo again.
        """
        super().__init__(models, chunk, remedy)
        self.path = Path(path)
        self._arrays: dict[str, Any] = {}
        self._forms: dict[str, Form] = {"status": ((), "uint8")}

    def create(self, arrays: Mapping[str, Form], attributes: dict) -> None:
        """Create arrays of these forms; existing ones are kept."""
        self.expect(arrays)
        with self._explained(self.path, "created"):
            self.path.mkdir(parents=True, exist_ok=True)
            for name in arrays:
                self._open(name, create=True)
            document = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
            write_whole(self.path / "zarr.json", json.dumps(document, indent=1))

    def expect(self, arrays: Mapping[str, Form]) -> None:
        """From now on, refuse arrays that have another form."""
        self._arrays.clear()
        self._forms |= arrays

    def write(self, chunk: int, values: Mapping[str, np.ndarray]) -> None:
        """Write the arrays of a chunk to disk, the status last."""
        with self._explained(self.path, "written", self.rows(chunk)):
            others = [self._write(name, chunk, x) for name, x in values.items() if name != "status"]
            for future in others:
                future.result()
            self._write("status", chunk, values["status"]).result()

    def forget(self, chunk: int) -> None:
        """Mark a chunk as missing, before it is written again."""
        with self._explained(self.path, "written", self.rows(chunk)):
            self._write("status", chunk, np.zeros(self.chunk)).result()

    def _write(self, name: str, chunk: int, values: np.ndarray) -> Any:
        rows = self.rows(chunk)
        values = values[: rows.stop - rows.start].astype(self.dtype(name))
        return self._array(name)[rows].write(values)

    def read(self, name: str, chunk: int) -> np.ndarray:
        """Read a chunk of an array.

        Raises:
            ZooError: if the array or the chunk is missing, truncated or altered.
        """
        self.check_chunks(name, [chunk])
        rows = self.rows(chunk)
        with self._explained(self.path / name, "read", rows):
            return self._array(name)[rows].read().result()

    def check_chunks(self, name: str, chunks: Iterable[int]) -> None:
        """Compare the sizes of files with the array's form, before anything is allocated.

        Raises:
            ZooError: if a file is missing, or does not have the size that follows from the form.
        """
        shape, dtype = self.shape(name)[1:], self.dtype(name)
        expected = self.chunk * prod(shape) * dtype.itemsize + _CHECKSUM_BYTES
        for chunk in chunks:
            file = Path(self.path / name / "c" / str(chunk), *["0"] * len(shape))
            with self._explained(self.path / name, "read", self.rows(chunk)):
                found = file.stat().st_size if file.exists() else 0
            if found != expected:
                state = "damaged" if found else "missing"
                raise ZooError(
                    f"{self.path / name} could not be read ({_which(self.rows(chunk))}): a chunk "
                    f"is {state}; {self.remedies['repair']} ({found} bytes, expected {expected})"
                )

    def status(self) -> np.ndarray:
        """The status of every model; models of chunks that were never written are missing."""
        status = np.zeros(self.models, np.uint8)
        for chunk in self._marked():
            status[self.rows(chunk)] = self.read("status", chunk)
        return status

    def _marked(self) -> list[int]:
        """The chunks that have a status."""
        self.shape("status")  # an altered description is an error
        names = [file.name for file in (self.path / "status" / "c").glob("*")]
        numbers = {int(name) for name in names if name.isdecimal() and len(name) < 19}
        return sorted(number for number in numbers if number < self.num_chunks)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an array, models first."""
        with self._explained(self.path / name, "opened"):
            return tuple(self._array(name).shape)

    def dtype(self, name: str) -> np.dtype:
        """The dtype of an array."""
        with self._explained(self.path / name, "opened"):
            return self._array(name).dtype.numpy_dtype

    def damage(self, names: Iterable[str]) -> Iterator[tuple[int, str]]:
        """Finished chunks that cannot be read, or are not finite though trained; and why."""
        for chunk in self._marked():
            status = None
            for name in ("status", *names):
                try:
                    values = self.read(name, chunk)
                except ZooError as error:
                    yield chunk, str(error)
                    values = None
                status = values if name == "status" else status
                if status is None or np.any(status == Status.MISSING):
                    break
                if values is None or name.startswith("settings."):  # which may be unknown
                    continue
                if not np.isfinite(values[status == Status.TRAINED]).all():
                    yield chunk, f"{self.path / name}: not finite ({_which(self.rows(chunk))})"

    def _array(self, name: str) -> Any:
        if name not in self._arrays:
            self._arrays[name] = self._open(name)
        return self._arrays[name]

    def _open(self, name: str, create: bool = False) -> Any:
        spec: dict[str, Any] = {
            "driver": "zarr3",
            "kvstore": {"driver": "file", "path": str(self.path / name)},
            "fill_missing_data_reads": False,
            "store_data_equal_to_fill_value": True,
        }
        if name in self._forms:
            shape, dtype = self._forms[name]
            chunk = {"chunk_shape": [self.chunk, *shape]}
            spec["metadata"] = {
                "shape": [self.models, *shape],
                "data_type": dtype,
                "chunk_grid": {"name": "regular", "configuration": chunk},
                "chunk_key_encoding": {"name": "default"},
                "codecs": [
                    {"name": "bytes", "configuration": {"endian": "little"}},
                    {"name": "crc32c"},
                ],
            }
        return _tensorstore().open(spec, open=True, create=create).result()

    @contextmanager
    def _explained(self, path: Path, done: str, rows: slice | None = None) -> Iterator[None]:
        """Turn the storage engine's errors into messages about the zoo, with the remedy."""
        try:
            yield
        except ZooError:
            raise
        except (ValueError, OSError, RuntimeError) as error:
            text = " ".join(str(error).split("[tensorstore_spec")[0].split())
            known = [words for sign, words in _CAUSES.items() if sign in text]
            cause = f"{known[0].format_map(self.remedies)} ({text})" if known else text
            which = f" ({_which(rows)})" if rows else ""
            raise ZooError(f"{path} could not be {done}{which}: {cause}") from error


class MemoryStore(Chunks):
    """Arrays in memory, read like those of a `Store`."""

    def __init__(self, arrays: Mapping[str, np.ndarray], chunk: int):
        """Of these arrays, `status` among them; `read` returns parts of them, not copies."""
        super().__init__(len(arrays["status"]), chunk, "make the zoo again")
        self._arrays = dict(arrays)

    def read(self, name: str, chunk: int) -> np.ndarray:
        """A chunk of an array."""
        return self._arrays[name][self.rows(chunk)]

    def check_chunks(self, name: str, chunks: Iterable[int]) -> None:
        """Nothing in memory can be damaged."""

    def status(self) -> np.ndarray:
        """The status of every model."""
        return self._arrays["status"]

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an array, models first."""
        return self._arrays[name].shape

    def dtype(self, name: str) -> np.dtype:
        """The dtype of an array."""
        return self._arrays[name].dtype

    def damage(self, names: Iterable[str]) -> Iterator[tuple[int, str]]:
        """Nothing in memory can be damaged."""
        return iter(())


def _tensorstore() -> Any:
    try:
        import tensorstore
    except ImportError as error:
        raise ZooError(
            "zoos are stored with tensorstore, which is not installed; "
            "run: pip install 'universal-neural-functionals[lab]'"
        ) from error
    return tensorstore


def read_attributes(path: str | os.PathLike) -> dict[str, Any]:
    """The attributes of the group at a path.

    Raises:
        ZooError: if there is no zoo, or its description is damaged.
    """
    file = Path(path) / "zarr.json"
    if not file.is_file():
        if (file.parent / "mixed.json").is_file():
            raise ZooError(f"{path}: a mixed zoo; open it with unf.zoo.MixedZoo")
        raise ZooError(f"{path}: no zoo here; expected a folder with a file zarr.json")
    try:
        return dict(json.loads(file.read_text())["attributes"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ZooError(f"{file}: not the description of a zarr group ({error!r})") from error


def _which(rows: slice) -> str:
    return f"models {rows.start} to {rows.stop - 1}"
