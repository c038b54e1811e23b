"""What there is to say about a meta-training."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..._persistence import read_arrays
from ...nn import UNFLinear
from ...optim import KINDS, load
from ..lopt import CONFIG, METRICS, OPTIMIZER, MetaTraining, title
from ..tasks import TASKS
from ._charts import Axis, Chart
from ._errors import ReportError
from ._html import Html, folded, join, table, tag
from ._marks import Line
from ._read import read_columns, read_json
from ._scales import drawable
from ._section import (
    Section,
    again,
    charts,
    coefficients,
    configuration,
    options,
    provenance,
    read_space,
    short,
    warning,
    weight_space,
)

_UNFINISHED = (
    "Unfinished: figures are those of the last checkpoint. Go on with the same options and "
    "--resume, or in Python with resume=True."
)
_SMOOTHED = 20
"""A smoothed line is a mean over a part so many times smaller than the whole."""


def report_meta_training(folder: Path) -> Section:
    """The section of a meta-training, finished or not.

    Raises:
        ReportError: if its configuration or its metrics are damaged.
    """
    config = read_json(folder / CONFIG)
    if not is_meta_training(config):
        raise ReportError(f"{folder / 'config.json'}: damaged, or not of a meta-training")
    metrics = _metrics(folder / METRICS)
    origin, space, trouble = _optimizer(folder / OPTIMIZER)
    done, wanted = int(max(metrics["step"], default=0)), config["steps"]
    finished = done >= wanted
    kind, task = (short(config[name]) for name in ("kind", "task"))
    loss = metrics["loss"][drawable(metrics["loss"])]
    lost = metrics.get("lost", np.zeros(0))
    lost = int(lost[drawable(lost)].sum())
    body = [
        *([] if finished else [warning(_UNFINISHED)]),
        *([warning(trouble)] if trouble else []),
        charts(*_charts(metrics, lost)) if len(loss) else tag("p", "No losses yet."),
        tag("p", f"{lost:,} pairs of runs exploded and were begun again." if lost
            else "No run was lost.", class_="note"),
        _rows(metrics),
        weight_space(space),
        coefficients({} if trouble else _layers(folder / OPTIMIZER)),
        configuration(config),
        provenance(origin),
        again(folder / "config.toml", _command(config, folder, finished),
              "Make it again:" if finished else "Go on with it:"),
    ]  # fmt: skip
    statement = (
        f"{title(kind).removesuffix(', meta-trained')} on {task}: {done:,} of {wanted:,} "
        f"meta-steps are done{_fall(loss)}."
    )
    name = folder.resolve().name
    state = "finished" if finished else "unfinished"
    return Section(name, "meta-training of an optimizer", statement, join(body), state)


def is_meta_training(config: Mapping[str, Any]) -> bool:
    """Whether a configuration is one that a meta-training has."""
    known = all(isinstance(config.get(name), str) for name in ("task", "kind"))
    return known and type(config.get("steps")) is int


def _metrics(file: Path) -> dict[str, np.ndarray]:
    if not file.exists():
        return {"step": np.zeros(0), "loss": np.zeros(0)}
    columns = read_columns(file)
    if not {"step", "loss"} <= columns.keys() or not np.all(drawable(columns["step"])):
        raise ReportError(f"{file}: damaged metrics (no steps or losses); go on with --resume")
    return columns


def _fall(loss: np.ndarray) -> str:
    if not len(loss):
        return ""
    part = max(1, len(loss) // 10)
    first, last = loss[:part].mean(), loss[-part:].mean()
    return (
        f"; networks trained with it have a loss of {last:.4f} over the last tenth of them, "
        f"{first:.4f} over the first"
    )


def _charts(metrics: dict[str, np.ndarray], lost: int) -> list[Chart]:
    steps = metrics["step"]
    loss = Chart("Loss of the networks it trains", Axis("meta-step"), Axis("loss"))
    loss.add(*_smoothed("loss", steps, metrics["loss"], 0))
    drawn = [loss]
    if _any(metrics, "gradient_norm"):
        norm = Chart("Meta-gradient", Axis("meta-step"), Axis("norm", log=True))
        norm.add(*_smoothed("norm", steps, metrics["gradient_norm"], 0))
        drawn.append(norm)
    rates = [name for name in ("alpha", "beta") if _any(metrics, name)]
    if rates:
        names = {"alpha": "α", "beta": "β"}
        chart = Chart("Scale of the update", Axis("meta-step"), Axis("α, β", log=True),
                      note="α of the whole, β of what the network proposes.")  # fmt: skip
        chart.add(*(Line(names[n], steps, metrics[n], i) for i, n in enumerate(rates)))
        drawn.append(chart)
    if _any(metrics, "gamma"):
        chart = Chart("Momentum", Axis("meta-step"), Axis("γ"))
        chart.add(Line("γ", steps, metrics["gamma"]))
        drawn.append(chart)
    if lost:
        chart = Chart("Runs that exploded", Axis("meta-step"), Axis("pairs of runs", low=0.0))
        chart.add(Line("", steps, metrics["lost"], 1))
        drawn.append(chart)
    return drawn


def _any(metrics: dict[str, np.ndarray], name: str) -> bool:
    return name in metrics and bool(drawable(metrics[name], log=True).any())


def _smoothed(name: str, x: np.ndarray, y: np.ndarray, colour: int) -> list[Line]:
    """Numbers as they are, and their means over a sliding part of them."""
    width = len(y) // _SMOOTHED
    if width < 2:
        return [Line("", x, y, colour)]
    sound = drawable(y)
    sums, counts = (
        np.convolve(z, np.ones(width), mode="same") for z in (np.where(sound, y, 0.0), sound)
    )
    means = np.where(sound & (counts > 0), sums / np.maximum(counts, 1), np.nan)
    return [Line("", x, y, colour, faint=True), Line(f"mean of {width}", x, means, colour)]


def _rows(metrics: dict[str, np.ndarray]) -> Html:
    """Some lines of the metrics."""
    count = len(metrics["step"])
    chosen = np.unique(np.linspace(0, count - 1, min(count, 12)).astype(int)) if count else []
    rows = [[f"{metrics[name][i]:.5g}" for name in metrics] for i in chosen]
    return folded(f"{len(rows)} of {count:,} lines of the metrics", table(list(metrics), rows))


def _optimizer(file: Path) -> tuple[dict[str, Any], Any, str]:
    """Where the optimizer comes from, its weight space, and what is wrong with its file."""
    if not file.exists():
        return {}, None, ""
    try:
        description, _ = read_arrays(file)
    except (ValueError, OSError) as error:
        return {}, None, f"The optimizer's file cannot be used: {error}."
    origin = description.get("origin")
    known = origin if isinstance(origin, dict) else {}
    return known, read_space(description.get("space")), ""


def _layers(file: Path) -> dict[str, UNFLinear]:
    """The equivariant layer of an optimizer, if it has one."""
    try:
        head = load(file).head if file.exists() else None
    except ValueError:
        return {}
    return {"the last layer of f": head} if isinstance(head, UNFLinear) else {}


def _command(config: Mapping[str, Any], folder: Path, finished: bool) -> list[str] | None:
    """What makes this meta-training, if it is one that the command line knows."""
    fields = [field.name for field in dataclasses.fields(MetaTraining)]
    try:
        task, kind, seed = config["task"], config["kind"], int(config["seed"])
        settings = MetaTraining(**{name: config[name] for name in fields})
        known = dataclasses.asdict(TASKS[task]())
        given = {f.removeprefix("task."): x for f, x in config.items() if f.startswith("task.")}
        if kind not in KINDS or not given.keys() <= known.keys():
            return None
        about = {k: given[k] for k in ("batch_size", "dtype", "vocabulary") if k in given}
        others = given.keys() - about.keys() - {"dataset"}
        if any(_json_like(known[name]) != given[name] for name in others):
            return None
        words = options({"dataset": given["dataset"], **about, "seed": seed}, {"seed": 0})
        words += options(dataclasses.asdict(settings), dataclasses.asdict(MetaTraining()))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
    command = ["unf", "lopt", "train", "--task", task, "--optimizer", kind, *words]
    return [*command, "--out", str(folder), *([] if finished else ["--resume"])]


def _json_like(value: Any) -> Any:
    """A value as it comes back from JSON."""
    return list(value) if isinstance(value, tuple) else value
