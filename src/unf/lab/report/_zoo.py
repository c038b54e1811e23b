"""What there is to say about a zoo."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from ...spec import SpecError
from ...zoo import Status, Zoo, ZooError
from ..zoos import RECIPES, recipe_of
from ._charts import Axis, Chart
from ._errors import ReportError
from ._html import join, table
from ._marks import Points, bars
from ._page import COLOURS
from ._scales import drawable
from ._section import Section, again, charts, configuration, options, provenance, warning
from ._section import weight_space as draw_space

_LEVELS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def report_zoo(path: Path) -> Section:
    """The section of a zoo, finished or not.

    Raises:
        ReportError: if it is damaged.
    """
    try:
        zoo = Zoo(path)
        columns = {"success": zoo.success, "loss": zoo.loss, **zoo.choices}
    except (ZooError, SpecError, OSError) as error:
        raise ReportError(f"{path}: a zoo that cannot be read: {error}") from error
    body = [
        *_missing(zoo),
        charts(*_charts(zoo, columns)) if len(zoo.trained) else "",
        _quantiles(zoo, columns),
        draw_space(zoo.space),
        configuration({**zoo.origin, "chunk": zoo.store.chunk}),
        provenance(zoo.attributes),
        again(
            path / "config.toml",
            _command(zoo),
            "Make it again, or train what is missing with --resume:",
        ),
    ]
    state = "finished" if zoo.complete else "unfinished"
    return Section(path.resolve().name, f"{zoo.kind} zoo", _statement(zoo), join(body), state)


def _statement(zoo: Zoo) -> str:
    facts, success = zoo.summary(), zoo.success[zoo.trained, 0]
    count = f"{facts['finished']:,} of {facts['models']:,} networks are trained"
    if facts["diverged"]:
        count += f", of which {facts['diverged']:,} diverged"
    success = success[drawable(success)]
    if not len(success):
        return f"{count}; there is nothing to measure yet."
    low, middle, high = np.quantile(success, (0.25, 0.5, 0.75))
    return (
        f"{count}. The median network succeeds at {middle:.1%} of fresh problems; "
        f"half of them lie between {low:.1%} and {high:.1%}."
    )


def _missing(zoo: Zoo) -> list[Any]:
    count = int(np.sum(zoo.status == Status.MISSING))
    if not count:
        return []
    return [warning(f"Unfinished: {count:,} networks are missing. Figures are of the others.")]


def _charts(zoo: Zoo, columns: dict[str, np.ndarray]) -> list[Chart]:
    rows = zoo.trained
    success, loss = columns["success"][rows, 0], columns["loss"][rows, 0]
    histogram = Chart("How well the networks work", Axis("success rate"), Axis("networks", low=0.0))
    histogram.add(bars(success))
    drawn = [histogram]
    for name in _telling(columns, rows)[:2]:
        values = columns[name][rows]
        axis = Axis(name.replace("_", " "), log=_by_powers(values))
        chart = Chart(f"Success against {axis.label}", axis, Axis("success rate"))
        chart.add(*_by_batch_size(values, success, columns["batch_size"][rows]))
        drawn.append(chart)
    losses = Chart(
        "Loss and success", Axis("loss", log=_by_powers(loss)), Axis("success rate"),
    )  # fmt: skip
    losses.add(*_by_batch_size(loss, success, columns["batch_size"][rows]))
    twice = Chart(
        "Two measurements of the same networks",
        Axis("success rate, first"),
        Axis("success rate, second"),
        note="How far they lie apart is what no predictor can know.",
        square=True,
    )
    twice.add(Points("", success, columns["success"][rows, 1]))
    return [*drawn, losses, twice]


def _telling(columns: dict[str, np.ndarray], rows: np.ndarray) -> list[str]:
    """Choices that differ between networks, the learning rate first."""
    drawn = [name for name in columns if name not in ("success", "loss", "batch_size")]
    drawn = [name for name in drawn if len(np.unique(columns[name][rows])) > 1]
    return sorted(drawn, key=lambda name: (name != "learning_rate", name))


def _by_powers(values: np.ndarray) -> bool:
    """Whether numbers are so different that equal ratios tell more than equal distances."""
    values = values[drawable(values)]
    return bool(len(values) and values.min() > 0 and values.max() / values.min() > 30)


def _by_batch_size(x: np.ndarray, y: np.ndarray, sizes: np.ndarray) -> list[Points]:
    kinds = np.unique(sizes[np.isfinite(sizes)])
    if not 1 < len(kinds) <= COLOURS:
        return [Points("", x, y)]
    return [
        Points(f"batch {size:.0f}", x[sizes == size], y[sizes == size], colour)
        for colour, size in enumerate(kinds)
    ]


def _quantiles(zoo: Zoo, columns: dict[str, np.ndarray]) -> Any:
    rows = []
    for name in ("success", "loss"):
        values = columns[name][zoo.trained, 0]
        values = values[drawable(values)]
        if len(values):
            rows.append([name, *(f"{x:.4g}" for x in np.quantile(values, _LEVELS))])
    heads = ["least", *(f"{level:.0%}" for level in _LEVELS[1:-1]), "greatest"]
    diverged = int(np.sum(zoo.diverged))
    without = f", without {diverged:,} that diverged" if diverged else ""
    caption = f"Quantiles over {len(zoo.trained):,} networks{without}; first measurement"
    return table(["", *heads], rows, caption) if rows else ""


def _command(zoo: Zoo) -> list[str] | None:
    """What builds the zoo, if it is of a kind that the command line knows."""
    if zoo.kind not in RECIPES:
        return None
    try:
        given = dataclasses.asdict(recipe_of(zoo))
    except ZooError:
        return None
    counts = {"models": zoo.models, "seed": zoo.seed}
    known = options(given, dataclasses.asdict(RECIPES[zoo.kind]()))
    where = ["--out", str(zoo.path)]
    return ["unf", "zoo", "build", zoo.kind, *options(counts, {}), *known, *where]
