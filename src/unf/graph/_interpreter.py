"""Walking a jaxpr: one rule for each equation, and what to do where there is none."""

import warnings
from collections.abc import Sequence
from typing import Any

import jax.extend.core as jex
import numpy as np

from ._folding import compute
from ._registry import RULES, STACKABLE, Equation, fix_everything, fixed_axes
from ._source import source_line
from ._terms import Reason, Uniform, atoms
from ._values import CONSTANT, Constant, Value, settle

# Operations that only hold another jaxpr, and what they call it.
INLINED = {
    "jit", "pjit", "closed_call", "core_call", "call", "custom_jvp_call", "custom_vjp_call",
    "custom_vjp_call_jaxpr", "remat", "remat2", "checkpoint", "xla_call", "custom_lin",
    "eval_jaxpr", "composite", "custom_vmap_call",
}  # fmt: skip
BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr", "call")


class UnknownOperation(UserWarning):
    """An operation without a rule: everything it touched was fixed."""


class Interpreter:
    """Abstract interpretation of one computation.

    Attributes:
        values: every value met, for what must be known of all of them (nesting).
        unknown: operations without a rule, with source lines and the axes they fixed.
    """

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.unknown: dict[str, tuple[str, list[str]]] = {}

    def run(self, jaxpr: Any, operands: Sequence[Value], consts: Sequence[Any] = ()) -> list[Value]:
        """The abstract results of a jaxpr, closed or open, on abstract operands."""
        if isinstance(jaxpr, jex.ClosedJaxpr):
            jaxpr, consts = jaxpr.jaxpr, jaxpr.consts
        environment: dict[Any, Value] = {}
        environment.update(
            zip(jaxpr.constvars, [Constant.of_entries(c) for c in consts], strict=True)
        )
        environment.update(zip(jaxpr.invars, operands, strict=True))

        def read(atom: Any) -> Value:
            if isinstance(atom, jex.Literal):
                return Constant.of_entries(np.asarray(atom.val))
            return environment[atom]

        for eqn in jaxpr.eqns:
            results = self._equation(eqn, [read(atom) for atom in eqn.invars])
            environment.update(zip(eqn.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _equation(self, eqn: Any, operands: list[Value]) -> list[Value]:
        name = eqn.primitive.name
        if name in INLINED:
            body = next((eqn.params[key] for key in BODIES if key in eqn.params), None)
            if body is not None:
                return self.run(body, operands)
        equation = Equation(
            name,
            eqn.params,
            tuple(tuple(v.aval.shape) for v in eqn.outvars),
            Reason(name, source_line(eqn)),
            self.run,
            self.values,
        )
        if all(isinstance(x, Constant) for x in operands) and not eqn.effects:
            return self._constants(eqn, equation, operands)
        results = [
            Value(x.segments, x.is_parameter) if any(x is y for y in operands) else x
            for x in self._apply(equation, operands)
        ]
        sources = 0
        for x in operands:
            sources |= x.sources
        for x in results:
            x.sources |= sources
        self.values.extend(results)
        return results

    def _apply(self, equation: Equation, operands: list[Value]) -> list[Value]:
        if equation.out_shapes and all(0 in shape for shape in equation.out_shapes):
            return [Value.of([Uniform(n) for n in shape]) for shape in equation.out_shapes]
        if equation.primitive not in STACKABLE:
            operands = [settle(x, equation.reason) for x in operands]
        results = _by_rule(equation, operands)
        if results is None:
            self._report_unknown(equation, operands)
            return fix_everything(equation, *operands)
        return results

    def _constants(self, eqn: Any, equation: Equation, operands: list[Value]) -> list[Value]:
        """Results that need not be computed before somebody asks for their entries."""
        computed: list[Any] = []

        def entries(position: int) -> Any:
            if not computed:
                computed.extend(compute(eqn, [x.raw() for x in operands]))  # type: ignore
            return computed[position]

        def describe(position: int) -> Any:
            loops = equation.primitive in ("scan", "while", "cond")
            results = None if loops else _by_rule(equation, operands)
            if results is None:
                return fixed_axes(equation.out_shapes[position], CONSTANT)
            return results[position].axes

        return [
            Constant(shape, lambda i=i: describe(i), lambda i=i: entries(i))
            for i, shape in enumerate(equation.out_shapes)
        ]

    def _report_unknown(self, equation: Equation, operands: list[Value]) -> None:
        touched = dict.fromkeys(
            atom.origin for x in operands for term in x.terms for atom in atoms(term) if atom.origin
        )
        _, origins = self.unknown.setdefault(equation.primitive, (equation.reason.where, []))
        origins.extend(touched)

    def warn(self, paths: Sequence[str]) -> None:
        """Say once for each operation without a rule which of the leaves at `paths` it fixed."""
        for name, (where, origins) in self.unknown.items():
            touched = {origin.rsplit(" axis ", 1)[0] for origin in origins}
            leaves = [path for path in paths if path in touched]
            shown = ", ".join(leaves[:4]) + (", ..." if len(leaves) > 4 else "")
            warnings.warn(
                f"no rule for the operation {name!r} at {where or 'an unknown line'}: every axis "
                f"it touches is fixed ({shown or 'no parameter directly'}). "
                f"Teach it with unf.register_rule({name!r}).",
                UnknownOperation,
                stacklevel=4,
            )


def _by_rule(equation: Equation, operands: list[Value]) -> list[Value] | None:
    """What the primitive's rule says; None without one, or if it does not cover this case."""
    rule = RULES.get(equation.primitive)
    if rule is None:
        return None
    results = rule(equation, *operands)
    results = [results] if isinstance(results, Value) else results
    # A bit cast to a type of another width adds an axis, and a user's rule may be wrong.
    return results if tuple(x.shape for x in results) == equation.out_shapes else None
