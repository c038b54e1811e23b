"""Slices, gathers and scatters: whole axes pass, sliced ones are cut, indexed ones are fixed."""

from collections.abc import Sequence
from math import prod

import numpy as np

from .._expressions import (
    Expr,
    Family,
    Reason,
    Uniform,
    Variable,
    children,
    concat,
    find_families,
    fix,
    fixed_axis,
    rebuild,
    resolve,
    variables,
)
from .._nesting import nested_so_far
from .._registry import Equation, register_rule
from .._unification import cut, split, unify
from .._values import Segment, Value, relabel, settle

MOST_LAYERS = 1024
"""A longer parameter that is indexed is more likely a table than stacked layers."""
MOST_KINDS = 4
"""Of a result, only a short axis counts different things, such as keys and values: what is taken
one by one no longer permutes, and the members of an ensemble should."""


@register_rule("slice", stackable=True)
def slice_(equation: Equation, x: Value) -> Value:
    """Cut the axis; a stride factors it."""
    starts, limits = equation.params["start_indices"], equation.params["limit_indices"]
    strides = equation.params["strides"] or (1,) * x.ndim
    for i, (start, limit, stride) in enumerate(zip(starts, limits, strides, strict=True)):
        if stride != 1:
            x = _take_strided(x, i, start, limit, stride, equation.reason)
        else:
            x = slice_axis(x, i, start, limit, equation.reason, equation.values)
    return x


def slice_axis(
    x: Value,
    dimension: int,
    start: int,
    limit: int,
    reason: Reason,
    seen: Sequence[Value] | None = None,
) -> Value:
    """x[..., start:limit, ...]: cut where the slice begins and ends.

    `seen` are all values so far; without them, only layers of parameters are told apart.
    """
    size = x.shape[dimension]
    if (start, limit) == (0, size):
        return x
    if start == limit:
        return Value.of([Uniform(0) if i == dimension else t for i, t in enumerate(x.axes)])
    if limit == start + 1:
        if seen is not None:
            _tell_apart(x, dimension, reason, seen)
        layer = _take_layer(x, dimension, start, reason)
        if layer is not None:
            return layer
    x = settle(x, reason)
    position = dimension if x.order is None else x.order[dimension]
    segments: list[Segment] = []
    for segment in x.segments:
        inside = position - sum(len(s.sizes) for s in segments)
        if 0 <= inside < len(segment.sizes):
            segments.extend(_slice_segment(segment, inside, start, limit, reason))
            position = -1
        else:
            segments.append(segment)
    return Value(segments, order=x.order)


def _slice_segment(
    segment: Segment, inside: int, start: int, limit: int, reason: Reason
) -> list[Segment]:
    """Split off the dimensions before the sliced one, and cut the rest at multiples."""
    before, (size, *after) = segment.sizes[:inside], segment.sizes[inside:]
    outer, rest = split(segment.expr, prod(before), segment.reason)
    inner = prod(after)
    ends = sorted({start * inner, limit * inner, size * inner} - {0})
    position, piece = 0, None
    for part in cut(rest, ends, reason):
        if position == start * inner:
            piece = part
        position += part.size
    assert piece is not None
    found = [Segment(outer, before, segment.reason)] if before else []
    return [*found, Segment(piece, (limit - start, *after), segment.reason)]


