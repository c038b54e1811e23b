"""Results folders: one way to begin a job, resume it, or replace it; where results come from."""

import dataclasses
import datetime
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

from .._devices import UnevenError, enough_memory, is_first, wait_for_all
from .._persistence import CheckpointError, Checkpoints
from .._progress import say
from .._version import __version__
from ..spec._errors import shown


def claim(
    folder: Path,
    job: Mapping[str, Any],
    *,
    outputs: Sequence[str],
    known: Mapping[str, Any] | None = None,
    resume: bool,
    overwrite: bool,
    error: type[ValueError],
) -> Checkpoints:
    """Claim a folder for a job: it must be new, hold the same job, or be free to clear.

    Args:
        folder: where the job writes its results; its checkpoints go in a folder inside.
        job: a JSON object that distinguishes this job from all others.
        outputs: name patterns of the files that the job writes.
        known: the job that wrote the outputs, for a folder that has lost its checkpoints.
        resume: continue the job in the folder, if there is one.
        overwrite: delete the checkpoints and outputs of an earlier job.
        error: the type of error to raise.

    Raises:
        ValueError: of type `error`, if the folder holds results and neither `resume` nor
            `overwrite` is set, or if the job to resume differs from this one.
    """
    checkpoints = Checkpoints(folder / "checkpoints", job, warn=say)
    written = [file for pattern in outputs for file in folder.glob(pattern)]
    earlier = checkpoints.descriptions() or ([known] if written and known is not None else [])
    if (earlier or written) and not (resume or overwrite):
        raise error(
            f"{folder}: already holds results; continue that job with resume=True, replace it "
            "with overwrite=True, or choose another folder"
        )
    for other in earlier if resume else ():
        if differs := first_difference(other, job):
            raise error(
                f"{folder}: the job there has {differs}; pass the same arguments to resume it, "
                "or choose another folder"
            )
    wait_for_all("every process has looked at the folder")
    if is_first():
        folder.mkdir(parents=True, exist_ok=True)
        if not resume:
            checkpoints.clear()
            for file in written:
                file.unlink(missing_ok=True)
    wait_for_all("the folder is ready")
    return checkpoints


def first_difference(known: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """The first entry in which two jobs differ.

    >>> first_difference({"seed": 0, "steps": 5}, {"seed": 1, "steps": 5})
    'seed = 0, not 1'
    >>> first_difference({"training": {"epochs": 2}}, {"training": {"epochs": 3}})
    'training.epochs = 2, not 3'
    """
    for name in dict.fromkeys([*known, *wanted]):
        ours, theirs = known.get(name), wanted.get(name)
        if ours == theirs:
            continue
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            if (inside := first_difference(ours, theirs)) is not None:
                return f"{name}.{inside}"
        return f"{name} = {shown(ours)}, not {shown(theirs)}"
    return None


def added(default: Any) -> Any:
    """A field of a dataclass that came after jobs with it were first stored, see `described`."""
    return dataclasses.field(default=default, metadata={"added": True})


def described(options: Any) -> dict[str, Any]:
    """The fields of a dataclass for the description of a job.

    Fields that were `added` later are left out at their defaults, so that jobs that were stored
    before can still be resumed.
    """
    values = dataclasses.asdict(options)
    for field in dataclasses.fields(options):
        if field.metadata.get("added") and values[field.name] == field.default:
            del values[field.name]
    return values


@contextmanager
def job_errors(error: type[ValueError], folder: Path, what: str, remedy: str) -> Iterator[None]:
    """Raise `error` if checkpoints, the number of processes or memory stop a job.

    Args:
        error: the type of error to raise.
        folder: the job's folder.
        what: what needs memory.
        remedy: how to need less.
    """
    try:
        with enough_memory(error, what, remedy):
            yield
    except (CheckpointError, UnevenError) as reason:
        raise error(f"{folder}: {reason}") from reason


def provenance() -> dict[str, str]:
    """Versions, machine and date, to store with a result."""
    return {
        "unf": __version__,
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "machine": platform.machine(),
        "date": datetime.date.today().isoformat(),
    }
