"""The last states of a long job, in files that tell whether they are whole.

    FOLDER/step-00001200.0-of-2.safetensors   of process 0: all that is the same everywhere,
                                              and its part of what is spread
    FOLDER/step-00001200.1-of-2.safetensors   of process 1: its part of what is spread

A state is there when the files of all processes are; each has a checksum. The last two are kept,
so that there is a good one whatever happens to the newest.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._arrays import fill, read_arrays, write_arrays
from .._devices import is_first, wait_for_all
from ._progress import say

KEPT = 2
_NAME = re.compile(r"step-(\d+)\.(\d+)-of-(\d+)\.safetensors")


class CheckpointError(ValueError):
    """There are states of a job, and none can be used."""


class Checkpoints:
    """States of one job, each a tree of arrays. Spread arrays are cut along their first axis."""

    def __init__(
        self,
        folder: Path,
        description: Mapping[str, Any],
        announce: Callable[[str], None] = say,
    ):
        """States of the job that `description` tells from all others, in a folder of their own."""
        self.folder, self.description, self.announce = folder, dict(description), announce

    def save(self, step: int, tree: Any, notes: Mapping[str, Any] | None = None) -> None:
        """Write a state, with notes that JSON can hold; older ones go when all have written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        index, count = jax.process_index(), jax.process_count()
        mine = jax.tree.map(
            lambda leaf: _local(leaf) if is_first() or not _same_everywhere(leaf) else None, tree
        )
        about = {"step": step, "notes": dict(notes or {}), "job": self.description}
        write_arrays(self.folder / f"step-{step:08}.{index}-of-{count}.safetensors", mine, about)
        wait_for_all(f"checkpoint {step}")
        if is_first():
            found = self._found()
            whole = [key for key in sorted(found, reverse=True) if len(found[key]) == key[1]]
            for old in found.keys() - whole[:KEPT]:
                for file in found[old]:
                    file.unlink(missing_ok=True)

    def restore(self, like: Any) -> tuple[int, Any, dict[str, Any]] | None:
        """The newest state that is whole: its step, a tree like `like`, its notes.

        Raises:
            CheckpointError: if there are states, and none of this job is whole.
        """
        found, reasons = self._found(), []
        for (_, count), files in sorted(found.items(), reverse=True):
            if len(files) != count:
                self.announce(f"{files[0]}: the state of {count} processes was not finished")
                continue
            try:
                step, tree, notes = self._read(files, like)
            except (ValueError, OSError) as error:
                reasons.append(str(error))
                continue
            for reason in reasons:
                self.announce(f"{reason}; going on from step {step}")
            return step, tree, notes
        if reasons:
            raise CheckpointError(
                f"no whole checkpoint ({'; '.join(reasons)}); remove {self.folder} to begin again"
            )
        return None

    def clear(self) -> None:
        """Remove all states."""
        for files in self._found().values():
            for file in files:
                file.unlink(missing_ok=True)

    def descriptions(self) -> list[dict[str, Any]]:
        """The jobs whose states are here, as far as they can be read."""
        jobs = []
        for files in self._found().values():
            try:
                jobs.append(read_arrays(files[0])[0].get("job"))
            except (ValueError, OSError):
                continue
        return [job for job in jobs if isinstance(job, dict)]

    def _found(self) -> dict[tuple[int, int], list[Path]]:
        """Files by step and number of processes; those of unfinished states too."""
        found: dict[tuple[int, int], dict[int, Path]] = {}
        for file in self.folder.glob("step-*"):
            if match := _NAME.fullmatch(file.name):
                step, index, count = map(int, match.groups())
                found.setdefault((step, count), {})[index] = file
        return {key: [files[i] for i in sorted(files)] for key, files in found.items()}

    def _read(self, files: list[Path], like: Any) -> tuple[int, Any, dict[str, Any]]:
        parts = [read_arrays(file) for file in files]
        about = parts[0][0]
        if about.get("job") != self.description:
            raise ValueError(f"{files[0]}: of another job")
        step, notes = about.get("step"), about.get("notes")
        if type(step) is not int or step < 0 or not isinstance(notes, dict):
            raise ValueError(f"{files[0]}: the description of its state is damaged")
        try:
            arrays = {
                name: np.concatenate([part[name] for _, part in parts if name in part])
                if first.ndim
                else first
                for name, first in parts[0][1].items()
            }
        except (ValueError, TypeError) as error:
            raise ValueError(f"{files[0]}: the parts of its state do not fit ({error})") from error
        return step, fill(like, arrays, files[0]), notes


def _same_everywhere(leaf: Any) -> bool:
    return not isinstance(leaf, jax.Array) or jax.process_count() == 1 or leaf.is_fully_replicated


def _local(leaf: Any) -> Any:
    """What this process has of an array: rows that follow each other, or all of it."""
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        return leaf
    if leaf.is_fully_replicated:
        return leaf.addressable_data(0)
    parts = {part.index[0].start or 0: np.asarray(part.data) for part in leaf.addressable_shards}
    return jnp.asarray(np.concatenate([parts[start] for start in sorted(parts)]))
