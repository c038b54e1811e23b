"""Models, optimizers and checkpoints in safetensors files, with a JSON description in the header.

Nothing that is loaded can run code. Arrays are named by their paths in the tree. A checksum
detects files that were altered.
"""

import hashlib
import json
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.flax import save

from ._devices import is_first, wait_for_all

FORMAT = 2
"""The format of files that this version writes; it also reads format 1."""
Arrays = dict[str, np.ndarray]
_DTYPES = {
    **{"BOOL": np.bool_, "BF16": jnp.bfloat16, "F16": np.float16, "F32": np.float32},
    **{"F64": np.float64, "U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "U64": np.uint64},
    **{"I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64},
}
"""Maps dtype names, as stored in files, to NumPy dtypes."""


def write_whole(path: str | os.PathLike, data: str | bytes) -> None:
    """Write a file so that a crash leaves the old file or the new one, never a part of it."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target}: there is no folder {target.parent}; make it first")
    if target.is_dir():
        raise IsADirectoryError(f"{target}: is a folder; name a file")
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def write_arrays(path: str | os.PathLike, tree: Any, description: Mapping[str, Any]) -> None:
    """Write the arrays of a tree and a description, atomically, with a checksum."""
    arrays, metadata = _named(tree), {"unf": json.dumps(description)}
    metadata["sum"] = checksum(save(arrays, metadata))
    write_whole(path, save(arrays, metadata))


def read_arrays(path: str | os.PathLike) -> tuple[dict[str, Any], Arrays]:
    """Read the description, and the arrays by name.

    Raises:
        ValueError: if the file is damaged, or `write_arrays` did not write it.
    """
    data = Path(path).read_bytes()
    metadata, arrays = parse_safetensors(data, path)
    if "unf" not in metadata:
        raise ValueError(f"{path}: a safetensors file, but not one saved by unf")
    if metadata.get("sum") != checksum(data):
        raise ValueError(f"{path}: altered since it was written (the checksum differs)")
    description = json.loads(metadata["unf"])
    if not isinstance(description, dict):
        raise ValueError(f"{path}: the description is not a JSON object")
    return description, arrays


def parse_safetensors(data: bytes, path: str | os.PathLike) -> tuple[dict[str, Any], Arrays]:
    """The metadata of a safetensors file, and its arrays by name.

    Raises:
        ValueError: if the file is damaged.
    """
    try:
        arrays = {
            name: np.ndarray(entry["shape"], _DTYPES[entry["dtype"]], entry["data"])
            for name, entry in deserialize(data)
        }
        return _header(data).get("__metadata__") or {}, arrays
    except (SafetensorError, ValueError, KeyError, RecursionError, TypeError) as error:
        raise ValueError(f"{path}: not a complete safetensors file ({error})") from error


def read_tree(
    path: str | os.PathLike,
    what: str,
    build: Callable[[dict[str, Any], Arrays], Any],
    upgrade: Callable[[dict[str, Any], Arrays], Arrays],
) -> Any:
    """Read a tree whose structure follows from its description.

    Args:
        path: the file.
        what: what the file must hold, e.g. "model".
        build: makes such a tree from the description; only its shapes are used. It also gets the
            stored arrays, to refuse descriptions that cannot belong to them.
        upgrade: renames the arrays of a file of format 1.

    Raises:
        ValueError: if the file holds something else or is damaged.
    """
    description, arrays = read_arrays(path)
    check_contents(path, description, what)
    if description["format"] == 1:
        arrays = upgrade(description, arrays)
    try:
        skeleton = eqx.filter_eval_shape(lambda: build(description, arrays))
    except Exception as error:  # an invalid description can fail in any way
        raise ValueError(f"{path}: the description of the {what} is invalid: {error}") from error
    return fill(skeleton, arrays, path)


def check_contents(path: Any, description: Mapping[str, Any], what: str) -> None:
    """Check what a file holds, and its format."""
    found = description.get("what", "model" if "config" in description else "file of another kind")
    if found != what:
        raise ValueError(f"{path}: not a {what}, but a {found}")
    if description.get("format") not in (1, FORMAT):
        raise ValueError(
            f"{path}: format {description.get('format')}; this version of unf reads formats 1 "
            f"and {FORMAT}"
        )


def fill(skeleton: Any, arrays: Arrays, path: Any) -> Any:
    """Fill a tree, whose leaves are arrays or their shapes, with the arrays of a file.

    Raises:
        ValueError: naming the first array that is missing, unexpected or of another shape.
    """
    found = {name: array.shape for name, array in arrays.items()}
    expected = {name: leaf.shape for name, leaf in _named(skeleton).items()}
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            sides = [side.get(name, "no such array") for side in (expected, found)]
            raise ValueError(f"{path}: array {name}: expected {sides[0]}, got {sides[1]}")

    def take(key_path: Any, leaf: Any) -> Any:
        name = jax.tree_util.keystr(key_path)
        return jnp.asarray(arrays[name]) if _is_array_or_shape(leaf) else leaf

    return jax.tree_util.tree_map_with_path(take, skeleton)


def _header(data: bytes) -> dict[str, Any]:
    """The header: metadata, and name, dtype, shape and place of every array."""
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size])


def checksum(data: bytes) -> str:
    """A checksum of everything in a file but the checksum itself."""
    header = _header(data)
    header["__metadata__"].pop("sum", None)
    digest = hashlib.blake2b(json.dumps(header, sort_keys=True).encode(), digest_size=16)
    digest.update(memoryview(data)[8 + int.from_bytes(data[:8], "little") :])
    return digest.hexdigest()


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """A checksum of arrays by name, which tells jobs or zoos apart."""
    found = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        found.update(f"{name} {arrays[name].shape} ".encode())
        found.update(np.ascontiguousarray(arrays[name]).ravel().data)
    return found.hexdigest()


def _named(tree: Any) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, _is_array_or_shape))
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _is_array_or_shape(x: Any) -> bool:
    return eqx.is_array(x) or isinstance(x, jax.ShapeDtypeStruct)


# --- checkpoints ---------------------------------------------------------------------------


class CheckpointError(ValueError):
    """A job has checkpoints, but none can be used."""


class Checkpoints:
    """The last two states of a job, each a tree of arrays, in one file per process.

        FOLDER/step-00001200.0-of-2.safetensors   process 0: replicated arrays, and its shard of
                                                  the others
        FOLDER/step-00001200.1-of-2.safetensors   process 1: its shard

    A state is complete when every process has written its file. Sharded arrays are sharded along
    their first axis. Two states are kept, so that one is left if the newest is damaged.
    """

    KEPT = 2
    _NAME = re.compile(r"step-(\d+)\.(\d+)-of-(\d+)\.safetensors")

    def __init__(
        self,
        folder: Path,
        description: Mapping[str, Any],
        warn: Callable[[str], None] = warnings.warn,
    ):
        """Manage the checkpoints of one job.

        Args:
            folder: a folder for checkpoints only; `save` makes it.
            description: a JSON object that distinguishes this job from all others.
            warn: called with a message when `restore` skips a damaged checkpoint.
        """
        self.folder, self.description, self.warn = folder, dict(description), warn

    def save(self, step: int, tree: Any, notes: Mapping[str, Any] | None = None) -> None:
        """Write a state with notes, a JSON object, and remove states that are no longer needed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        index, count = jax.process_index(), jax.process_count()
        mine = jax.tree.map(
            lambda leaf: _local(leaf) if is_first() or not _is_replicated(leaf) else None, tree
        )
        about = {"step": step, "notes": dict(notes or {}), "job": self.description}
        write_arrays(self.folder / f"step-{step:08}.{index}-of-{count}.safetensors", mine, about)
        wait_for_all(f"checkpoint {step}")
        if is_first():
            found = self._find()
            complete = [key for key in sorted(found, reverse=True) if len(found[key]) == key[1]]
            self._remove(found[key] for key in found.keys() - complete[: self.KEPT])

    def restore(self, like: Any) -> tuple[int, Any, dict[str, Any]] | None:
        """The step, a tree like `like` and the notes of the newest complete state, if any.

        Raises:
            CheckpointError: if there are states, but all of them are damaged or of another job.
        """
        reasons = []
        for (_, count), files in sorted(self._find().items(), reverse=True):
            if len(files) != count:
                self.warn(f"{files[0]}: not all of {count} processes wrote this checkpoint")
                continue
            try:
                step, tree, notes = self._read(files, like)
            except (ValueError, OSError) as error:
                reasons.append(str(error))
                continue
            for reason in reasons:
                self.warn(f"{reason}; continuing from step {step}")
            return step, tree, notes
        if reasons:
            raise CheckpointError(
                f"no usable checkpoint ({'; '.join(reasons)}); remove {self.folder} to start over"
            )
        return None

    def clear(self) -> None:
        """Remove all states."""
        self._remove(self._find().values())

    def descriptions(self) -> list[dict[str, Any]]:
        """The descriptions of the jobs with states in the folder, as far as they are readable."""
        jobs = []
        for files in self._find().values():
            try:
                jobs.append(read_arrays(files[0])[0].get("job"))
            except (ValueError, OSError):
                continue
        return [job for job in jobs if isinstance(job, dict)]

    def _find(self) -> dict[tuple[int, int], list[Path]]:
        """The files of every state, complete or not, by step and number of processes."""
        found: dict[tuple[int, int], dict[int, Path]] = {}
        for file in self.folder.glob("step-*"):
            if match := self._NAME.fullmatch(file.name):
                step, index, count = map(int, match.groups())
                found.setdefault((step, count), {})[index] = file
        return {key: [files[i] for i in sorted(files)] for key, files in found.items()}

    def _remove(self, states: Iterable[list[Path]]) -> None:
        for file in [file for files in states for file in files]:
            file.unlink(missing_ok=True)

    def _read(self, files: list[Path], like: Any) -> tuple[int, Any, dict[str, Any]]:
        parts = [read_arrays(file) for file in files]
        about, first = parts[0]
        if about.get("job") != self.description:
            raise ValueError(f"{files[0]}: a checkpoint of another job")
        step, notes = about.get("step"), about.get("notes")
        if type(step) is not int or step < 0 or not isinstance(notes, dict):
            raise ValueError(f"{files[0]}: the description of the checkpoint is damaged")
        arrays = {
            name: np.concatenate([part[name] for _, part in parts if name in part])
            if array.ndim
            else array
            for name, array in first.items()
        }
        return step, fill(like, arrays, files[0]), notes


def _is_replicated(leaf: Any) -> bool:
    return not isinstance(leaf, jax.Array) or jax.process_count() == 1 or leaf.is_fully_replicated


def _local(leaf: Any) -> Any:
    """The part of an array that this process holds: contiguous rows, or all of it."""
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        return leaf
    if leaf.is_fully_replicated:
        return leaf.addressable_data(0)
    parts = {part.index[0].start or 0: np.asarray(part.data) for part in leaf.addressable_shards}
    return jnp.asarray(np.concatenate([parts[start] for start in sorted(parts)]))
