"""Products of arrays: matrix products and convolutions."""

from .._registry import Equation, register_rule
from .._terms import Reason, Term, Uniform, fix, product, shuffled
from .._unification import split, unify
from .._values import Value


@register_rule("dot_general")
def dot_general(equation: Equation, x: Value, y: Value) -> Value:
    """Σ_k x_bik y_bkj: contracted axes are one and drop out, batch axes are one, others pass."""
    (x_sum, y_sum), (x_batch, y_batch) = equation.params["dimension_numbers"]
    contracted, batch = (
        [unify(x.axes[i], y.axes[j], equation.reason) for i, j in zip(of_x, of_y, strict=True)]
        for of_x, of_y in ((x_sum, y_sum), (x_batch, y_batch))
    )
    left = [term for i, term in enumerate(x.axes) if i not in (*x_sum, *x_batch)]
    right = [term for j, term in enumerate(y.axes) if j not in (*y_sum, *y_batch)]
    equation.note([*batch, *contracted, *left, *right])
    return Value.of([*batch, *left, *right])


@register_rule("conv_general_dilated")
def convolution(equation: Equation, x: Value, kernel: Value) -> Value:
    """With g groups: input features (g i), kernel i and (g o), output features (g o)."""
    params, reason = equation.params, equation.reason
    numbers = params["dimension_numbers"]
    (x_batch, x_in, *x_space), (k_out, k_in, *k_space), (o_batch, o_out, *o_space) = (
        numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec,
    )  # fmt: skip
    groups, batch_groups = params["feature_group_count"], params["batch_group_count"]
    result: dict[int, Term] = {}
    result[o_batch] = x.axes[x_batch]
    inputs, outputs = x.axes[x_in], kernel.axes[k_out]
    if batch_groups > 1:  # the batch is (g b), of which b remains
        x_group, result[o_batch] = split(x.axes[x_batch], batch_groups, reason)
    elif groups > 1:
        x_group, inputs = split(inputs, groups, reason)
    else:
        x_group = Uniform(1)
    k_group, each = split(outputs, x_group.size, reason)
    outputs = product([unify(x_group, k_group, reason), each])
    inputs = unify(inputs, kernel.axes[k_in], reason)
    result[o_out] = outputs
    window = Reason("a position in a window", reason.where)
    for i, (a, b, c) in enumerate(zip(x_space, k_space, o_space, strict=True)):
        if _is_pointwise(params, i, kernel.shape[b]):
            result[c] = x.axes[a]
            continue
        fix(x.axes[a], window)
        fix(kernel.axes[b], window)
        result[c] = shuffled(equation.out_shapes[0][c], window)
    axes = [result[i] for i in range(x.ndim)]
    equation.note([*axes, inputs])
    return Value.of(axes)


def _is_pointwise(params: dict, i: int, size: int) -> bool:
    return (
        size == 1
        and params["window_strides"][i] == 1
        and params["lhs_dilation"][i] == 1
        and tuple(params["padding"][i]) == (0, 0)
    )
