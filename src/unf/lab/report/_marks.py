"""What charts are made of: lines with a spread, points, bars and reference lines."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ._html import Html, join, tag
from ._scales import Scale, drawable

MOST_POINTS = 2000
MOST_STEPS = 1000
_WITH_TITLES = 300
"""So many points are told apart by what they say when pointed at."""


@dataclass(frozen=True)
class Space:
    """The part of a drawing in which numbers have places."""

    x: Scale
    y: Scale
    left: float
    right: float
    bottom: float
    top: float

    def across(self, x: float) -> float:
        """The place of a number from left to right."""
        return self.left + self.x.place(x) * (self.right - self.left)

    def down(self, y: float) -> float:
        """The place of a number from top to bottom."""
        return self.bottom - self.y.place(y) * (self.bottom - self.top)

    def shows(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Which points can be drawn."""
        return drawable(x, log=self.x.log) & drawable(y, log=self.y.log)


@dataclass(frozen=True)
class Mark(ABC):
    """Points of a plane, and how they are drawn."""

    label: str
    x: np.ndarray
    y: np.ndarray
    colour: int = 0

    def __post_init__(self):
        for name in ("x", "y"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), float))

    def extent(self) -> tuple[np.ndarray, np.ndarray]:
        """What has to be on the axes."""
        return self.x, self.y

    def thinned(self) -> str:
        """What to tell about numbers that are not drawn for their number."""
        return ""

    @abstractmethod
    def draw(self, place: Space) -> Html:
        """As SVG."""


@dataclass(frozen=True)
class Line(Mark):
    """A curve; places without a number are gaps.

    Args:
        label: its name, beside its end; none: it has none.
        low: where its spread begins.
        high: where its spread ends.
        faint: whether it stands behind others.
        dots: whether its points are marked, and say what they are.
    """

    low: np.ndarray | None = None
    high: np.ndarray | None = None
    faint: bool = False
    dots: bool = False

    def extent(self) -> tuple[np.ndarray, np.ndarray]:
        """The curve and its spread."""
        spread = [end for end in (self.low, self.high) if end is not None]
        return self.x, np.concatenate([self.y, *spread])

    def thinned(self) -> str:
        """Whether every number is drawn."""
        if len(self.x) <= MOST_STEPS or self.faint:
            return ""
        return f"{len(self.x):,} numbers, thinned to the least and greatest of every few."

    def end(self, place: Space) -> tuple[float, float]:
        """Where its name can be written; some of it has to be drawn."""
        last = np.flatnonzero(place.shows(self.x, self.y))[-1]
        return place.across(float(self.x[last])), place.down(float(self.y[last]))

    def draw(self, place: Space) -> Html:
        """A path through what can be drawn, its spread behind it."""
        kept = _least_and_greatest(self.y, MOST_STEPS)
        x, y = self.x[kept], self.y[kept]
        parts = [self._band(place)] if self.low is not None else []
        path = "".join(_path(place, x[run], y[run]) for run in _runs(place.shows(x, y)))
        name = tag("title", self.label) if self.label else ""
        kind = "line faint" if self.faint else "line"
        parts.append(tag("path", name, d=path, class_=kind) if path else Html())
        if self.dots:
            parts.append(_circles(place, x, y, self.label, radius=3.0))
        return tag("g", *parts, class_=f"c{self.colour}")

    def _band(self, place: Space) -> Html:
        assert self.low is not None and self.high is not None
        low, high = self.low, self.high
        shown = place.shows(self.x, low) & place.shows(self.x, high)
        paths = [
            f"{_path(place, self.x[run], high[run])}"
            f"L{_path(place, self.x[run][::-1], low[run][::-1])[1:]}Z"
            for run in _runs(shown)
        ]
        return tag("path", d="".join(paths), class_="band") if paths else Html()


@dataclass(frozen=True)
class Points(Mark):
    """A cloud of points."""

    def thinned(self) -> str:
        """Whether all are drawn."""
        name = f" ({self.label})" if self.label else ""
        if len(self.x) <= MOST_POINTS:
            return ""
        return f"{MOST_POINTS:,} of {len(self.x):,} points{name} drawn, evenly chosen."

    def draw(self, place: Space) -> Html:
        """Circles that say what they are, or so many that one path is all of them."""
        kept = np.unique(np.linspace(0, len(self.x) - 1, min(len(self.x), MOST_POINTS)).astype(int))
        x, y = self.x[kept], self.y[kept]
        if len(x) <= _WITH_TITLES:
            cloud = _circles(place, x, y, self.label, radius=3.5)
        else:
            path = "".join(
                f"M{place.across(a):.1f} {place.down(b):.1f}h0" for a, b in _shown(place, x, y)
            )
            cloud = tag("path", d=path, class_="cloud")
        return tag("g", cloud, class_=f"c{self.colour}")


