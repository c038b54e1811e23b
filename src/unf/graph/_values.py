"""Abstract values: what is known about the axes of every array in a computation."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from ._expressions import (
    Expr,
    Family,
    Reason,
    Uniform,
    Variable,
    find_families,
    new_axis,
    product,
    resolve,
    same,
    variables,
)
from ._unification import collapse, outer_factor, split, unify, unify_all

INPUTS = 1
"""In `Value.sources`: depends on inputs. The bits above it stand for the parameters."""
_SPLIT = Reason("split by a reshape")


@dataclass(frozen=True)
class Segment:
    """Consecutive dimensions that share one expression, which is split only when needed."""

    expr: Expr
    sizes: tuple[int, ...]
    reason: Reason = _SPLIT

    def axes(self) -> list[Expr]:
        """One expression per dimension."""
        exprs, rest = [], self.expr
        for size in self.sizes[:-1]:
            first, rest = split(rest, size, self.reason)
            exprs.append(first)
        return [*exprs, rest]


class Value:
    """An array whose entries depend on parameters or inputs.

    Attributes:
        segments: its dimensions, in the order in which they are stored.
        order: for each dimension its position among those of the segments, if it is another.
        is_parameter: whether it is a parameter, at most transposed or mapped element by element.
        sources: what it depends on, as a bit mask: `INPUTS`, then a bit for each parameter.
        is_view: whether its entries are some of a parameter's.
        is_read: whether an operation has done more than to take another view of it.
    """

    sources = 0
    is_view = is_read = False
    order: tuple[int, ...] | None = None

    def __init__(
        self,
        segments: Sequence[Segment],
        is_parameter: bool = False,
        order: tuple[int, ...] | None = None,
    ):
        self.segments = tuple(segments)
        self.is_parameter = is_parameter
        self.order = order

    @classmethod
    def of(cls, axes: Sequence[Expr], is_parameter: bool = False) -> "Value":
        """A value with these axes."""
        return cls([Segment(expr, (expr.size,)) for expr in axes], is_parameter)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self._ordered([size for s in self.segments for size in s.sizes]))

    @property
    def ndim(self) -> int:
        """Its number of dimensions."""
        return len(self.shape)

    @property
    def axes(self) -> list[Expr]:
        """One expression per dimension; this splits what a reshape left unsplit."""
        found = [expr for segment in self.segments for expr in segment.axes()]
        return self._ordered([resolve(expr) for expr in found])

    def _ordered(self, of_segments: list) -> list:
        return of_segments if self.order is None else [of_segments[i] for i in self.order]

    def copy(self) -> "Value":
        """Another value with the same axes."""
        return Value(self.segments, self.is_parameter, self.order)

    @property
    def exprs(self) -> list[Expr]:
        """Its expressions, unsplit."""
        return [segment.expr for segment in self.segments]

    @property
    def known(self) -> np.ndarray | None:
        """Its entries, if they can be computed now."""
        return None


class Constant(Value):
    """An array that depends on neither parameters nor inputs, computed when its entries matter.

    `describe` returns its axes without knowing its entries, `compute` returns the entries.
    """

    LIMIT = 2**20

    def __init__(
        self,
        shape: Sequence[int],
        describe: Callable[[], Sequence[Expr]],
        compute: Callable[[], Any],
    ):
        self._shape = tuple(shape)
        self._describe, self._compute = describe, compute
        self._entries: Any = None
        self._segments: tuple[Segment, ...] | None = None
        self.is_parameter = False

    @classmethod
    def of_entries(cls, entries: Any) -> "Constant":
        """A constant whose entries are known already."""
        shape = np.shape(entries)
        return cls(shape, lambda: [new_axis(n, fixed=CONSTANT) for n in shape], lambda: entries)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self._shape

    @property
    def segments(self) -> tuple[Segment, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Its dimensions, with uniform axes where the entries show it."""
        if self._segments is None:
            axes = list(self._describe())
            if not all(isinstance(resolve(expr), Uniform) for expr in axes):
                entries = self.known
                axes = axes if entries is None else axes_of_entries(entries)
            self._segments = tuple(Segment(expr, (expr.size,)) for expr in axes)
        return self._segments

    @property
    def known(self) -> np.ndarray | None:
        """Its entries, if they can be computed and are not too many."""
        if prod(self._shape) > self.LIMIT:
            return None
        try:
            entries = self.raw()
        except Exception:  # operations may fail in any way: not knowing is always sound
            return None
        return entries if isinstance(entries, np.ndarray) else None

    def raw(self) -> Any:
        """Its entries as computed: a NumPy array, or something else such as a random key."""
        if self._entries is None:
            self._entries = self._compute()
            if not isinstance(self._entries, np.ndarray) and _is_plain(self._entries):
                self._entries = np.asarray(self._entries)
        return self._entries


def _is_plain(entries: Any) -> bool:
    dtype = getattr(entries, "dtype", None)
    return dtype is None or isinstance(dtype, np.dtype)


CONSTANT = Reason("combined with a constant whose entries differ along it")


