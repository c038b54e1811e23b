"""A part of a page about one run, and what all of them have: facts, commands, the weight space."""

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...nn import UNFLinear
from ...spec import SpecError, WeightSpace
from ...viz import draw_coefficients, draw_space
from ._charts import Chart
from ._html import Html, folded, join, table, tag
from ._read import read_text

_ORIGIN = {"unf": "unf", "jax": "JAX", "device": "device", "machine": "machine", "date": "date"}
_LONGEST = 300
_MOST = 200
_MOST_TENSORS = 120


@dataclass(frozen=True)
class Section:
    """What there is to say about one run.

    Args:
        title: its name.
        kind: what it is: a zoo, a predictor, a meta-training, a comparison.
        statement: its result, in a sentence.
        body: charts, tables and the rest.
        state: whether it is finished.
        scores: of a predictor, for comparisons with others: its name and Kendall's τ by seed.
    """

    title: str
    kind: str
    statement: str
    body: Html
    state: str = "finished"
    scores: tuple[str, np.ndarray] | None = None


def charts(*drawn: Chart) -> Html:
    """Figures, side by side where there is room."""
    return tag("div", *(chart.html() for chart in drawn), class_="charts")


def warning(words: str) -> Html:
    """What readers should not miss."""
    return tag("p", words, class_="warning")


def provenance(record: Mapping[str, Any]) -> Html:
    """Versions, machine and date, as far as the files say."""
    known = [f"{label} {short(record[name])}" for name, label in _ORIGIN.items() if name in record]
    told = "; ".join(known) or "the files do not say with which versions, on what and when"
    return tag("p", f"Made with: {told}.", class_="note")


def configuration(settings: Mapping[str, Any]) -> Html:
    """All settings, folded."""
    flat = list(_flat(settings))
    more = [tag("p", f"{len(flat) - _MOST:,} more are left out.")] if len(flat) > _MOST else []
    return folded("Configuration", table(["setting", "value"], flat[:_MOST]), *more)


def again(file: Path, command: list[str] | None, words: str) -> Html:
    """How to make a run anew or go on with it, and the options in a file that lies beside it."""
    parts: list[Html] = []
    if command is not None:
        parts = [tag("p", words), tag("pre", tag("code", shlex.join(command)))]
    if file.is_file():
        parts.append(folded(file.name, tag("pre", tag("code", read_text(file, 100_000)))))
    return join([tag("h3", "Again"), *parts]) if parts else Html()


def weight_space(space: WeightSpace | None) -> Html:
    """Which axes permute together, drawn."""
    if space is None:
        return Html()
    count = len(space.leaves)
    weights = sum(int(np.prod(leaf.shape)) for leaf in space.leaves)
    title = f"The weight space: {weights:,} weights in {count:,} tensors"
    if count > _MOST_TENSORS:
        drawing = tag("p", f"Not drawn: more than {_MOST_TENSORS} tensors.")
    else:
        drawing = tag("div", Html(draw_space(space)), class_="scroll")
    return folded(title, drawing)


def coefficients(layers: Mapping[str, UNFLinear]) -> Html:
    """What flows from which tensor to which in trained layers, drawn."""
    drawn = [
        join([tag("h4", name), tag("div", Html(draw_coefficients(layer)), class_="scroll")])
        for name, layer in layers.items()
        if len(layer.plan.in_space.leaves) <= _MOST_TENSORS
    ]
    note = tag("p", "Root mean square of the coefficients from each tensor, in columns, to each.")
    return folded("Coefficients of its equivariant layers", note, *drawn) if drawn else Html()


def read_space(description: Any) -> WeightSpace | None:
    """A weight space from its JSON, or nothing if it is not one."""
    try:
        return WeightSpace.from_json(description) if isinstance(description, str) else None
    except SpecError:
        return None


def options(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """Those that are not as they would be anyway, as on the command line.

    >>> options({"steps": 3, "batch_sizes": (1, 2), "seed": 0}, {"seed": 0})
    ['--steps', '3', '--batch-sizes', '1,2']
    """
    words: list[str] = []
    for name, value in given.items():
        if value != defaults.get(name):
            several = ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
            words += [f"--{name.replace('_', '-')}", several]
    return words


def short(value: Any) -> str:
    """A value as people read it, cut if it is long."""
    if isinstance(value, float):
        said = f"{value:.6g}"
    else:
        said = value if isinstance(value, str) else json.dumps(value, default=str)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, dict) and value and not prefix:
            yield from _flat(value, f"{name}.")
        else:
            yield f"{prefix}{name}"[:_LONGEST], short(value)