@dataclass(frozen=True)
class Bars(Mark):
    """Bars from zero, side by side: `x` are the left edges, the last bar ends at `until`."""

    until: float = 0.0

    def extent(self) -> tuple[np.ndarray, np.ndarray]:
        """Edges and heights."""
        return np.append(self.x, self.until), np.append(self.y, 0.0)

    def draw(self, place: Space) -> Html:
        """Rectangles that say what they count."""
        parts = []
        for low, high, count in zip(self.x, np.append(self.x[1:], self.until), self.y, strict=True):
            if not count:
                continue
            left, right, top = place.across(low), place.across(high), place.down(count)
            said = tag("title", f"{low:.4g} to {high:.4g}: {count:,.0f}")
            parts.append(
                tag("rect", said, x=left + 0.5, y=top, width=max(right - left - 1, 0.5),
                    height=max(place.bottom - top, 0.0), class_="bar")
            )  # fmt: skip
        return tag("g", *parts, class_=f"c{self.colour}")


@dataclass(frozen=True)
class Rule(Mark):
    """A dashed line to compare with, from the first of its points to the last."""

    def end(self, place: Space) -> tuple[float, float]:
        """Where a name can be written."""
        return place.right, min(max(place.down(self.y[-1]), place.top), place.bottom)

    def draw(self, place: Space) -> Html:
        """The line."""
        path = _path(place, self.x, self.y) if place.shows(self.x, self.y).all() else ""
        line = tag("path", tag("title", self.label), d=path, class_="rule")
        return tag("g", line, class_=f"c{self.colour}") if path else Html()


def level(label: str, y: float, x: np.ndarray, colour: int = 5) -> Rule:
    """A horizontal line as long as the numbers `x` reach."""
    sound = x[drawable(x)]
    ends = np.array([sound.min(), sound.max()]) if len(sound) else np.array([0.0, 1.0])
    return Rule(label, ends, np.full(2, y), colour)


def bars(values: np.ndarray, count: int = 30) -> Bars:
    """How many values lie in each of some equal intervals."""
    values = values[drawable(values)]
    if not len(values):
        return Bars("", np.zeros(1), np.zeros(1), until=1.0)
    low, high = float(values.min()), float(values.max())
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        low, high = low - 0.5, high + 0.5
    heights, edges = np.histogram(values, bins=count, range=(low, high))
    return Bars("", edges[:-1], heights.astype(float), until=float(edges[-1]))


def _circles(place: Space, x: np.ndarray, y: np.ndarray, label: str, radius: float) -> Html:
    name = f"{label}: " if label else ""
    return join(
        tag(
            "circle",
            tag("title", f"{name}{a:.4g}, {b:.4g}"),
            cx=place.across(a),
            cy=place.down(b),
            r=radius,
            class_="dot",
        )
        for a, b in _shown(place, x, y)
    )


def _shown(place: Space, x: np.ndarray, y: np.ndarray) -> Iterator[tuple[float, float]]:
    shown = place.shows(x, y)
    yield from zip(x[shown].tolist(), y[shown].tolist(), strict=True)


def _path(place: Space, x: np.ndarray, y: np.ndarray) -> str:
    points = [f"{place.across(a):.1f} {place.down(b):.1f}" for a, b in zip(x, y, strict=True)]
    return "M" + "L".join(points if len(points) > 1 else points * 2)


def _runs(shown: np.ndarray) -> Iterator[slice]:
    """Stretches without a gap."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], shown.astype(int), [0]])))
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        yield slice(int(first), int(last))


def _least_and_greatest(y: np.ndarray, most: int) -> np.ndarray:
    """The places of at most so many numbers: the extremes of every few, in their order."""
    if len(y) <= most:
        return np.arange(len(y))
    parts = np.array_split(np.arange(len(y)), most // 2)
    sound = np.where(np.isfinite(y), y, np.nan)
    kept = [
        part[[np.nanargmin(sound[part]), np.nanargmax(sound[part])]]
        for part in parts
        if np.isfinite(sound[part]).any()
    ]
    return np.unique(np.concatenate(kept)) if kept else np.arange(most)
