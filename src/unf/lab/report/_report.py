"""From a path to a page."""

import os
from pathlib import Path

import numpy as np

from ..._files import write_whole
from ._charts import Axis, Chart
from ._errors import ReportError
from ._html import Html, table, tag
from ._marks import Line, Points
from ._page import COLOURS, page
from ._recognise import recognise, runs_below
from ._section import Section, charts

_EXPECTED = (
    "expected a zoo, a predictor's training, a meta-training or a comparison of optimizers; make "
    "one with unf zoo build, unf predict train, unf lopt train or unf lopt eval"
)


def render(path: str | os.PathLike) -> str:
    """The page of a run, or of all runs below a folder, as HTML that needs no other file.

    Args:
        path: the folder of a zoo, of a predictor's training or of a meta-training, finished or
            not; a file that `unf lopt eval` wrote; or a folder with several of these below it.

    Raises:
        ReportError: if there is no run, or its files are damaged.
    """
    where = Path(path)
    if not where.exists():
        raise ReportError(f"{where}: no such file or folder; {_EXPECTED}")
    reporter = recognise(where)
    if reporter is not None:
        section = reporter()
        return page(f"{section.title}: {section.kind}", *_parts(section, "h1"))
    if where.is_file():
        raise ReportError(f"{where}: nothing here that can be reported; {_EXPECTED}")
    return _several(where)


def write(path: str | os.PathLike, out: str | os.PathLike | None = None) -> Path:
    """Write the page of a run, whole or not at all; returns where it is.

    Args:
        path: see `render`.
        out: the page's file; by default report.html in the folder, or beside a file with the
            same name and .html.

    Raises:
        ReportError: if there is no run, or its files are damaged.
    """
    where = Path(path)
    html = render(where)
    beside = where / "report.html" if where.is_dir() else where.with_suffix(".html")
    file = beside if out is None else Path(out)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, html)
    return file


def _several(folder: Path) -> str:
    """One page for all runs below; those that are damaged say so."""
    sections, names, damaged = [], [], []
    for path, reporter in runs_below(folder):
        try:
            sections.append(reporter())
            names.append(str(path.relative_to(folder)))
        except ReportError as error:
            damaged.append(str(error))
    if not sections:
        why = f": {damaged[0]}" if damaged else f"; {_EXPECTED}"
        raise ReportError(f"{folder}: nothing here that can be reported{why}")
    rows = [
        [tag("a", name, href=f"#run-{i}"), _kind(section), section.statement]
        for i, (name, section) in enumerate(zip(names, sections, strict=True))
    ]
    title = folder.resolve().name
    parts = [
        tag("section", *_parts(section, "h2", name), id=f"run-{i}")
        for i, (name, section) in enumerate(zip(names, sections, strict=True))
    ]
    return page(
        f"{title}: {len(sections)} runs",
        tag("h1", title),
        tag("p", f"{len(sections)} runs", class_="kind"),
        *(tag("p", f"Left out: {why}", class_="warning") for why in damaged),
        _scores(sections),
        tag("div", table(["run", "what it is", "result"], rows), class_="stack"),
        *parts,
    )


def _parts(section: Section, heading: str, name: str | None = None) -> list[Html]:
    return [
        tag(heading, name or section.title),
        tag("p", _kind(section), class_="kind"),
        tag("p", section.statement.replace(" ± ", "\xa0±\xa0"), class_="statement"),
        section.body,
    ]


def _kind(section: Section) -> str:
    return section.kind if section.state == "finished" else f"{section.kind}, {section.state}"


def _scores(sections: list[Section]) -> Html:
    """Predictors of the page side by side, if there are several."""
    scored = [section.scores for section in sections if section.scores is not None]
    if len(scored) < 2:
        return Html()
    chart = Chart(
        "Predictors compared",
        Axis("predictor", whole=True),
        Axis("test τ"),
        note="A point for each seed, a line at their mean.",
    )
    for i, (name, tau) in enumerate(scored):
        ends = np.array([i + 0.7, i + 1.3])
        chart.add(
            Points(name, np.full(len(tau), i + 1.0), tau, i % COLOURS),
            Line("", ends, np.full(2, tau.mean()), i % COLOURS),
        )
    return charts(chart)
