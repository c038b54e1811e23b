"""Moving, adding, dropping and merging axes."""

from collections.abc import Sequence
from math import prod

from .._expressions import (
    Expr,
    Family,
    Reason,
    Uniform,
    Variable,
    concat,
    fixed_axis,
    product,
    variables,
)
from .._registry import Equation, register_rule
from .._values import Segment, Value, reduce_axes, relabel, settle, unify_axes
from .indexing import slice_axis, take

REDUCTIONS = """
reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum reduce_xor
""".split()


@register_rule("transpose", stackable=True)
def transpose(equation: Equation, x: Value) -> Value:
    """The axes in another order."""
    return relabel(x, [int(i) for i in equation.params["permutation"]])


@register_rule("squeeze", stackable=True)
def squeeze(equation: Equation, x: Value) -> Value:
    """Axes of size one drop out."""
    dropped = {d % x.ndim for d in equation.params["dimensions"]}
    return relabel(x, [i for i in range(x.ndim) if i not in dropped])


@register_rule("broadcast_in_dim")
def broadcast_in_dim(equation: Equation, x: Value, *_: Value) -> Value:
    """New axes, and axes of size one that are made longer, are uniform."""
    shape = equation.out_shapes[0]
    dimensions: list[int | Uniform] = [Uniform(size) for size in shape]
    for i, target in enumerate(equation.params["broadcast_dimensions"]):
        if x.shape[i] == shape[target]:
            dimensions[target] = i
    result = relabel(x, dimensions)
    return Value(result.segments, order=result.order)


@register_rule("reshape")
def reshape(equation: Equation, x: Value, *_: Value) -> Value:
    """Merged axes are a product; a split waits until an operation needs the parts."""
    if equation.params.get("dimensions") is not None:
        x = Value.of([x.axes[i] for i in equation.params["dimensions"]])
    if x.order is not None:
        x = _with_units(x, equation.out_shapes[0])
        if x.shape == equation.out_shapes[0]:
            return x
        equation.note(x.axes)
        x = Value.of(x.axes)
    new, segments = list(equation.out_shapes[0]), list(x.segments)
    result: list[Segment] = []
    while new or segments:
        exprs, sizes, have, want = [], [], 1, 1
        while have != want or not sizes:
            if (have <= want and segments) or not new:
                segment = segments.pop(0)
                exprs.append(segment.expr)
                have *= prod(segment.sizes)
            else:
                sizes.append(new.pop(0))
                want *= sizes[-1]
            if not new and not segments:
                break
        if sizes:
            result.append(Segment(product(exprs), tuple(sizes), equation.reason))
    return Value(result)


def _with_units(x: Value, shape: Sequence[int]) -> Value:
    """The value with axes of size one where `shape` has them, and nowhere else."""
    longer = iter([i for i, size in enumerate(x.shape) if size != 1])
    if [n for n in x.shape if n != 1] != [n for n in shape if n != 1]:
        return x
    return relabel(x, [Uniform(1) if size == 1 else next(longer) for size in shape])


@register_rule(*REDUCTIONS, stackable=True)
def reduce(equation: Equation, x: Value) -> Value:
    """Σ_i x_ij does not depend on the order of i: the axis drops out."""
    axes = equation.params["axes"]
    if len(axes) < x.ndim:  # a sum over layers has one permutation for all of them
        x = settle(x, equation.reason)
    return reduce_axes(x, axes)


@register_rule("reduce")
def reduce_by(equation: Equation, *operands: Value) -> list[Value]:
    """A reduction by a given function, which must not depend on the order either."""
    axes = equation.params["dimensions"]
    arrays = operands[: len(operands) // 2]  # the others are initial values
    joined = unify_axes(arrays, equation.reason)
    kept = [expr for i, expr in enumerate(joined) if i not in axes]
    return [Value.of(kept) for _ in arrays]


@register_rule("concatenate")
def concatenate(equation: Equation, *operands: Value) -> Value:
    """One axis is a concatenation; the others permute together."""
    dimension = equation.params["dimension"]
    rows = [operand.axes for operand in operands]
    joined = concat([row[dimension] for row in rows])
    others = [
        Value.of([Uniform(1) if i == dimension else expr for i, expr in enumerate(row)])
        for row in rows
    ]
    axes = unify_axes(others, equation.reason)
    axes[dimension] = joined
    return Value.of(axes)


@register_rule("stack")
def stack(equation: Equation, *operands: Value) -> Value:
    """A new axis with one element for each operand."""
    axes = unify_axes(operands, equation.reason)
    position = equation.params["axis"] % (len(axes) + 1)
    axes.insert(position, concat([Uniform(1)] * len(operands)))
    return Value.of(axes)


@register_rule("unstack", stackable=True)
def unstack(equation: Equation, x: Value) -> list[Value]:
    """One result for each element of an axis."""
    position = equation.params["axis"] % x.ndim
    return [
        take(x, position, i, equation.reason, equation.values) for i in range(x.shape[position])
    ]


@register_rule("split")
def split_axis(equation: Equation, x: Value) -> list[Value]:
    """One axis is cut into parts of the given sizes."""
    dimension, start, parts = equation.params["axis"], 0, []
    for size in map(int, equation.params["sizes"]):
        parts.append(slice_axis(x, dimension, start, start + size, equation.reason))
        start += size
    return parts


@register_rule("pad")
def pad(equation: Equation, x: Value, _: Value) -> Value:
    """Padding is a uniform part of a concatenation; interior or negative padding fixes the axis."""
    padded = [i for i, widths in enumerate(equation.params["padding_config"]) if any(widths)]
    if len(padded) == 1 and x.shape[padded[0]] == 1 and equation.out_shapes[0][padded[0]] > 1:
        if any(variable.layered for expr in x.exprs for variable in variables(expr)):
            return _among_layers(equation, x, padded[0])
    axes: list[Expr] = []
    for expr, widths, size in zip(
        x.axes, equation.params["padding_config"], equation.out_shapes[0], strict=True
    ):
        low, high, interior = map(int, widths)
        if (low, high, interior) == (0, 0, 0):
            axes.append(expr)
        elif low >= 0 and high >= 0 and (interior == 0 or expr.size == 1):
            axes.append(concat([Uniform(low), expr, Uniform(high)]))
        else:
            axes.append(fixed_axis(size, equation.reason, expr))
    return Value.of(axes)


def _among_layers(equation: Equation, x: Value, dimension: int) -> Value:
    """One layer among others that are uniform, as in the gradient of layers taken one by one."""
    low, _, _ = equation.params["padding_config"][dimension]
    size = equation.out_shapes[0][dimension]
    index = Variable(size, fixed=Reason("counts layers put side by side", equation.reason.where))
    axes: list[Expr] = []
    for expr in x.axes:
        others = [Uniform(expr.size)] * (size - 1)
        axes.append(Family(index, (*others[:low], expr, *others[low:])))
    axes[dimension] = index
    return Value.of(axes)


@register_rule("tile")
def tile(equation: Equation, x: Value) -> Value:
    """Repeats are a uniform first factor."""
    repeats = equation.params["reps"]
    return Value.of([product([Uniform(n), t]) for n, t in zip(repeats, x.axes, strict=True)])