def axes_of_entries(entries: np.ndarray) -> list[Expr]:
    """The axes of a constant: uniform, a shared variable for a scaled identity, else fixed.

    An axis is judged factor by factor: where a pattern is tiled, or its elements are repeated,
    the axis is a product of the pattern's and uniform factors.
    """
    if not entries.size:
        return [Uniform(size) for size in entries.shape]
    factors = []
    for i in range(entries.ndim):
        tiles, entries = _without_tiles(entries, i)
        repeats, entries = _without_repeats(entries, i)
        factors.append((Uniform(tiles), Uniform(repeats)))
    patterns = [new_axis(size, fixed=CONSTANT) for size in entries.shape]
    varying = [i for i, size in enumerate(entries.shape) if size > 1]
    if len(varying) == 2 and _is_scaled_identity(entries, *varying):
        patterns[varying[0]] = patterns[varying[1]] = Variable(entries.shape[varying[0]])
    return [
        product([tiles, pattern, repeats])
        for (tiles, repeats), pattern in zip(factors, patterns, strict=True)
    ]


def _without_tiles(entries: np.ndarray, i: int) -> tuple[int, np.ndarray]:
    """How often a pattern is repeated as a whole along an axis, and the pattern."""

    def tiled(rows: np.ndarray, period: int) -> bool:
        return _equal(rows[period:], rows[:-period])

    rows = np.moveaxis(entries, i, 0)
    for period in _divisors(len(rows)):
        if tiled(_two_columns(rows), period) and tiled(rows, period):
            return len(rows) // period, np.moveaxis(rows[:period], 0, i)
    return 1, entries


def _without_repeats(entries: np.ndarray, i: int) -> tuple[int, np.ndarray]:
    """How often each element is repeated along an axis, and the elements once."""

    def repeated(rows: np.ndarray, times: int) -> bool:
        return _equal(rows, np.repeat(rows[::times], times, axis=0))

    rows = np.moveaxis(entries, i, 0)
    for number in _divisors(len(rows)):
        times = len(rows) // number
        if repeated(_two_columns(rows), times) and repeated(rows, times):
            return times, np.moveaxis(rows[::times], 0, i)
    return 1, entries