def _take_strided(
    x: Value, dimension: int, start: int, limit: int, stride: int, reason: Reason
) -> Value:
    """x[start::stride] of the whole axis is one column of a product; other strides fix it."""
    axes = settle(x, reason).axes
    expr, length = axes[dimension], -(-(limit - start) // stride)
    if expr.size % stride == 0 and start < stride and length == expr.size // stride:
        outer, inner = split(expr, length, reason)
        cut(inner, sorted({start, start + 1, stride} - {0}), reason)
        axes[dimension] = outer
    else:
        axes[dimension] = fixed_axis(length, reason, expr)
    return Value.of(axes)


def is_stacked(x: Value, dimension: int) -> bool:
    """Whether the axis counts layers: it did before, or it is a parameter's and untouched."""
    if any(len(segment.sizes) != 1 for segment in x.segments):
        return False
    axes = x.axes
    index = axes[dimension]
    if not isinstance(index, Variable) or index.size > MOST_LAYERS:
        return False
    if any(resolve(family.index) is index for t in axes for family in find_families(t)):
        return True
    return (
        x.is_parameter
        and len(axes) > 1
        and not index.touched
        and any(isinstance(t, Variable) and not t.touched and t is not index for t in axes)
    )


def _take_layer(x: Value, dimension: int, position: int, reason: Reason) -> Value | None:
    """One of several stacked layers, each with permutations of its own."""
    if not is_stacked(x, dimension):
        return None
    axes = x.axes
    index = axes[dimension]
    assert isinstance(index, Variable)
    fix(index, Reason("its entries are taken one by one", reason.where))
    taken: list[Expr] = []
    for i, expr in enumerate(axes):
        if i == dimension:
            taken.append(Uniform(1))
            continue
        if isinstance(expr, Variable) and not expr.touched and x.is_parameter:
            expr = _make_family(expr, index, reason)
        taken.append(_member(expr, index, position))
    return Value.of(taken, x.is_parameter)


def _make_family(v: Variable, index: Variable, reason: Reason) -> Family:
    members = tuple(Variable(v.size, f"{v.origin}[{n}]") for n in range(index.size))
    for member in members:
        member.layered = True
    family = Family(index, members)
    v.link, v.reason = family, reason
    return family


def _member(expr: Expr, index: Variable, position: int) -> Expr:
    """The expression with one member of each family along `index`."""
    expr = resolve(expr)
    if isinstance(expr, Family) and resolve(expr.index) is index:
        return expr.members[position]
    return rebuild(expr, [_member(child, index, position) for child in children(expr)])


def _tell_apart(x: Value, dimension: int, reason: Reason, seen: Sequence[Value]) -> None:
    """Give each index of an axis that is about to be indexed permutations of its own.

    As with nested axes, this is sound for axes that so far occur only together with that axis.
    """
    if x.shape[dimension] > MOST_KINDS or any(len(segment.sizes) != 1 for segment in x.segments):
        return
    index = x.axes[dimension]
    if not isinstance(index, Variable) or index.fixed or index.label or index.mixed:
        return
    beside = {v for i, e in enumerate(x.axes) if i != dimension for v in variables(e)} - {index}
    free = [v for v in beside if v.fixed is None and v.label is None]
    for v in nested_so_far(index, free, [value.exprs for value in seen]):
        _make_family(v, index, reason)


def take(
    x: Value, dimension: int, position: int, reason: Reason, seen: Sequence[Value] | None = None
) -> Value:
    """x[..., position, ...] without the axis."""
    taken = slice_axis(x, dimension, position, position + 1, reason, seen)
    found = relabel(taken, [i for i in range(x.ndim) if i != dimension])
    return Value(found.segments, x.is_parameter, found.order)


@register_rule("dynamic_slice", stackable=True)
def dynamic_slice(equation: Equation, x: Value, *starts: Value) -> Value:
    """A slice if its start is known; else the sliced axis is fixed."""
    sizes = equation.params["slice_sizes"]
    for i, (size, start) in enumerate(zip(sizes, starts, strict=True)):
        if size == x.shape[i]:
            continue
        known = start.known
        if known is not None:
            first = int(np.clip(known, 0, x.shape[i] - size))
            x = slice_axis(x, i, first, first + size, equation.reason, equation.values)
        else:
            axes = settle(x, equation.reason).axes
            axes[i] = fixed_axis(size, equation.reason, axes[i])
            x = Value.of(axes)
    return x


@register_rule("dynamic_update_slice")
def dynamic_update_slice(equation: Equation, x: Value, update: Value, *starts: Value) -> Value:
    """Whole axes permute together; the others are cut at known positions, or fixed."""
    triples = zip(x.axes, update.axes, starts, strict=True)
    return Value.of(
        [_overwrite(old, new, _at(start.known), equation.reason) for old, new, start in triples]
    )


def _overwrite(old: Expr, new: Expr, start: int | None, reason: Reason) -> Expr:
    """An axis of which the entries from `start`, if that is known, are combined with others."""
    if new.size == old.size:  # no other start is within bounds
        return unify(old, new, reason)
    stop = old.size if start is None else start + new.size
    if start is None or start < 0 or stop > old.size or not new.size:
        return fixed_axis(old.size, reason, old, new)
    parts = cut(old, sorted({start, stop, old.size} - {0}), reason)
    middle = 1 if start else 0
    return concat([*parts[:middle], unify(parts[middle], new, reason), *parts[middle + 1 :]])


def _at(known: np.ndarray | None) -> int | None:
    return None if known is None else int(known)


@register_rule("gather")
def gather(equation: Equation, x: Value, indices: Value) -> Value:
    """Whole axes pass, indexed ones are fixed, batching ones unify; others are the indices'."""
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    reason, shape = equation.reason, equation.out_shapes[0]
    passed = _batch_axes(x, indices, numbers, reason)
    offsets = []
    for i, expr in enumerate(x.axes):
        if i in numbers.operand_batching_dims:
            continue
        if sizes[i] < expr.size:
            expr = fixed_axis(sizes[i], reason, expr)
        if i not in numbers.collapsed_slice_dims:
            offsets.append(expr)
    batching = numbers.operand_batching_dims
    equation.note([*(t for i, t in enumerate(x.axes) if i not in batching), *passed])
    offset, batch = iter(offsets), iter(passed)
    return Value.of(
        [next(offset) if i in numbers.offset_dims else next(batch) for i in range(len(shape))]
    )


def _batch_axes(x: Value, indices: Value, numbers, reason: Reason) -> list[Expr]:
    """The axes of the indices except the last, which holds coordinates; some are the operand's."""
    axes = indices.axes[:-1]
    fix(indices.axes[-1], reason)
    pairs = zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    for of_operand, of_indices in pairs:
        axes[of_indices] = unify(x.axes[of_operand], axes[of_indices], reason)
    return axes


@register_rule(*(f"scatter{kind}" for kind in ("", "-add", "-mul", "-min", "-max", "-sub")))
def scatter(equation: Equation, x: Value, indices: Value, updates: Value) -> Value:
    """The reverse of a gather: Σ_u over rows u of the updates, each added where its index says.

    Whole windows and batching axes unify, partly overwritten axes are cut at known positions or
    fixed. Rows that overwrite each other have an order; rows that are summed have none.
    """
    numbers, reason = equation.params["dimension_numbers"], equation.reason
    windows = [updates.axes[i] for i in numbers.update_window_dims]
    rows = [e for i, e in enumerate(updates.axes) if i not in numbers.update_window_dims]
    rows = [unify(a, b, reason) for a, b in zip(indices.axes[:-1], rows, strict=True)]
    fix(indices.axes[-1], reason)
    batch = dict(
        zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)
    )
    summed = [row for j, row in enumerate(rows) if j not in batch.values()]
    if equation.primitive == "scatter" and not equation.params["unique_indices"]:
        for row in summed:
            fix(row, reason)
    equation.note([*x.axes, *summed])
    known = indices.known if prod(row.size for row in rows) == 1 else None
    starts = dict.fromkeys(range(x.ndim), None if known is None else 0)
    if known is not None:
        starts.update(
            zip(numbers.scatter_dims_to_operand_dims, map(int, known.ravel()), strict=True)
        )
    axes, window = [], iter(windows)
    for i, expr in enumerate(x.axes):
        if i in batch:
            axes.append(unify(expr, rows[batch[i]], reason))
            continue
        new = Uniform(1) if i in numbers.inserted_window_dims else next(window)
        axes.append(_overwrite(expr, new, starts.get(i), reason))
    return Value.of(axes)
