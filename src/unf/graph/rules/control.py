"""Loops and branches."""

from collections.abc import Sequence
from typing import Any

import jax.extend.core as jex

from .._registry import Equation, register_rule
from .._terms import Reason, Uniform, axis, collapse, fix, resolve, unify
from .._values import Value, unify_axes
from .indexing import is_stacked, take


@register_rule("cond")
def cond(equation: Equation, index: Value, *operands: Value) -> list[Value]:
    """Whichever branch runs, its results have the same axes."""
    branches = [equation.run(branch, operands) for branch in equation.params["branches"]]
    return [_join(list(results), equation.reason) for results in zip(*branches, strict=True)]


@register_rule("while")
def while_(equation: Equation, *operands: Value) -> list[Value]:
    """What goes round is one with what came in."""
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
    """Layers stacked along the scanned axis are taken one by one, anything else all at once."""
    params, reason = equation.params, equation.reason
    num_carry, num_scanned = _count_arguments(equation, operands)
    consts = list(operands[: len(operands) - num_carry - num_scanned])
    carry = list(operands[len(consts) :][:num_carry])
    scanned = list(operands[len(consts) + num_carry :])
    if any(is_stacked(x, 0) for x in scanned):
        return _layer_by_layer(equation, consts, carry, scanned)
    settled = [Value.of([collapse(t, reason) for t in x.axes]) for x in scanned]
    order = Reason("the order of a scan", reason.where)
    slices = []
    for x in settled:
        _fix_order(x, order)
        slices.append(Value.of(x.axes[1:]))

    def once(carry: list[Value]) -> tuple[list[Value], list[Value]]:
        results = equation.run(params["jaxpr"], [*consts, *carry, *slices])
        return results[:num_carry], results[num_carry:]

    carry, stacked = _until_stable(once, carry, equation)
    length = params["length"]
    rows = [Value.of([axis(length, fixed=order), *_settled(y, reason).axes]) for y in stacked]
    return [*carry, *rows]


def _count_arguments(equation: Equation, operands: Sequence[Value]) -> tuple[int, int]:
    """How many values a scan carries and how many it scans over, last among the operands.

    Told from ranks, since releases of JAX keep the numbers in different places: what is
    scanned over or collected has one axis more outside the body than inside.
    """
    body = equation.params["jaxpr"]
    body = body.jaxpr if isinstance(body, jex.ClosedJaxpr) else body
    scanned = [x.ndim > len(v.aval.shape) for x, v in zip(operands, body.invars, strict=True)]
    pairs = zip(equation.out_shapes, body.outvars, strict=True)
    collected = [len(shape) > len(v.aval.shape) for shape, v in pairs]
    return len(collected) - sum(collected), sum(scanned)


def _fix_order(x: Value, order: Reason) -> None:
    fix(x.axes[0], order)


def _settled(x: Value, reason: Reason) -> Value:
    return Value.of([collapse(term, reason) for term in x.axes])


def _layer_by_layer(
    equation: Equation, consts: list[Value], carry: list[Value], scanned: list[Value]
) -> list[Value]:
    params, reason = equation.params, equation.reason
    length = params["length"]
    positions = range(length - 1, -1, -1) if params["reverse"] else range(length)
    collected: list[list[Value]] = []
    for position in positions:
        slices = [take(x, 0, position, reason) for x in scanned]
        results = equation.run(params["jaxpr"], [*consts, *carry, *slices])
        collected.append(results[len(carry) :])
        carry = results[: len(carry)]
    order = Reason("the order of a scan", reason.where)
    for x in scanned:  # fixed all of them, and one name
        unify(scanned[0].axes[0], x.axes[0], order)
    stacked = [_join(list(rows), reason) for rows in zip(*collected, strict=True)]
    return [*carry, *[Value.of([axis(length, fixed=order), *y.axes]) for y in stacked]]


def _until_stable(
    once: Any, carry: list[Value], equation: Equation
) -> tuple[list[Value], list[Value]]:
    """Go round until no axis of the carry turns from uniform into something else."""
    reason, met = equation.reason, len(equation.values)
    while True:
        del equation.values[met:]  # of rounds that knew less
        results, extra = once(carry)
        joined = [_join([a, b], reason) for a, b in zip(carry, results, strict=True)]
        if _uniform_axes(joined) == _uniform_axes(carry):
            return joined, extra
        carry = joined


def _uniform_axes(values: Sequence[Value]) -> list[list[int]]:
    return [
        [i for i, term in enumerate(x.axes) if isinstance(resolve(term), Uniform)] for x in values
    ]


def _join(values: list[Value], reason: Reason) -> Value:
    """The axes of a value that may be any of these, which have one shape."""
    return Value.of(unify_axes([_settled(x, reason) for x in values], reason))
