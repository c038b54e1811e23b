"""Decompositions and solves: the order of a matrix's rows and columns matters, a batch's does not.

A decomposition of a permuted matrix is not the permuted decomposition: triangles depend on the
order, and the signs of singular vectors are chosen by it. Singular values alone are the same.
"""

from .._expressions import fix, fixed_axis
from .._registry import Equation, register_rule
from .._unification import unify
from .._values import Value, unify_axes


@register_rule(
    "cholesky", "eig", "eigh", "geqp3", "geqrf", "hessenberg", "householder_product", "lu",
    "qr", "schur", "tridiagonal",
)  # fmt: skip
def decompose(equation: Equation, *operands: Value) -> list[Value]:
    """The axes of the batch pass, all others are fixed."""
    return _decomposed(equation, *operands)


def _decomposed(equation: Equation, x: Value, *others: Value) -> list[Value]:
    number = x.ndim - 2
    batch = unify_axes([Value.of(y.axes[:number]) for y in (x, *others)], equation.reason)
    for y in (x, *others):
        for expr in y.axes[number:]:
            fix(expr, equation.reason)
    return [
        Value.of([*batch, *(fixed_axis(size, equation.reason) for size in shape[number:])])
        for shape in equation.out_shapes
    ]


@register_rule("svd")
def svd(equation: Equation, x: Value) -> list[Value]:
    """Singular values do not depend on the order of rows and columns; singular vectors do."""
    if equation.params["compute_uv"]:
        return _decomposed(equation, x)
    *batch, rows, columns = x.axes
    for kept in (rows, columns):  # the columns mix within each row, and the rows in each column
        equation.note([*batch, kept])
    return [Value.of([*batch, fixed_axis(equation.out_shapes[0][-1], equation.reason)])]


@register_rule("triangular_solve")
def triangular_solve(equation: Equation, a: Value, b: Value) -> Value:
    """A⁻¹B or BA⁻¹ for a triangular A: the columns or rows of B are independent."""
    reason = equation.reason
    batch = [unify(x, y, reason) for x, y in zip(a.axes[:-2], b.axes[:-2], strict=True)]
    rows, columns = b.axes[-2:]
    ordered, passed = (rows, columns) if equation.params["left_side"] else (columns, rows)
    for expr in (*a.axes[-2:], ordered):
        fix(expr, reason)
    new = fixed_axis(ordered.size, reason)
    pair = [new, passed] if equation.params["left_side"] else [passed, new]
    return Value.of([*batch, *pair])


@register_rule("custom_linear_solve")
def custom_linear_solve(equation: Equation, *operands: Value) -> list[Value]:
    """What it computes is its function `solve`; the others are for derivatives."""
    lengths = equation.params["const_lengths"]
    start = lengths.matvec + lengths.vecmat
    constants = operands[start : start + lengths.solve]
    right_sides = operands[start + lengths.solve + lengths.transpose_solve :]
    return equation.run(equation.params["jaxprs"].solve, [*constants, *right_sides])


@register_rule("ragged_dot_general")
def ragged_dot_general(equation: Equation, x: Value, y: Value, group_sizes: Value) -> Value:
    """A matrix product in groups of consecutive rows: the ragged and the group axes are fixed."""
    numbers, reason = equation.params["ragged_dot_dimension_numbers"], equation.reason
    (x_sum, y_sum), (x_batch, y_batch) = numbers.dot_dimension_numbers
    (ragged,), groups = numbers.lhs_ragged_dimensions, numbers.rhs_group_dimensions
    for expr in (x.axes[ragged], *(y.axes[j] for j in groups), *group_sizes.axes):
        fix(expr, reason)
    contracted, batch = (
        [unify(x.axes[i], y.axes[j], reason) for i, j in zip(of_x, of_y, strict=True)]
        for of_x, of_y in ((x_sum, y_sum), (x_batch, y_batch))
    )
    left = [expr for i, expr in enumerate(x.axes) if i not in (*x_sum, *x_batch)]
    right = [expr for j, expr in enumerate(y.axes) if j not in (*y_sum, *y_batch, *groups)]
    of_groups = [fixed_axis(group_sizes.shape[-1], reason)] if ragged in x_sum else []
    equation.note([*batch, *contracted, *left, *right])
    return Value.of([*of_groups, *batch, *left, *right])