def _two_columns(rows: np.ndarray) -> np.ndarray:
    """The first and the last of all columns, which show most differences at once."""
    return np.stack([rows[(slice(None), *[k] * (rows.ndim - 1))] for k in (0, -1)], 1)


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n) if n % d == 0]


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether arrays have equal bits: zeros have a sign, and NaN equals itself."""
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def _is_scaled_identity(entries: np.ndarray, i: int, j: int) -> bool:
    """Whether entries are `a δ_ij + b` along two axes, constant along all others."""
    n = entries.shape[i]
    if entries.shape[j] != n:
        return False
    index = [slice(None) if k in (i, j) else 0 for k in range(entries.ndim)]
    matrix = entries[tuple(index)]
    expected = np.full((n, n), matrix[0, 1], matrix.dtype)
    np.fill_diagonal(expected, matrix[0, 0])
    return _equal(matrix, expected)


def settle(x: Value, reason: Reason) -> Value:
    """The value without families of layers, its axes no longer free to become such.

    Rules that do not know about stacked layers get such values.
    """
    touch(x)
    if any(True for expr in x.exprs for _ in find_families(expr)):
        return Value.of([collapse(expr, reason) for expr in x.axes])
    return x


def touch(x: Value) -> None:
    """Let the axes of a value no longer become families of layers."""
    for expr in () if isinstance(x, Constant) else x.exprs:
        for variable in variables(expr):
            variable.touched = True


def settle_together(values: Sequence[Value], reason: Reason) -> list[Value]:
    """Values to be combined: families stay where all count layers along the same dimensions."""
    counted = [_layer_dimensions(x) for x in values]
    if not counted[0] or any(found.keys() != counted[0].keys() for found in counted):
        return [settle(x, reason) for x in values]
    for x, found in zip(values, counted, strict=True):
        touch(x)
        for dimension, index in found.items():
            unify(counted[0][dimension], index, reason)
    return list(values)


def _layer_dimensions(x: Value) -> dict[int, Variable]:
    """The dimensions that count layers, with their variables."""
    if isinstance(x, Constant) or any(len(segment.sizes) != 1 for segment in x.segments):
        return {}
    axes = x.axes
    counting = [resolve(family.index) for expr in axes for family in find_families(expr)]
    return {
        i: expr
        for i, expr in enumerate(axes)
        if isinstance(expr, Variable) and any(expr is index for index in counting)
    }


def stack_layers(rows: Sequence[Value], index: Variable, reason: Reason) -> Value:
    """A new first axis `index`; along the others, each of its elements keeps axes of its own."""
    settled = [settle(row, reason).axes for row in rows]
    axes = [
        column[0] if all(same(e, column[0]) for e in column) else Family(index, column)
        for column in zip(*settled, strict=True)
    ]
    return Value.of([index, *axes])


def relabel(x: Value, dimensions: Sequence[int | Uniform]) -> Value:
    """A value with other dimensions: for each, one of x or a new uniform one.

    Those of x that are left out have size one. What a reshape left unsplit stays unsplit.
    """
    if all(len(segment.sizes) == 1 for segment in x.segments):
        axes = x.axes
        return Value.of([axes[d] if isinstance(d, int) else d for d in dimensions], x.is_parameter)
    order = x.order or tuple(range(x.ndim))
    kept = [order[d] for d in dimensions if isinstance(d, int)]
    new, places, start = [], {}, 0
    for segment in x.segments:
        inside = [i for i in range(start, start + len(segment.sizes)) if i in kept]
        if inside or segment.expr.size > 1:
            places.update({i: (len(new), k) for k, i in enumerate(inside)})
            sizes = tuple(segment.sizes[i - start] for i in inside)
            new.append(Segment(segment.expr, sizes, segment.reason))
        start += len(segment.sizes)
    wanted = []
    for d in dimensions:
        if isinstance(d, int):
            wanted.append(places[order[d]])
        else:
            wanted.append((len(new), 0))
            new.append(Segment(d, (d.size,)))
    return _sorted_segments(new, wanted, x.is_parameter)


def _sorted_segments(
    segments: list[Segment], wanted: list[tuple[int, int]], is_parameter: bool
) -> Value:
    """Dimensions given by segment and position inside; segments are sorted by first dimension."""
    sequence = list(dict.fromkeys(segment for segment, _ in wanted))
    stored = [(s, k) for s in sequence for k in range(len(segments[s].sizes))]
    position = {place: i for i, place in enumerate(stored)}
    order = tuple(position[place] for place in wanted)
    in_order = order == tuple(range(len(order)))
    return Value([segments[s] for s in sequence], is_parameter, None if in_order else order)


def reduce_axes(x: Value, dropped: Collection[int]) -> Value:
    """A value without some dimensions; of an unsplit axis only its last factors can drop out."""
    order = x.order or tuple(range(x.ndim))
    flat = {order[d] for d in dropped}
    segments, places, start = [], {}, 0
    for segment in x.segments:
        gone = [start + k in flat for k in range(len(segment.sizes))]
        number = gone.index(True) if any(gone) else len(gone)
        if not all(gone[number:]):
            return Value.of([expr for i, expr in enumerate(x.axes) if i not in dropped])
        sizes, expr = segment.sizes[:number], segment.expr
        if any(gone):
            expr = outer_factor(expr, prod(sizes), segment.reason)
        places.update({start + k: (len(segments), k) for k in range(number)})
        segments.append(Segment(expr, sizes, segment.reason))
        start += len(segment.sizes)
    kept = [places[order[d]] for d in range(x.ndim) if d not in dropped]
    return _sorted_segments(segments, kept, False)


def combine_axes(values: Sequence[Value], shape: Sequence[int], reason: Reason) -> Value:
    """The axes of an element-wise combination; scalars and axes of size one broadcast.

    Dimensions that are unsplit in one value are merged in all of them.
    """
    values = [value for value in values if value.ndim]
    if not values:
        return Value.of([Uniform(size) for size in shape])
    order = next((x.order for x in values if x.order is not None), None)
    if order is not None:
        stored = [order.index(i) for i in range(len(order))]
        values, shape = [relabel(x, stored) for x in values], [shape[i] for i in stored]
    if any(x.order is not None for x in values):
        values = [Value.of(x.axes) for x in values]
    ends = set.intersection(*({*accumulate(len(s.sizes) for s in x.segments)} for x in values))
    segments, start = [], 0
    for end in sorted(ends):
        sizes = tuple(shape[start:end])
        exprs = [_merged(x, start, end, sizes) for x in values]
        segments.append(Segment(unify_all(exprs, reason), sizes, _SPLIT))
        start = end
    return Value(segments, order=order)


def _merged(x: Value, start: int, end: int, sizes: tuple[int, ...]) -> Expr:
    """Some dimensions, each of its size or of size one, as one expression."""
    found, position = [], 0
    for segment in x.segments:
        if start <= position < end:
            wanted = sizes[position - start :][: len(segment.sizes)]
            if wanted == segment.sizes:
                found.append(segment.expr)
            else:
                axes = zip(segment.axes(), wanted, strict=True)
                found.extend(e if e.size == size else Uniform(size) for e, size in axes)
        position += len(segment.sizes)
    return product(found)


def unify_axes(values: Sequence[Value], reason: Reason) -> list[Expr]:
    """The axes of an element-wise combination; scalars and axes of size one broadcast."""
    values = [value for value in values if value.ndim]
    if not values:
        return []
    joined = list(values[0].axes)
    for value in values[1:]:
        for i, expr in enumerate(value.axes):
            joined[i] = _meet(joined[i], expr, reason)
    return [resolve(expr) for expr in joined]


def _meet(a: Expr, b: Expr, reason: Reason) -> Expr:
    if a.size == b.size:
        return unify(a, b, reason)
    wide, narrow = (a, b) if a.size > b.size else (b, a)
    assert narrow.size == 1
    return wide
