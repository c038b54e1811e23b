"""What there is to say about a comparison of optimizers."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..lopt import Comparison, Curves
from ..lopt._compare import title
from ..lopt._evaluate import part_ends
from ._charts import Axis, Chart
from ._errors import ReportError
from ._html import Html, join, table
from ._marks import Line
from ._page import COLOURS
from ._read import read_json, read_text
from ._scales import drawable
from ._section import Section, again, charts, configuration, provenance, short

_MOST = 100


def report_comparison(file: Path) -> Section:
    """The section of a file that `unf lopt eval` wrote.

    Raises:
        ReportError: if it is damaged.
    """
    record = read_json(file)
    try:
        comparison = Comparison.from_json(read_text(file))
        _check(comparison)
    except (ValueError, TypeError) as error:
        raise ReportError(f"{file}: a damaged comparison ({error}); evaluate again") from error
    ranked = sorted(comparison.curves, key=lambda name: _order(comparison.curves[name]))
    body = [
        charts(
            _chart(comparison, ranked, "Training loss", "train"),
            _chart(comparison, ranked, "Held-out loss", "heldout"),
        ),
        _losses_table(comparison, ranked),
        configuration(
            {
                "task": comparison.task,
                "dataset": comparison.dataset,
                "horizon": comparison.horizon,
                "seeds": comparison.seeds,
                **comparison.notes,
            }
        ),
        provenance(record),
        again(file.with_name(f"{file.name}.config.toml"), None, ""),
    ]
    kind = f"optimizers compared on {short(comparison.task)}"
    return Section(file.stem, kind, _statement(comparison, ranked), join(body))


def _check(comparison: Comparison) -> None:
    steps, seeds = comparison.horizon, comparison.seeds
    if type(steps) is not int or not 0 < steps < 2**53 or not isinstance(seeds, list):
        raise ValueError(f"horizon is {steps!r} and seeds {short(seeds)}")
    if not 0 < len(comparison.curves) <= _MOST:
        raise ValueError(f"{len(comparison.curves)} optimizers; expected 1 to {_MOST}")
    shape = (len(seeds), len(part_ends(steps)))
    for name, curves in comparison.curves.items():
        if not curves.train.shape == curves.heldout.shape == shape or not len(seeds):
            raise ValueError(f"{short(name)}: curves of shape {curves.train.shape}, not {shape}")
        if not isinstance(comparison.notes, dict) or not isinstance(
            comparison.notes.get(name), dict
        ):
            raise ValueError(f"{short(name)}: no notes")


def _order(curves: Curves) -> float:
    """By the last losses of networks that did not diverge; where all did, at the end."""
    last = curves.last[drawable(curves.last)]
    return float(last.mean()) if len(last) else np.inf


def _statement(comparison: Comparison, ranked: list[str]) -> str:
    best = ranked[0]
    curves = comparison.curves[best]
    head = (
        f"{_count(ranked, 'optimizer')} on {_count(comparison.seeds, 'fresh network')} of "
        f"{short(comparison.task)}{_on(comparison)}, trained for {comparison.horizon:,} steps."
    )
    if not np.isfinite(_order(curves)):
        return f"{head} All of them diverge."
    lost = [title(name) for name in ranked if not drawable(comparison.curves[name].last).all()]
    worse = f" Some or all networks diverge with {'; '.join(lost)}." if lost else ""
    return (
        f"{head} {title(best)} ends with the lowest training loss, {_mean(curves.last)} over "
        f"the last tenth.{worse}"
    )


def _count(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}" if len(things) == 1 else f"{len(things)} {noun}s"


def _on(comparison: Comparison) -> str:
    return f" ({short(comparison.dataset)})" if comparison.dataset else ""


def _chart(comparison: Comparison, ranked: list[str], name: str, part: str) -> Chart:
    values = [getattr(comparison.curves[each], part) for each in ranked]
    ranges = [_range(losses) for losses in values]
    highest = _highest(ranges)
    note = _notes(values, highest, len(comparison.seeds))
    log = _far_apart([np.minimum(losses, highest) for losses in values])
    chart = Chart(name, Axis("step"), Axis("loss", log=log), note=note)
    steps = part_ends(comparison.horizon)
    order = list(comparison.curves)
    for each, spread in zip(ranked, ranges, strict=True):
        low, middle, high = (np.minimum(losses, highest) for losses in spread)
        colour = order.index(each) % COLOURS
        chart.add(Line(title(each), steps, middle, colour, low=low, high=high))
    return chart


def _range(losses: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The least, median and greatest of the networks that have a loss."""
    sound = drawable(losses)
    some = sound.any(axis=0)
    low = np.where(sound, losses, np.inf).min(axis=0)
    high = np.where(sound, losses, -np.inf).max(axis=0)
    middle = np.full(losses.shape[1], np.nan)
    middle[some] = np.nanmedian(np.where(sound, losses, np.nan)[:, some], axis=0)
    return np.where(some, low, np.nan), middle, np.where(some, high, np.nan)


def _highest(ranges: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> float:
    """The loss at which curves are cut off: twice the first, so that one explosion hides none."""
    first = np.array([middle[0] for _, middle, _ in ranges])
    first = first[drawable(first, log=True)]
    return 2 * float(first.max()) if len(first) else np.inf


def _notes(values: list[np.ndarray], highest: float, seeds: int) -> str:
    """What the drawing does not show by itself."""
    every = np.concatenate([losses.ravel() for losses in values])
    cut = int(np.sum(drawable(every) & (every > highest)))
    lost = int(np.sum(~drawable(every)))
    notes = {
        f"Median of {seeds} networks; the band is their range.": seeds > 1,
        f"{cut:,} of {every.size:,} losses are above {highest:.3g} and cut off there.": cut,
        f"{lost:,} of {every.size:,} losses are not finite and left out.": lost,
    }
    return " ".join(note for note, is_said in notes.items() if is_said)


def _far_apart(values: list[np.ndarray]) -> bool:
    flat = np.concatenate([x.ravel() for x in values])
    flat = flat[drawable(flat)]
    return bool(len(flat) and flat.min() > 0 and flat.max() / flat.min() > 3)


def _losses_table(comparison: Comparison, ranked: list[str]) -> Html:
    rows = []
    for name in ranked:
        curves = comparison.curves[name]
        losses = (curves.train.mean(axis=1), curves.last, curves.last_heldout)
        lost = int(np.sum(~drawable(curves.last)))
        notes = comparison.notes[name].items()
        about = ", ".join(f"{short(key)} {_note(value)}" for key, value in notes)
        diverged = f"{lost} of {len(curves.last)}" if lost else "none"
        rows.append([title(name), *map(_mean, losses), diverged, about])
    heads = ["training", "last tenth", "held out, last tenth", "diverged", "notes"]
    caption = "Losses: mean ± standard error over networks that did not diverge, best first."
    return table(["optimizer", *heads], rows, caption)


def _note(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else short(value)


def _mean(values: np.ndarray) -> str:
    values = values[drawable(values)]
    if not len(values):
        return "none"
    error = f" ± {values.std(ddof=1) / len(values) ** 0.5:.4f}" if len(values) > 1 else ""
    return f"{values.mean():.4f}{error}"
