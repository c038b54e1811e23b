"""Walking a jaxpr: the rule of each operation, loops, and branches."""

from collections.abc import Sequence
from typing import Any

import jax.extend.core as jex

from ..._jaxprs import count_loop_values, inlined_body
from ...spec._roles import LeafRoles, roles_by_position
from ._rules import RULES, any_activation, out_shapes
from ._values import Activation, Meetings, Operand, Parameter, Shape, Weights


def find_roles(jaxpr: Any, shapes: Sequence[Shape]) -> tuple[LeafRoles, ...]:
    """The roles of the axes of each parameter, which are the first arguments of a closed jaxpr.

    Parameters that never meet an activation have the roles of JAX's order.
    """
    parameters = [Parameter(tuple(shape)) for shape in shapes]
    inputs = [Activation() for _ in jaxpr.jaxpr.invars[len(parameters) :]]
    walk = _Walk()
    results = walk.run(jaxpr, [*parameters, *inputs])
    walk.meetings.entrywise(results)
    return tuple(
        roles_by_position(len(p.shape)) if p.roles is None else p.roles for p in parameters
    )


class _Walk:
    """Runs jaxprs on activations, functions of weights, and constants."""

    def __init__(self) -> None:
        self.meetings = Meetings()

    def run(self, jaxpr: Any, operands: Sequence[Operand]) -> list[Operand]:
        """The results of a jaxpr, closed or open."""
        jaxpr = _opened(jaxpr)
        known: dict[Any, Operand] = dict(zip(jaxpr.invars, operands, strict=True))

        def read(var: Any) -> Operand:
            return None if isinstance(var, jex.Literal) else known.get(var)

        for eqn in jaxpr.eqns:
            results = self._equation(eqn, [read(var) for var in eqn.invars])
            known.update(zip(eqn.outvars, results, strict=True))
        return [read(var) for var in jaxpr.outvars]

    def _equation(self, eqn: Any, operands: list[Operand]) -> Sequence[Operand]:
        if all(x is None for x in operands):
            return [None] * len(eqn.outvars)
        body, name = inlined_body(eqn), eqn.primitive.name
        if body is not None:
            return self.run(body, operands)
        inner = {"cond": self._cond, "scan": self._scan, "while": self._while}.get(name)
        if inner is not None:
            return inner(eqn, *operands)
        found = RULES[name](self.meetings, eqn, *operands) if name in RULES else None
        if found is not None:
            return found
        is_activation = any_activation(operands)
        return [Activation() if is_activation else Weights(shape) for shape in out_shapes(eqn)]

    def _cond(self, eqn: Any, index: Operand, *operands: Operand) -> list[Operand]:
        """What may be an activation is one; weights that a condition chooses stay weights."""
        branches = [self.run(branch, operands) for branch in eqn.params["branches"]]
        results: list[Operand] = []
        for found, shape in zip(zip(*branches, strict=True), out_shapes(eqn), strict=True):
            weights = [x for x in found if isinstance(x, Weights)]
            if any_activation(found):
                self.meetings.entrywise(found)
                results.append(Activation())
            elif weights:
                results.append(Weights(shape, lambda roles, xs=weights: [(x, roles) for x in xs]))
            else:
                results.append(Activation() if isinstance(index, Activation) else None)
        return results

    def _while(self, eqn: Any, *operands: Operand) -> list[Operand]:
        start = eqn.params["cond_nconsts"]
        first = start + eqn.params["body_nconsts"]
        return self._loop(eqn.params["body_jaxpr"], operands[start:first], operands[first:], [])

    def _scan(self, eqn: Any, *operands: Operand) -> list[Operand]:
        body, shapes = eqn.params["jaxpr"], out_shapes(eqn)
        ranks = [len(var.aval.shape) for var in eqn.invars], [len(shape) for shape in shapes]
        num_carry, num_scanned = count_loop_values(body, *ranks)
        first = len(operands) - num_carry - num_scanned
        carry, scanned = operands[first:][:num_carry], operands[first + num_carry :]
        results = self._loop(body, operands[:first], carry, [_row(x) for x in scanned])
        stacked = [
            Weights(shape, lambda roles, x=x: [(x, roles[1:])])
            if isinstance(x, Weights)
            else x and Activation()
            for x, shape in zip(results[num_carry:], shapes[num_carry:], strict=True)
        ]
        return [*results[:num_carry], *stacked]

    def _loop(
        self, body: Any, consts: Sequence[Operand], carry: Sequence[Operand], rows: list[Operand]
    ) -> list[Operand]:
        """The results of a loop's body, which runs once.

        What the loop changes, and makes depend on inputs, is an activation from the beginning.
        """
        inner = _opened(body)
        variables = inner.invars[len(consts) :][: len(carry)]
        unchanged = [a is b for a, b in zip(variables, inner.outvars, strict=False)]
        reached = [isinstance(x, Activation) for x in carry]
        before: list[bool] = []
        while reached != before:
            before = reached
            flags = [isinstance(x, Activation) for x in (*consts, *carry, *rows)]
            flags[len(consts) : len(consts) + len(carry)] = reached
            found = _reach(inner, flags)
            reached = [a or b for a, b in zip(reached, found, strict=False)]
        changed = [a and not b for a, b in zip(reached, unchanged, strict=True)]
        self.meetings.entrywise([x for x, new in zip(carry, changed, strict=True) if new])
        inside = [Activation() if new else x for x, new in zip(carry, changed, strict=True)]
        results = self.run(body, [*consts, *inside, *rows])
        for i, x in enumerate(inside):
            if isinstance(x, Activation) or unchanged[i]:
                results[i] = x
        return results


def _row(x: Operand) -> Operand:
    """One of the rows that a scan runs over: a layer of a stack."""
    if not isinstance(x, Weights):
        return x and Activation()
    size = x.shape[0]
    return Weights(x.shape[1:], lambda roles: [(x, (((size, "each"),), *roles))], x.copies)


def _reach(jaxpr: Any, flags: Sequence[bool]) -> list[bool]:
    """Which results of a jaxpr depend on arguments that have a flag."""
    jaxpr = _opened(jaxpr)
    reached = {var for var, flag in zip(jaxpr.invars, flags, strict=True) if flag}

    def reads(var: Any) -> bool:
        return not isinstance(var, jex.Literal) and var in reached

    for eqn in jaxpr.eqns:
        given = [reads(var) for var in eqn.invars]
        body = inlined_body(eqn)
        found = [any(given)] * len(eqn.outvars) if body is None else _reach(body, given)
        reached.update(var for var, flag in zip(eqn.outvars, found, strict=True) if flag)
    return [reads(var) for var in jaxpr.outvars]


def _opened(jaxpr: Any) -> Any:
    return jaxpr.jaxpr if isinstance(jaxpr, jex.ClosedJaxpr) else jaxpr
