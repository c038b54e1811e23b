"""What is in a folder: one run, or several below it."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from ..._persistence import read_arrays
from ..lopt import CONFIG, METRICS
from ..predict import CHECKPOINT, RESULT
from ._comparison import report_comparison
from ._errors import ReportError
from ._meta_training import is_meta_training, report_meta_training
from ._predictor import report_predictor, report_unfinished
from ._read import read_json
from ._section import Section
from ._zoo import report_zoo

Reporter = Callable[[], Section]
_DEPTH = 6
_MOST = 40
"""Runs on one page, and folders looked into are at most fifty times as many."""


def recognise(path: Path) -> Reporter | None:
    """How to report a folder or file that is itself a run; nothing if it is none."""
    if path.is_file():
        return _file(path)
    if (path / "zarr.json").is_file():
        return lambda: report_zoo(path)
    if (path / RESULT).is_file():
        return lambda: report_predictor(path / RESULT)
    if (path / CONFIG).is_file() and _has_meta_training(path):
        return lambda: report_meta_training(path)
    if _predictor_checkpoints(path):
        return lambda: report_unfinished(path)
    return None


def runs_below(folder: Path) -> list[tuple[Path, Reporter]]:
    """The runs in a folder's folders, and its files that are comparisons.

    Raises:
        ReportError: if there are more than fit on a page.
    """
    found: list[tuple[Path, Reporter]] = []
    for count, path in enumerate(_walk(folder, _DEPTH)):
        reporter = _of_entry(path)
        if reporter is not None:
            found.append((path, reporter))
        if len(found) > _MOST or count > 50 * _MOST:
            raise ReportError(
                f"{folder}: more than {_MOST} runs or {50 * _MOST} files below; report a part of it"
            )
    return found


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    """Files and folders, but not those within a run, nor what links point to."""
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: (entry.is_dir(), entry.name))
    except OSError as error:
        raise ReportError(f"{folder}: cannot be read ({error}); name another folder") from error
    for entry in entries:
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        yield entry
        if entry.is_dir() and depth > 1 and recognise(entry) is None:
            yield from _walk(entry, depth - 1)


def _of_entry(path: Path) -> Reporter | None:
    """Like `recognise`; what is wrong with a file is said when it is reported."""
    try:
        return recognise(path) if path.is_dir() or path.suffix == ".json" else None
    except ReportError as error:
        return partial(_refuse, error)


def _refuse(error: ReportError) -> Section:
    raise error


def _file(path: Path) -> Reporter | None:
    """By what a file of JSON holds."""
    record = read_json(path)
    if "curves" in record and "horizon" in record:
        return lambda: report_comparison(path)
    if "method" in record and "tau" in record and "predicted" in record:
        return lambda: report_predictor(path)
    return None


def _has_meta_training(folder: Path) -> bool:
    if (folder / METRICS).is_file():
        return True
    try:
        return is_meta_training(read_json(folder / CONFIG))
    except ReportError:
        return False


def _predictor_checkpoints(folder: Path) -> bool:
    for file in sorted((folder / "checkpoints").glob("step-*.0-of-*.safetensors")):
        try:
            job = read_arrays(file)[0].get("job")
        except (ValueError, OSError):
            return True  # damaged ones of whatever it was: they are reported as such
        return isinstance(job, dict) and job.get("what") == CHECKPOINT
    return False
