"""Loops and branches."""

from typing import Any

from ..._jaxprs import count_loop_values
from .._expressions import Expr, Reason, Uniform, Variable, children, fix, fixed_axis, resolve
from .._registry import Equation, register_rule
from .._unification import unify
from .._values import Value, settle, stack_layers, unify_axes
from .indexing import is_stacked, take


@register_rule("cond", stackable=True)
def cond(equation: Equation, index: Value, *operands: Value) -> list[Value]:
    """Whichever branch runs, its results have the same axes."""
    branches = [equation.run(branch, operands) for branch in equation.params["branches"]]
    return [_join(list(results), equation.reason) for results in zip(*branches, strict=True)]


@register_rule("while", stackable=True)
def while_(equation: Equation, *operands: Value) -> list[Value]:
    """The carry of each iteration has the axes of the initial one."""
    params = equation.params
    for_test = operands[: params["cond_nconsts"]]
    for_body = operands[params["cond_nconsts"] :][: params["body_nconsts"]]
    carry = list(operands[params["cond_nconsts"] + params["body_nconsts"] :])

    def once(carry: list[Value]) -> tuple[list[Value], list[Value]]:
        equation.run(params["cond_jaxpr"], [*for_test, *carry])
        return equation.run(params["body_jaxpr"], [*for_body, *carry]), []

    return _until_stable(once, carry, equation)[0]


@register_rule("scan", stackable=True)
def scan(equation: Equation, *operands: Value) -> list[Value]:
    """Layers stacked along the scanned axis are interpreted one by one, other rows at once."""
    params, reason = equation.params, equation.reason
    ranks = [x.ndim for x in operands], [len(shape) for shape in equation.out_shapes]
    num_carry, num_scanned = count_loop_values(params["jaxpr"], *ranks)
    consts = list(operands[: len(operands) - num_carry - num_scanned])
    carry = list(operands[len(consts) :][:num_carry])
    scanned = list(operands[len(consts) + num_carry :])
    if any(is_stacked(x, 0) for x in scanned):
        return _layer_by_layer(equation, consts, carry, scanned)
    order = Reason("the order of a scan", reason.where)
    slices = [_any_row(x, order) for x in scanned]

    def once(carry: list[Value]) -> tuple[list[Value], list[Value]]:
        results = equation.run(params["jaxpr"], [*consts, *carry, *slices])
        return results[:num_carry], results[num_carry:]

    carry, stacked = _until_stable(once, carry, equation)
    length = params["length"]
    rows = [Value.of([fixed_axis(length, order), *settle(y, reason).axes]) for y in stacked]
    return [*carry, *rows]


def _any_row(x: Value, order: Reason) -> Value:
    """What all rows of a scanned value have in common."""
    x = _from(settle(x, order), x)
    fix(x.axes[0], order)
    return _from(Value.of(x.axes[1:]), x)


def _layer_by_layer(
    equation: Equation, consts: list[Value], carry: list[Value], scanned: list[Value]
) -> list[Value]:
    params, reason = equation.params, equation.reason
    length = params["length"]
    positions = range(length - 1, -1, -1) if params["reverse"] else range(length)
    collected: list[list[Value]] = []
    order = Reason("the order of a scan", reason.where)
    rows = {i: _any_row(x, order) for i, x in enumerate(scanned) if not is_stacked(x, 0)}
    for position in positions:
        slices = [
            rows.get(i) or _from(take(x, 0, position, reason), x) for i, x in enumerate(scanned)
        ]
        results = equation.run(params["jaxpr"], [*consts, *carry, *slices])
        collected.append(results[len(carry) :])
        carry = results[: len(carry)]
    for x in scanned:  # all are fixed, and get one name
        unify(scanned[0].axes[0], x.axes[0], order)
    index = resolve(scanned[0].axes[0])
    assert isinstance(index, Variable)
    by_position = collected[::-1] if params["reverse"] else collected
    return [*carry, *[stack_layers(rows, index, reason) for rows in zip(*by_position, strict=True)]]


def _until_stable(
    once: Any, carry: list[Value], equation: Equation
) -> tuple[list[Value], list[Value]]:
    """Iterate until no axis of the carry turns from uniform into something else."""
    reason, met = equation.reason, len(equation.values)
    # Not constants, since they change at each iteration, and not layers of a parameter.
    carry = [_from(Value.of(settle(x, reason).axes), x) for x in carry]
    while True:
        del equation.values[met:]  # of iterations that knew less
        results, extra = once(carry)
        joined = [_join([a, b], reason) for a, b in zip(carry, results, strict=True)]
        if list(map(_uniform_parts, joined)) == list(map(_uniform_parts, carry)):
            return joined, extra
        carry = joined


def _uniform_parts(x: Value) -> list:
    """Where a value is uniform: whole axes, and parts of axes."""

    def of_expr(expr: Expr) -> Any:
        expr = resolve(expr)
        if isinstance(expr, Uniform):
            return expr.size
        found = [of_expr(child) for child in children(expr)]
        return found if any(found) else None

    return [of_expr(expr) for expr in x.axes]


def _join(values: list[Value], reason: Reason) -> Value:
    """The axes of a value that may be any of these, all of one shape."""
    return _from(Value.of(unify_axes([settle(x, reason) for x in values], reason)), *values)


def _from(x: Value, *origins: Value) -> Value:
    """The value, with the parameters that its origins depend on."""
    for origin in origins:
        x.sources |= origin.sources
    return x
