"""A zoo on disk: a zarr group of arrays, each chunked by models and checksummed.

    DIR/zarr.json            attributes: format, recipe, configuration, weight space
    DIR/weights.<leaf>/      [models, *shape], one array for each tensor
    DIR/choices.<name>/      [models], what was drawn for each model
    DIR/success/ DIR/loss/   [models, 2], two independent measurements
    DIR/seed/                [models, 2], the words of each model's random key
    DIR/batch_size/          [models]
    DIR/status/              [models], written last: what is marked here is there

Files are replaced whole, and a chunk's status is written after everything else of it is on disk,
so a crash at any moment leaves a zoo that can be read. Chunks of different models are different
files, so several processes can write at once.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from .._files import write_whole
from ._errors import ZooError

Form = tuple[tuple[int, ...], str]
"""Of an array: the shape of one model's part, and the type."""
_CHECKSUM_BYTES = 4
_REPAIR = "build again with --resume --repair to train these models anew"


class Status(IntEnum):
    """What became of a model."""

    MISSING = 0
    TRAINED = 1
    DIVERGED = 2


class Store:
    """Named arrays with a leading axis of models, cut into chunks of models."""

    def __init__(self, path: str | os.PathLike, models: int, chunk: int):
        """A store at a path that exists or will be created by `create`."""
        self.path, self.models, self.chunk = Path(path), models, chunk
        self._arrays: dict[str, Any] = {}
        self._forms: dict[str, Form] = {"status": ((), "uint8")}

    @property
    def num_chunks(self) -> int:
        """How many chunks there are."""
        return -(-self.models // self.chunk)

    def rows(self, chunk: int) -> slice:
        """The models of a chunk."""
        return slice(chunk * self.chunk, min((chunk + 1) * self.chunk, self.models))

    def create(self, arrays: Mapping[str, Form], attributes: dict) -> None:
        """Make arrays of these forms; those there already are kept."""
        self.expect(arrays)
        with _explained(self.path, "made"):
            self.path.mkdir(parents=True, exist_ok=True)
            for name in arrays:
                self._open(name, create=True)
            document = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
            write_whole(self.path / "zarr.json", json.dumps(document, indent=1))

    def expect(self, arrays: Mapping[str, Form]) -> None:
        """From now on, refuse arrays of another form than `create` would have made."""
        self._arrays.clear()
        self._forms |= arrays

    def write(self, chunk: int, values: Mapping[str, np.ndarray]) -> None:
        """Write the arrays of a chunk and wait until they are on disk, the status last."""
        rows = self.rows(chunk)
        with _explained(self.path, f"written ({_which(rows)})"):
            first = [self._write(name, rows, values[name]) for name in values if name != "status"]
            for future in first:
                future.result()
            self._write("status", rows, values["status"]).result()

    def _write(self, name: str, rows: slice, values: np.ndarray) -> Any:
        """Write, without waiting, as many values as there are rows."""
        return self._array(name)[rows].write(
            values[: rows.stop - rows.start].astype(self.dtype(name))
        )

    def read(self, name: str, rows: slice | None = None) -> np.ndarray:
        """Read an array, or some models of it.

        Raises:
            ZooError: if the array is missing, or a chunk of it missing, cut short or altered.
        """
        rows = slice(0, self.models) if rows is None else rows
        self.check_chunks(name, range(rows.start // self.chunk, -(-rows.stop // self.chunk)))
        with _explained(self.path / name, f"read ({_which(rows)})"):
            return self._array(name)[rows].read().result()

    def check_chunks(self, name: str, chunks: Iterable[int]) -> None:
        """Compare the files of an array with its form, before room is made for what they hold.

        Raises:
            ZooError: if one is missing, or not as long as its form says.
        """
        shape, dtype = self.shape(name)[1:], self.dtype(name)
        expected = self.chunk * prod(shape) * dtype.itemsize + _CHECKSUM_BYTES
        for chunk in chunks:
            file = Path(self.path / name / "c" / str(chunk), *["0"] * len(shape))
            done = f"read ({_which(self.rows(chunk))})"
            with _explained(self.path / name, done):
                found = file.stat().st_size if file.exists() else 0
            if found != expected:
                state = "damaged" if found else "missing"
                raise ZooError(
                    f"{self.path / name} could not be {done}: a chunk is {state}; {_REPAIR} "
                    f"({found} bytes, expected {expected})"
                )

    def status(self) -> np.ndarray:
        """The status of every model; chunks never written are missing."""
        status = np.zeros(self.models, np.uint8)
        for rows in map(self.rows, self._marked()):
            status[rows] = self.read("status", rows)
        return status

    def _marked(self) -> list[int]:
        """Chunks that have a status."""
        with _explained(self.path / "status", "opened"):
            self._array("status")
        names = [file.name for file in (self.path / "status" / "c").glob("*")]
        numbers = {int(name) for name in names if name.isdecimal() and len(name) < 19}
        return sorted(number for number in numbers if number < self.num_chunks)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an array, models first."""
        with _explained(self.path / name, "opened"):
            return tuple(self._array(name).shape)

    def dtype(self, name: str) -> np.dtype:
        """The type of an array's numbers."""
        with _explained(self.path / name, "opened"):
            return self._array(name).dtype.numpy_dtype

    def forget(self, chunk: int) -> None:
        """Mark a chunk as missing, before it is written anew."""
        rows = self.rows(chunk)
        with _explained(self.path, f"written ({_which(rows)})"):
            self._write("status", rows, np.zeros(self.chunk)).result()

    def damage(self, names: Iterable[str]) -> Iterator[tuple[int, str]]:
        """Of chunks once finished, what cannot be read, or is not finite though trained."""
        for chunk in self._marked():
            yield from ((chunk, reason) for reason in self._faults(chunk, names))

    def _faults(self, chunk: int, names: Iterable[str]) -> Iterator[str]:
        rows = self.rows(chunk)
        try:
            status = self.read("status", rows)
        except ZooError as error:
            yield str(error)
            return
        if np.any(status == Status.MISSING):
            return
        for name in names:
            try:
                values = self.read(name, rows)
            except ZooError as error:
                yield str(error)
                continue
            if not np.isfinite(values[status == Status.TRAINED]).all():
                yield f"{self.path / name}: not finite ({_which(rows)})"

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
            spec["metadata"] = {
                "shape": [self.models, *shape],
                "data_type": dtype,
                "chunk_grid": {
                    "name": "regular",
                    "configuration": {"chunk_shape": [self.chunk, *shape]},
                },
                "chunk_key_encoding": {"name": "default"},
                "codecs": [
                    {"name": "bytes", "configuration": {"endian": "little"}},
                    {"name": "crc32c"},
                ],
            }
        return _tensorstore().open(spec, open=True, create=create).result()


def _tensorstore() -> Any:
    try:
        import tensorstore
    except ImportError as error:
        remedy = "run: pip install 'universal-neural-functionals[zoo]'"
        raise ZooError(f"tensorstore, with which zoos are stored, is missing; {remedy}") from error
    return tensorstore


def read_attributes(path: str | os.PathLike) -> dict[str, Any]:
    """The attributes of the group at a path.

    Raises:
        ZooError: if there is no zoo, or its description is damaged.
    """
    file = Path(path) / "zarr.json"
    if not file.is_file():
        raise ZooError(f"{path}: no zoo here (no file zarr.json); make one with: unf zoo build")
    try:
        return dict(json.loads(file.read_text())["attributes"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ZooError(f"{file}: not the description of a zarr group ({error!r})") from error


def _which(rows: slice) -> str:
    return f"models {rows.start} to {rows.stop - 1}"


class _explained:
    """Turns a storage engine's errors into messages about the zoo."""

    def __init__(self, path: Path, done: str):
        self.path, self.done = path, done

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if not isinstance(error, (ValueError, OSError, RuntimeError)) or isinstance(
            error, ZooError
        ):
            return
        text = " ".join(str(error).split("[tensorstore_spec")[0].split())
        raise ZooError(f"{self.path} could not be {self.done}: {_cause(text)}") from error


def _cause(text: str) -> str:
    """A storage error in plain words, with the remedy."""
    for sign, words in {
        "No space left": "the disk is full; free some space, then build again with --resume",
        "quota exceeded": "the disk quota is used up; free some space, then use --resume",
        "Permission denied": "permission denied; choose a folder you may write to",
        "Read-only file system": "the file system is read-only; choose another folder",
        "NOT_FOUND": f"an array or a chunk is missing; {_REPAIR}",
        "zarr.json": "its description was altered; restore it, or build again",
        "PRECONDITION: Error opening": "its description was altered; restore it, or build again",
        "is missing": f"a chunk is missing; {_REPAIR}",
        "Digest mismatch": f"a chunk was altered; {_REPAIR}",
        "Error reading": f"a chunk is damaged; {_REPAIR}",
    }.items():
        if sign in text:
            return f"{words} ({text})"
    return text
