"""Operations for which the order along an axis matters: that axis is fixed.

What comes out along it is a new axis of entries that have moved or mixed (`shuffled`), so that
nothing is taken to be nested in it.
"""

from .._registry import Equation, fixed_axes, register_rule
from .._terms import Reason, Uniform, axis, fix, shuffled
from .._values import Value, unify_axes


@register_rule("iota")
def iota(equation: Equation, *_: Value) -> Value:
    """Counts along one axis and is uniform along the others."""
    counted = equation.params["dimension"]
    return Value.of(
        [
            axis(n, fixed=equation.reason) if i == counted else Uniform(n)
            for i, n in enumerate(equation.out_shapes[0])
        ]
    )


@register_rule("debug_callback", "debug_print")
def debug(equation: Equation, *operands: Value) -> list[Value]:
    """Nothing comes out of it."""
    return []


@register_rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def cumulate(equation: Equation, x: Value) -> Value:
    """Σ_{j ≤ i} x_j."""
    return _in_order(equation, [x], [equation.params["axis"]])[0]


@register_rule("rev")
def reverse(equation: Equation, x: Value) -> Value:
    """x_{n-i}."""
    return _in_order(equation, [x], equation.params["dimensions"])[0]


@register_rule("sort")
def sort(equation: Equation, *operands: Value) -> list[Value]:
    """Operands sorted together."""
    return _in_order(equation, list(operands), [equation.params["dimension"]])


@register_rule("argmax", "argmin")
def argmax(equation: Equation, x: Value) -> Value:
    """The position depends on the order."""
    for i in equation.params["axes"]:
        fix(x.axes[i], equation.reason)
    return Value.of([t for i, t in enumerate(x.axes) if i not in equation.params["axes"]])


@register_rule("top_k", "approx_top_k")
def top_k(equation: Equation, x: Value) -> list[Value]:
    """The largest values and their positions."""
    dimension = equation.params.get("axis", equation.params.get("reduction_dimension", -1))
    dimension = dimension % x.ndim
    fix(x.axes[dimension], equation.reason)
    results = []
    for shape in equation.out_shapes:
        axes = list(x.axes)
        axes[dimension] = shuffled(shape[dimension], equation.reason)
        results.append(Value.of(axes))
    return results


@register_rule("fft")
def fft(equation: Equation, x: Value) -> Value:
    """Transformed along the last axes."""
    count = len(equation.params["fft_lengths"])
    shape = equation.out_shapes[0]
    return _in_order(equation, [x], range(len(shape) - count, len(shape)))[0]


@register_rule(
    "reduce_window", "reduce_window_sum", "reduce_window_max", "reduce_window_min",
    "cumred_reduce_window",
)  # fmt: skip
def reduce_window(equation: Equation, x: Value, *_: Value) -> Value:
    """Pooling: axes with a window of one pass."""
    params, reason = equation.params, Reason("a position in a window", equation.reason.where)
    window = params["window_dimensions"]
    moved = [
        i
        for i, size in enumerate(window)
        if size != 1
        or params["window_strides"][i] != 1
        or params.get("base_dilation", (1,) * len(window))[i] != 1
        or tuple(params["padding"][i]) != (0, 0)
    ]
    axes = list(x.axes)
    for i in moved:
        fix(axes[i], reason)
        axes[i] = shuffled(equation.out_shapes[0][i], reason)
    return Value.of(axes)


@register_rule("select_and_gather_add", "select_and_scatter_add")
def select_window(equation: Equation, x: Value, y: Value, *_: Value) -> Value:
    """Max pooling's derivatives."""
    window = equation.params["window_dimensions"]
    axes = []
    for i, (a, b) in enumerate(zip(x.axes, y.axes, strict=True)):
        if window[i] == 1 and equation.params["window_strides"][i] == 1 and a.size == b.size:
            axes.append(unify_axes([Value.of([a]), Value.of([b])], equation.reason)[0])
            continue
        fix(a, equation.reason)
        fix(b, equation.reason)
        axes.append(shuffled(equation.out_shapes[0][i], equation.reason))
    return Value.of(axes)


@register_rule(
    "random_bits", "random_seed", "random_fold_in", "random_split", "random_wrap",
    "random_unwrap", "random_clone", "random_gamma", "threefry2x32", "threefry4x32", "philox2x32",
    "philox4x32", "rng_bit_generator", "rng_uniform",
)  # fmt: skip
def random(equation: Equation, *operands: Value) -> list[Value]:
    """Random numbers differ from entry to entry."""
    reason = Reason("met by random numbers", equation.reason.where)
    for operand in operands:
        for term in operand.terms:
            fix(term, reason)
    return [Value.of(fixed_axes(shape, reason)) for shape in equation.out_shapes]


def _in_order(equation: Equation, operands: list[Value], dimensions) -> list[Value]:
    """All operands one, the given axes fixed, and new fixed ones in their place."""
    ordered = {d % operands[0].ndim for d in dimensions}
    axes = unify_axes(operands, equation.reason)
    for i in ordered:
        fix(axes[i], equation.reason)
    results = []
    for shape in equation.out_shapes:
        results.append(
            Value.of(
                [
                    shuffled(shape[i], equation.reason) if i in ordered else term
                    for i, term in enumerate(axes)
                ]
            )
        )
    return results
