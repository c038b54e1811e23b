"""Charts as inline SVG, in the colours of the page: lines, points and bars on two axes."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ._html import Html, join, tag
from ._marks import Line, Mark, Points, Rule, Space
from ._scales import Scale, drawable, spread_out

WIDTH, HEIGHT = 460.0, 290.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 54.0, 16.0, 30.0, 42.0
_CHARACTER, _LINE = 6.2, 14.0
_LONGEST = 19
"""Characters of a label beside a line."""


@dataclass(frozen=True)
class Axis:
    """What an axis shows.

    Args:
        label: its name, with the unit.
        log: whether by powers of ten.
        whole: whether only whole numbers get ticks.
        low: where it begins, if no number is less.
    """

    label: str
    log: bool = False
    whole: bool = False
    low: float | None = None

    def scale(self, values: Sequence[np.ndarray]) -> Scale:
        """The scale that holds values."""
        least = [] if self.low is None else [np.array([self.low])]
        every = np.concatenate([*map(np.ravel, values), *least])
        scale = Scale.around(every, log=self.log, whole=self.whole)
        if self.low is None or np.any(every < self.low):
            return scale
        return replace(scale, low=self.low)


@dataclass
class Chart:
    """One figure of a page: a title, a drawing, and what is left out of it.

    >>> chart = Chart("Loss", Axis("step"), Axis("loss"))
    >>> chart.add(Line("run", np.arange(3), np.array([3.0, 2.0, np.nan])))
    >>> figure = chart.html()
    >>> "1 value left out" in figure, figure.count('class="tick ')
    (True, 11)
    """

    title: str
    x: Axis
    y: Axis
    note: str = ""
    square: bool = False
    marks: list[Mark] = field(default_factory=list)

    def add(self, *marks: Mark) -> None:
        """Draw something more."""
        self.marks.extend(marks)

    def html(self) -> Html:
        """The figure."""
        notes = [self.note] if self.note else []
        notes += [note for mark in self.marks if (note := mark.thinned())]
        if lost := sum(self._lost(mark) for mark in self.marks):
            why = " or not positive" if self.x.log or self.y.log else ""
            noun = "value" if lost == 1 else "values"
            notes.append(f"{lost:,} {noun} left out: not finite{why}.")
        below = [tag("p", " ".join(dict.fromkeys(notes)), class_="note")] if notes else []
        return tag("figure", tag("figcaption", self.title), self._svg(), *below)

    def _lost(self, mark: Mark) -> int:
        """How many numbers cannot be drawn; a line behind another has the same ones."""
        if isinstance(mark, Rule) or (isinstance(mark, Line) and mark.faint):
            return 0
        return int(np.sum(~self._sound(mark)))

    def _sound(self, mark: Mark) -> np.ndarray:
        return drawable(mark.x, log=self.x.log) & drawable(mark.y, log=self.y.log)

    def _svg(self) -> Html:
        known = [mark for mark in self.marks if mark.label and self._sound(mark).any()]
        named = [mark for mark in known if isinstance(mark, Line | Rule)]
        groups = [mark for mark in known if isinstance(mark, Points)]
        longest = max((min(len(mark.label), _LONGEST) for mark in named), default=0)
        right = WIDTH - _RIGHT - longest * _CHARACTER
        legend, rows = _legend(groups)
        top = _TOP + 18 * rows
        x, y = (axis.scale(self._values(i)) for i, axis in enumerate((self.x, self.y)))
        place = Space(x, y, _LEFT, right, HEIGHT - _BOTTOM, top)
        drawn = join(mark.draw(place) for mark in self.marks)
        return tag(
            "svg",
            *_grid(place),
            tag("text", self.y.label, x=4, y=14, class_="axis"),
            tag("text", self.x.label, x=right, y=HEIGHT - 6, class_="axis end"),
            legend,
            drawn,
            _labels(named, place),
            viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}",
            role="img",
            aria_label=self._spoken(),
        )

    def _values(self, axis: int) -> list[np.ndarray]:
        """All numbers along an axis; of a square chart, those along both."""
        both = [value for mark in self.marks for value in mark.extent()]
        return both if self.square else both[axis::2]

    def _spoken(self) -> str:
        names = ", ".join(dict.fromkeys(mark.label for mark in self.marks if mark.label))
        which = f" of {names}" if names else ""
        return f"{self.title}: {self.y.label} against {self.x.label}{which}"


def _grid(place: Space) -> list[Html]:
    """Lines and numbers at the ticks."""
    parts = []
    for tick, label in zip(place.y.ticks(), place.y.labels(), strict=True):
        at = place.down(tick)
        parts.append(tag("line", x1=place.left, x2=place.right, y1=at, y2=at, class_="grid"))
        parts.append(tag("text", label, x=place.left - 6, y=at + 4, class_="tick end"))
    labels, wide = place.x.labels(), (place.right - place.left) / _CHARACTER
    skip = -(-sum(len(label) + 2 for label in labels) // int(wide))
    for i, (tick, label) in enumerate(zip(place.x.ticks(), labels, strict=True)):
        at = place.across(tick)
        parts.append(tag("line", x1=at, x2=at, y1=place.bottom, y2=place.bottom + 4, class_="base"))
        if i % skip == 0:
            parts.append(tag("text", label, x=at, y=place.bottom + 17, class_="tick middle"))
    base = tag(
        "line", x1=place.left, x2=place.right, y1=place.bottom, y2=place.bottom, class_="base"
    )
    return [*parts, base]


def _legend(groups: Sequence[Points]) -> tuple[Html, int]:
    """Names of groups of points, in rows above them, and how many rows there are."""
    parts: list[Html] = []
    x, y = _LEFT, 34
    for group in groups:
        width = 26 + len(group.label) * _CHARACTER
        if x > _LEFT and x + width > WIDTH:
            x, y = _LEFT, y + 18
        dot = tag("circle", cx=x + 4, cy=y - 4, r=4, class_="dot")
        name = tag("text", group.label, x=x + 12, y=y, class_="label")
        parts.append(tag("g", dot, name, class_=f"c{group.colour}"))
        x += width
    return join(parts), (y - 16) // 18 if groups else 0


def _labels(marks: Sequence[Line | Rule], place: Space) -> Html:
    """Names beside the ends of lines, moved apart where they would overlap."""
    ends = [mark.end(place) for mark in marks]
    places = spread_out([y for _, y in ends], _LINE, place.top, place.bottom)
    parts = []
    for mark, (x, y), at in zip(marks, ends, places, strict=True):
        short = mark.label if len(mark.label) <= _LONGEST else f"{mark.label[: _LONGEST - 1]}…"
        leader = f"M{x + 2:.1f} {y:.1f}L{place.right + 5:.1f} {at:.1f}"
        parts.append(
            tag(
                "g",
                tag("title", mark.label),
                tag("path", d=leader, class_="leader"),
                tag("text", short, x=place.right + 8, y=at + 4, class_="label"),
                class_=f"c{mark.colour}",
            )
        )
    return join(parts)
