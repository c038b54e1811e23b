"""Element-wise operations, matrix products and convolutions."""

from .._expressions import Expr, Reason, Uniform, fixed_axis, product, resolve
from .._registry import Equation, register_rule
from .._unification import split, unify
from .._values import Value, combine_axes, settle_together

UNARY = """
abs acos acosh asin asinh atan atanh bessel_i0e bessel_i1e bitcast_convert_type cbrt ceil clz conj
convert_element_type copy cos cosh device_put digamma erf erf_inv erfc exp exp2 expm1 floor
imag integer_pow is_finite layout_constraint lgamma log log1p log2 logistic name neg nonbatchable
nondifferentiable_backward not one_minus_square optimization_barrier population_count pvary real
reduce_precision reshard round rsqrt sharding_constraint sign sin sinh sqrt square stop_gradient
tan tanh with_memory_space_constraint
""".split()

SEVERAL = """
add add_any and atan2 clamp complex div eq eq_to ge gt igamma igamma_grad_a igammac le le_to lt
lt_to max min mul ne nextafter or polygamma pow regularized_incomplete_beta rem select_if_vmap
select_n shift_left shift_right_arithmetic shift_right_logical sub xor zeta
""".split()


@register_rule(*UNARY, stackable=True)
def pass_through(equation: Equation, *operands: Value) -> list[Value]:
    """f(x)_i has the axes of x."""
    return [x.copy() for x in operands]


@register_rule(*SEVERAL, stackable=True)
def combine(equation: Equation, *values: Value) -> Value:
    """f(x, y)_i: axes of equal size permute together; scalars and axes of size one broadcast."""
    arrays = [x for x in values if x.ndim]
    varying = [x for x in arrays if not _is_uniform(x)]
    if any(x is not varying[0] for x in varying):
        varying = settle_together(varying, equation.reason)
    result = combine_axes(varying, equation.out_shapes[0], equation.reason)
    result.is_parameter = sum(x.is_parameter for x in arrays) == len(arrays) == 1
    return result


def _is_uniform(value: Value) -> bool:
    return all(isinstance(resolve(expr), Uniform) for expr in value.exprs)


@register_rule("dot_general")
def dot_general(equation: Equation, x: Value, y: Value) -> Value:
    """Σ_k x_bik y_bkj: unify contracted axes and drop them, unify batch axes, pass the others."""
    (x_sum, y_sum), (x_batch, y_batch) = equation.params["dimension_numbers"]
    contracted, batch = (
        [unify(x.axes[i], y.axes[j], equation.reason) for i, j in zip(of_x, of_y, strict=True)]
        for of_x, of_y in ((x_sum, y_sum), (x_batch, y_batch))
    )
    left = [expr for i, expr in enumerate(x.axes) if i not in (*x_sum, *x_batch)]
    right = [expr for j, expr in enumerate(y.axes) if j not in (*y_sum, *y_batch)]
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
    result: dict[int, Expr] = {o_batch: x.axes[x_batch]}
    inputs, x_group = x.axes[x_in], Uniform(1)
    if batch_groups > 1:  # the batch is (g b), of which b remains
        x_group, result[o_batch] = split(x.axes[x_batch], batch_groups, reason)
    elif groups > 1:
        x_group, inputs = split(inputs, groups, reason)
    k_group, each = split(kernel.axes[k_out], x_group.size, reason)
    result[o_out] = product([unify(x_group, k_group, reason), each])
    inputs = unify(inputs, kernel.axes[k_in], reason)
    window = Reason("a position in a window", reason.where)
    for i, (a, b, c) in enumerate(zip(x_space, k_space, o_space, strict=True)):
        if _is_pointwise(params, i, kernel.shape[b]):
            result[c] = x.axes[a]
            continue
        origins = x.axes[a], kernel.axes[b]
        result[c] = fixed_axis(equation.out_shapes[0][c], window, *origins)
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
