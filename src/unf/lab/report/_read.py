"""Reading files that may be anything."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from ._errors import ReportError

_LARGEST = 64 * 2**20
_MOST_ROWS = 10**6


def read_text(path: Path, largest: int = _LARGEST) -> str:
    """A file's text.

    Raises:
        ReportError: if it cannot be read, is not text, or is larger than a result can be.
    """
    try:
        size = path.stat().st_size
        if size > largest:
            raise ReportError(f"{path}: {size:,} bytes, more than {largest:,}; not a run's file")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"{path}: cannot be read ({error}); restore it, or run again") from error


def read_json(path: Path) -> dict[str, Any]:
    """A file's JSON object.

    Raises:
        ReportError: if it holds something else.
    """
    try:
        record = json.loads(read_text(path))
    except ReportError:
        raise
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path}: damaged, not JSON ({error}); run again") from error
    if not isinstance(record, dict):
        raise ReportError(f"{path}: JSON, but not of a run of unf; name another file")
    return record


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """A CSV file's columns of numbers, by name.

    Raises:
        ReportError: if a line has more or fewer numbers than the first has names.
    """
    try:
        lines = list(csv.reader(read_text(path).splitlines()))
        head, rows = lines[0], lines[1:]
        if len(rows) > _MOST_ROWS or any(len(row) != len(head) for row in rows):
            raise ValueError("lines of different lengths, or too many")
        numbers = np.array(rows, float).reshape(len(rows), len(head))
    except (ValueError, IndexError, csv.Error) as error:
        if isinstance(error, ReportError):
            raise
        raise ReportError(f"{path}: damaged metrics ({error}); go on with --resume") from error
    return dict(zip(head, numbers.T, strict=True))
