"""Axes: from numbers to places, with ticks at round numbers."""

import math
from dataclasses import dataclass

import numpy as np

LARGEST = 1e100
"""Numbers beyond are not drawn, like those that are not finite."""
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Scale:
    """An axis that covers low to high, evenly or by powers of ten.

    Args:
        low: the least number.
        high: the greatest.
        log: whether equal distances are equal ratios.
        whole: whether only whole numbers get ticks.
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False

    @classmethod
    def around(
        cls, values: np.ndarray, *, log: bool = False, whole: bool = False, room: float = 0.04
    ) -> "Scale":
        """An axis with some room on both sides of values, of which there may be none."""
        values = values[drawable(values, log=log)]
        low, high = (float(values.min()), float(values.max())) if len(values) else (1.0, 10.0)
        if log:
            room = max(room * math.log10(high / low), 0.1 if high / low < 1.3 else 0.0)
            return cls(low / 10**room, high * 10**room, log, whole)
        if high - low <= 1e-9 * max(abs(low), abs(high)):
            room = abs(high) * 0.1 or 0.5
        else:
            room *= high - low
        room = max(room, 0.5) if whole and high - low < 1 else room
        return cls(low - room, high + room, log, whole)

    def place(self, value: float) -> float:
        """Where a number is, from 0 to 1."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round numbers, about five.

        >>> Scale(0.0, 1.0).ticks(), Scale(1e-4, 1e-2, log=True).ticks()
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0001, 0.001, 0.01])
        """
        return self._log_ticks() if self.log else self._even_ticks(self.low, self.high)

    def labels(self) -> list[str]:
        """The ticks as text, with as many decimals as tell them apart.

        >>> Scale(0.0, 6e4).labels()[-1], Scale(1e-7, 1e-5, log=True).labels()
        ('60,000', ['10⁻⁷', '10⁻⁶', '10⁻⁵'])
        """
        ticks = self.ticks()
        if self.log:
            return [_power(tick) for tick in ticks]
        largest = max(map(abs, ticks), default=0.0)
        step = ticks[1] - ticks[0] if len(ticks) > 1 else largest or 1.0
        last = math.floor(math.log10(step) + 1e-9)
        if largest >= 1e7 or 0 < largest < 1e-3:
            digits = math.floor(math.log10(largest)) - last + 1
            return [f"{tick:.{max(1, digits)}g}" for tick in ticks]
        return [f"{tick:,.{max(0, -last)}f}".replace("-", "−") for tick in ticks]

    def _even_ticks(self, low: float, high: float) -> list[float]:
        rough = (high - low) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = min((m * power for m in (1, 2, 5, 10)), key=lambda s: abs(math.log(s / rough)))
        step = max(1.0, step) if self.whole else step
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        return [float(f"{i * step:.12g}") for i in range(first, min(last, first + 12) + 1)]

    def _log_ticks(self) -> list[float]:
        low, high = math.log10(self.low) - 1e-9, math.log10(self.high) + 1e-9
        powers = range(math.ceil(low), math.floor(high) + 1)
        if len(powers) >= 2:
            return [10.0**power for power in powers[:: -(-len(powers) // 6)]]
        decades = range(math.floor(low), math.ceil(high))
        for factors in ((1, 2, 5), (1, 1.5, 2, 3, 4, 6, 8)):
            ticks = [factor * 10.0**power for power in decades for factor in factors]
            ticks = [tick for tick in ticks if low <= math.log10(tick) <= high]
            if len(ticks) >= 3:
                return ticks
        return self._even_ticks(self.low, self.high)


def drawable(values: np.ndarray, *, log: bool = False) -> np.ndarray:
    """Which numbers have a place on an axis."""
    values = np.asarray(values, float)
    sound = np.isfinite(values) & (np.abs(values) < LARGEST)
    return sound & (values > 1 / LARGEST) if log else sound


def spread_out(wanted: list[float], gap: float, low: float, high: float) -> list[float]:
    """Places near those wanted, in the same order, at least a gap apart where there is room.

    >>> spread_out([5.0, 5.0, 50.0], 10.0, 0.0, 60.0)
    [0.0, 10.0, 50.0]
    """
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    groups: list[tuple[float, int]] = []  # middle and count of those that touch, and move as one
    for i in order:
        groups.append((wanted[i], 1))
        while len(groups) > 1:
            (a, n), (b, m) = groups[-2:]
            above, below = (_inside(*group, gap, low, high) for group in groups[-2:])
            if below - above >= gap * (n + m) / 2 - 1e-9:
                break
            groups[-2:] = [((a * n + b * m) / (n + m), n + m)]
    places = [
        _inside(middle, count, gap, low, high) + gap * (k - (count - 1) / 2)
        for middle, count in groups
        for k in range(count)
    ]
    return [place for _, place in sorted(zip(order, places, strict=True))]


def _inside(middle: float, count: int, gap: float, low: float, high: float) -> float:
    half = gap * (count - 1) / 2
    return float(min(max(middle, low + half), high - half))


def _power(tick: float) -> str:
    if 1e-3 <= tick < 1e5:
        return f"{tick:,.6g}"
    exponent = math.floor(math.log10(tick) + 1e-9)
    factor = tick / 10.0**exponent
    power = "10" + str(exponent).translate(_SUPERSCRIPTS)
    return power if abs(factor - 1) < 1e-6 else f"{factor:.3g}·{power}"
