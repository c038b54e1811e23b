"""Element by element: axes pass through, and those of several operands are one."""

from .._registry import Equation, register_rule
from .._terms import Uniform, resolve
from .._unification import unify
from .._values import Segment, Value, settle, unify_axes

UNARY = """
abs acos acosh asin asinh atan atanh bessel_i0e bessel_i1e bitcast_convert_type cbrt ceil clz conj
convert_element_type copy copy_p cos cosh device_put digamma erf erf_inv erfc exp exp2 expm1 floor
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
    """f(x)_i: the axes of x."""
    return [Value(x.segments, x.is_parameter) for x in operands]


@register_rule(*SEVERAL, stackable=True)
def combine(equation: Equation, *values: Value) -> Value:
    """f(x, y)_i: axes of equal size are one; scalars and axes of size one broadcast."""
    operands = list(values)
    arrays = [x for x in operands if x.ndim]
    is_parameter = sum(x.is_parameter for x in arrays) == len(arrays) == 1
    varying = [x for x in arrays if not _is_uniform(x)]
    if any(x is not varying[0] for x in varying):
        # One may lack the axis that counts the other's layers: one permutation for all.
        varying = operands = [settle(x, equation.reason) for x in varying]
    if varying and all(_sizes(x) == _sizes(varying[0]) for x in varying):
        if varying[0].shape == equation.out_shapes[0]:
            return Value(_join_segments(varying, equation), is_parameter)
    axes = unify_axes(operands, equation.reason)
    shape = equation.out_shapes[0]
    return Value.of(
        [t if t.size == n else Uniform(n) for t, n in zip(axes, shape, strict=True)], is_parameter
    )


def _is_uniform(value: Value) -> bool:
    return all(isinstance(resolve(term), Uniform) for term in value.terms)


def _sizes(value: Value) -> list[tuple[int, ...]]:
    return [segment.sizes for segment in value.segments]


def _join_segments(values: list[Value], equation: Equation) -> list[Segment]:
    """Join without splitting what a reshape left unsplit."""
    joined = list(values[0].segments)
    for value in values[1:]:
        for i, segment in enumerate(value.segments):
            term = unify(joined[i].term, segment.term, equation.reason)
            joined[i] = Segment(term, segment.sizes, segment.reason)
    return joined
