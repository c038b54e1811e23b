"""Operations for which the order along an axis matters: that axis is fixed.

The result gets a new axis there (`fixed_axis`), because its entries have moved or mixed: nothing
may be nested in it.
"""

from collections.abc import Sequence
from dataclasses import replace

from .._expressions import Reason, Uniform, fix, fixed_axis, new_axis
from .._registry import Equation, fix_everything, register_rule
from .._values import Value, unify_axes


@register_rule("iota")
def iota(equation: Equation, *_: Value) -> Value:
    """Counts along one axis and is uniform along the others."""
    counted, shape = equation.params["dimension"], equation.out_shapes[0]
    axes = [Uniform(n) for n in shape]
    return Value.of(
        [*axes[:counted], new_axis(shape[counted], fixed=equation.reason), *axes[counted + 1 :]]
    )


@register_rule("debug_callback", "debug_print")
def debug(equation: Equation, *operands: Value) -> list[Value]:
    """Has no results."""
    return []


@register_rule(
    "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "rev", "sort", "fft", "top_k",
    "approx_top_k",
)  # fmt: skip
def reorder(equation: Equation, *operands: Value) -> list[Value]:
    """Running sums, reversals, sorts, Fourier transforms: entries move or mix along some axes."""
    ordered = {d % operands[0].ndim for d in _ordered_dimensions(equation, operands[0].ndim)}
    axes = unify_axes(operands, equation.reason)
    results = []
    for shape in equation.out_shapes:
        new = {i: fixed_axis(shape[i], equation.reason, axes[i]) for i in ordered}
        results.append(Value.of([new.get(i, expr) for i, expr in enumerate(axes)]))
    return results


def _ordered_dimensions(equation: Equation, ndim: int) -> Sequence[int]:
    params = equation.params
    if equation.primitive == "fft":
        return range(ndim - len(params["fft_lengths"]), ndim)
    if equation.primitive == "rev":
        return params["dimensions"]
    names = ("axis", "dimension", "reduction_dimension")
    return [next((params[name] for name in names if name in params), -1)]


@register_rule("argmax", "argmin")
def argmax(equation: Equation, x: Value) -> Value:
    """The position depends on the order."""
    for i in equation.params["axes"]:
        fix(x.axes[i], equation.reason)
    return Value.of([e for i, e in enumerate(x.axes) if i not in equation.params["axes"]])


@register_rule("reduce_window", "reduce_window_sum", "reduce_window_max", "reduce_window_min")
def reduce_window(equation: Equation, *operands: Value) -> list[Value]:
    """Pooling, of several arrays at once too: axes with a window of one pass."""
    params, reason = equation.params, Reason("a position in a window", equation.reason.where)
    window = params["window_dimensions"]
    axes = unify_axes(operands[: len(equation.out_shapes)], equation.reason)
    for i, size in enumerate(window):
        if (
            size != 1
            or params["window_strides"][i] != 1
            or params.get("base_dilation", (1,) * len(window))[i] != 1
            or tuple(params["padding"][i]) != (0, 0)
        ):
            axes[i] = fixed_axis(equation.out_shapes[0][i], reason, axes[i])
    return [Value.of(axes) for _ in equation.out_shapes]


@register_rule("select_and_gather_add", "select_and_scatter_add")
def select_window(equation: Equation, x: Value, y: Value, *_: Value) -> Value:
    """The derivatives of max pooling."""
    window = equation.params["window_dimensions"]
    axes = []
    for i, (a, b) in enumerate(zip(x.axes, y.axes, strict=True)):
        if window[i] == 1 and equation.params["window_strides"][i] == 1 and a.size == b.size:
            axes.append(unify_axes([Value.of([a]), Value.of([b])], equation.reason)[0])
            continue
        axes.append(fixed_axis(equation.out_shapes[0][i], equation.reason, a, b))
    return Value.of(axes)


@register_rule(
    "random_bits", "random_seed", "random_fold_in", "random_split", "random_wrap",
    "random_unwrap", "random_clone", "random_gamma", "threefry2x32", "threefry4x32", "philox2x32",
    "philox4x32", "rng_bit_generator", "rng_uniform",
)  # fmt: skip
def random(equation: Equation, *operands: Value) -> list[Value]:
    """Random numbers differ from entry to entry."""
    reason = Reason("combined with random numbers", equation.reason.where)
    return fix_everything(replace(equation, reason=reason), *operands)
