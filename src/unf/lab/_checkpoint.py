"""Checkpoints of the lab's jobs."""

from collections.abc import Mapping
from typing import Any

from .._persistence import CheckpointError, Checkpoints

__all__ = ["CheckpointError", "Checkpoints", "difference"]


def difference(known: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """The first entry in which two descriptions of jobs differ, and what to do about it.

    >>> difference({"seed": 0, "steps": 5}, {"seed": 1, "steps": 5})
    'seed = 0, not 1; give the same options, or choose another folder'
    """
    for name in dict.fromkeys([*known, *wanted]):
        if known.get(name) != wanted.get(name):
            values = f"{name} = {known.get(name)!r}, not {wanted.get(name)!r}"
            return f"{values}; give the same options, or choose another folder"
    return None
