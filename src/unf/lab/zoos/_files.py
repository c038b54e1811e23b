"""Zoos of networks in files: one file for each network, and a table of their scores."""

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import PyTree

from ..._progress import Progress, say
from ...spec import WeightSpace
from ...zoo import Zoo, ZooError
from .._weights import READERS, Fit, Misfit

_MOST_SHOWN = 20


def read_zoo(
    folder: str | os.PathLike,
    table: str | os.PathLike,
    space: WeightSpace,
    *,
    settings: Sequence[str] = (),
    others_allowed: bool = False,
    show_progress: bool = True,
) -> Zoo:
    """A zoo of networks in safetensors, npz and PyTorch files, in memory.

    The table is a CSV file with a header. Its first column names the file of each network, with
    or without the folder below `folder` and the suffix. The others are scores, or settings if
    `settings` names them; `NAME_again` is a second measurement of the score `NAME`. The networks
    of the zoo are in the order of the table.

    An array of a file belongs to the leaf with its name, where dots and slashes are the same.

    Args:
        folder: the folder with the files, which may be in subfolders.
        table: the CSV file.
        space: the weight space of the networks.
        settings: the columns that are settings.
        others_allowed: ignore arrays that are not in the space. If False, only those are ignored
            that are not floating-point numbers or that `space.notes.left_out` lists.
        show_progress: show the rate and the time left on standard error.

    Raises:
        ZooError: naming every file, row or cell that does not fit.
    """
    rows = _Table.read(Path(table))
    unknown = [name for name in settings if name not in rows.columns]
    if unknown:
        raise ZooError(f"{table}: no column {unknown[0]!r} for a setting; it has {rows.head}")
    problems: list[str] = []
    scores = _scores({k: v for k, v in rows.columns.items() if k not in settings}, rows, problems)
    files = _match(Path(folder), rows, problems)
    fits = Fit(space, others_allowed)
    networks = _read(files, fits, problems, show_progress)
    if problems:  # read the files nevertheless, so that all problems are named at once
        for _ in networks:
            pass
    columns = {name: _setting(rows.columns[name]) for name in settings}
    return Zoo.from_arrays(networks, scores, space, settings=columns)


def _read(files: Sequence[Path], fits: Fit, problems: list[str], show: bool) -> Iterator[PyTree]:
    """The networks one after the other, then an error if there were problems."""
    with Progress("reading networks", len(files), unit="networks", show=show) as progress:
        for file in files:
            try:
                yield fits.tree(READERS[file.suffix](file))
            except Misfit as error:
                problems.append(f"{file}: {error}")
            progress.advance()
    if problems:
        shown = "\n".join(f"  {problem}" for problem in problems[:_MOST_SHOWN])
        more = len(problems) - _MOST_SHOWN
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise ZooError(f"{count}:\n{shown}" + (f"\n  and {more} more" if more > 0 else ""))


# --- the table -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Table:
    path: Path
    names: list[str]
    columns: dict[str, list[str]]

    @property
    def head(self) -> list[str]:
        return list(self.columns)

    @classmethod
    def read(cls, path: Path) -> "_Table":
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                head, *rows = csv.reader(file)
        except (OSError, ValueError, csv.Error) as error:
            raise ZooError(f"{path}: cannot be read as CSV with a header ({error})") from error
        rows = [row for row in rows if row]
        head = [name.strip() for name in head]
        if len(head) < 2 or not rows or len(set(head)) < len(head):
            raise ZooError(
                f"{path}: expected a column of file names, one or more of scores, each with a name "
                f"of its own, and a line for each network; got the header {head} and "
                f"{len(rows)} lines"
            )
        for number, row in enumerate(rows, 2):
            if len(row) != len(head):
                raise ZooError(f"{path}: row {number} has {len(row)} cells, the header {len(head)}")
        names, *columns = ([cell.strip() for cell in cells] for cells in zip(*rows, strict=True))
        return cls(path, names, dict(zip(head[1:], columns, strict=True)))


def _scores(
    columns: Mapping[str, list[str]], rows: _Table, problems: list[str]
) -> dict[str, np.ndarray]:
    """Scores by name, of shape [models, measurements]."""
    if not columns:
        raise ZooError(f"{rows.path}: all columns are settings; expected scores too")
    grouped: dict[str, list[np.ndarray]] = {}
    for name, cells in columns.items():
        of = name
        while of.endswith("_again") and of.removesuffix("_again") in columns:
            of = of.removesuffix("_again")
        numbers = [_number(cell) for cell in cells]
        if np.isnan(numbers).all():
            raise ZooError(
                f"{rows.path}: column {name!r} holds no numbers but, e.g., {cells[0]!r}; if it is "
                "not a score, list it in settings= or remove it"
            )
        for file, cell, number in zip(rows.names, cells, numbers, strict=True):
            if not np.isfinite(number):
                problems.append(f"{rows.path}: {name} of {file} is {cell!r}, not a finite number")
        grouped.setdefault(of, []).append(np.array(numbers))
    return {name: np.stack(each, axis=1) for name, each in grouped.items()}


def _setting(cells: list[str]) -> np.ndarray:
    """Numbers, NaN where there are none, if all other cells are numbers; else the words."""
    words = [cell for cell in cells if cell]
    is_number = [not np.isnan(_number(word)) or word.lower() == "nan" for word in words]
    return np.array([_number(cell) for cell in cells] if all(is_number) else cells)


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")


def _match(folder: Path, rows: _Table, problems: list[str]) -> list[Path]:
    """The file of each row."""
    if not folder.is_dir():
        raise ZooError(f"{folder}: no such folder")
    found = sorted(path for path in folder.rglob("*") if path.suffix in READERS)
    below: dict[str, list[Path]] = {}
    bare: dict[str, list[Path]] = {}
    for path in found:
        name = path.relative_to(folder)
        for key in (name.as_posix(), name.with_suffix("").as_posix()):
            below.setdefault(key, []).append(path)
        for key in (name.name, name.stem):
            bare.setdefault(key, []).append(path)
    files: dict[Path, str] = {}
    for row in rows.names:
        key = Path(row).as_posix()
        matches = below.get(key) or bare.get(key) or []
        if not matches:
            problems.append(f"{rows.path}: no file {row!r} in {folder}")
        elif len(matches) > 1:
            two = " and ".join(str(path.relative_to(folder)) for path in matches[:2])
            problems.append(f"{rows.path}: {row!r} may be {two}; write the folder and the suffix")
        elif matches[0] in files:
            problems.append(
                f"{rows.path}: two rows, {files[matches[0]]!r} and {row!r}, are of one file"
            )
        else:
            files[matches[0]] = row
    if left := len(found) - len(files):
        say(f"{left} files in {folder} have no row in {rows.path} and are left out")
    return list(files)
