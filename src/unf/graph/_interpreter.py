"""Walking a jaxpr: one rule for each equation, and what to do where there is none."""

import sysconfig
import warnings
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np

from .._jaxprs import inlined_body
from ._expressions import Reason, Uniform, Variable, variables
from ._registry import RULES, STACKABLE, Equation, fix_everything, fixed_axes
from ._unread import note_reading
from ._values import CONSTANT, INPUTS, Constant, Value, settle


class UnknownOperation(UserWarning):
    """An operation has no rule, so every axis it touches was fixed."""


class Interpreter:
    """Abstract interpretation of one computation.

    Attributes:
        values: the operands and every value seen so far; what is nested depends on all of them.
        unknown: operations without a rule, with source lines and the axes they fixed.
        skips: the operands of every `x + f(x)`.
    """

    def __init__(self, operands: Sequence[Value]) -> None:
        self.values: list[Value] = list(operands)
        self.unknown: dict[str, tuple[str, list[str]]] = {}
        self.skips: list[tuple[Value, Value]] = []

    @property
    def streams(self) -> set[Variable]:
        """The axes along which skip connections add."""
        return {v for x, y in self.skips for v in _variables(x) & _variables(y)}

    def run(self, jaxpr: Any, operands: Sequence[Value], consts: Sequence[Any] = ()) -> list[Value]:
        """The abstract results of a jaxpr, closed or open, on abstract operands."""
        if isinstance(jaxpr, jex.ClosedJaxpr):
            jaxpr, consts = jaxpr.jaxpr, jaxpr.consts
        known = [Constant.of_entries(c) for c in consts]
        environment: dict[Any, Value] = dict(zip(jaxpr.constvars, known, strict=True))
        environment.update(zip(jaxpr.invars, operands, strict=True))

        def read(var: Any) -> Value:
            if isinstance(var, jex.Literal):
                return Constant.of_entries(np.asarray(var.val))
            return environment[var]

        for eqn in jaxpr.eqns:
            results = self._equation(eqn, [read(var) for var in eqn.invars])
            environment.update(zip(eqn.outvars, results, strict=True))
        return [read(var) for var in jaxpr.outvars]

    def _equation(self, eqn: Any, operands: list[Value]) -> list[Value]:
        body = inlined_body(eqn)
        if body is not None:
            return self.run(body, operands)
        name = eqn.primitive.name
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
        if name == "add" and _is_skip(*operands):
            self.skips.append((operands[0], operands[1]))
        results = [
            x.copy() if any(x is y for y in operands) else x
            for x in self._apply(equation, operands)
        ]
        sources = 0
        for x in operands:
            sources |= x.sources
        for x in results:
            x.sources |= sources
        note_reading(name, operands, results)
        self.values.extend(results)
        return results

    def _apply(self, equation: Equation, operands: list[Value]) -> list[Value]:
        if equation.out_shapes and all(0 in shape for shape in equation.out_shapes):
            return [Value.of([Uniform(n) for n in shape]) for shape in equation.out_shapes]
        if equation.primitive not in STACKABLE:
            settled = [settle(x, equation.reason) for x in operands]
            self.values.extend(
                new for new, x in zip(settled, operands, strict=True) if new is not x
            )
            operands = settled
        results = _by_rule(equation, operands)
        if results is None:
            self._report_unknown(equation, operands)
            return fix_everything(equation, *operands)
        return results

    def _constants(self, eqn: Any, equation: Equation, operands: list[Value]) -> list[Value]:
        """Results that are computed only when their entries are needed."""

        @cache
        def computed() -> list[Any]:
            return _compute(eqn, [x.raw() for x in operands])  # type: ignore[attr-defined]

        def describe(position: int) -> Any:
            loops = equation.primitive in ("scan", "while", "cond")
            results = None if loops else _by_rule(equation, operands)
            if results is None:
                return fixed_axes(equation.out_shapes[position], CONSTANT)
            return results[position].axes

        return [
            Constant(shape, lambda i=i: describe(i), lambda i=i: computed()[i])
            for i, shape in enumerate(equation.out_shapes)
        ]

    def _report_unknown(self, equation: Equation, operands: list[Value]) -> None:
        touched = dict.fromkeys(
            v.origin for x in operands for expr in x.exprs for v in variables(expr) if v.origin
        )
        _, origins = self.unknown.setdefault(equation.primitive, (equation.reason.where, []))
        origins.extend(touched)

    def warn(self, paths: Sequence[str]) -> None:
        """Warn once for each operation without a rule, naming the leaves that it fixed."""
        for name, (where, origins) in self.unknown.items():
            touched = {origin.rsplit(" axis ", 1)[0] for origin in origins}
            leaves = [path for path in paths if path in touched]
            shown = ", ".join(leaves[:4]) + (", ..." if len(leaves) > 4 else "")
            warnings.warn(
                f"no rule for the operation {name!r} at {where or 'an unknown line'}: every axis "
                f"it touches is fixed ({shown or 'no parameter directly'}). "
                f"Add a rule with unf.register_rule({name!r}).",
                UnknownOperation,
                stacklevel=4,
            )


def _is_skip(x: Value, y: Value) -> bool:
    """Whether a sum is `x + f(x)`: one summand depends on all the other does, and on more."""
    both = x.sources & y.sources
    return x.sources != y.sources and both in (x.sources, y.sources) and bool(both & INPUTS)


def _variables(x: Value) -> set[Variable]:
    return {v for expr in x.exprs for v in variables(expr)}


def _by_rule(equation: Equation, operands: list[Value]) -> list[Value] | None:
    """The results by the primitive's rule; None without one, or if it does not cover this case."""
    rule = RULES.get(equation.primitive)
    if rule is None:
        return None
    results = rule(equation, *operands)
    results = [results] if isinstance(results, Value) else results
    # A bit cast to a type of another width adds an axis, and a user's rule may be wrong.
    return results if tuple(x.shape for x in results) == equation.out_shapes else None


_SIMPLE = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "neg": np.negative, "stop_gradient": lambda x: x,
}  # fmt: skip


def _compute(eqn: Any, operands: list[Any]) -> list[Any]:
    """The results of an equation on known operands; simple ones without compiling anything.

    Constants are small, such as masks and positions; the network itself is never run.
    """
    name, params = eqn.primitive.name, eqn.params
    if all(isinstance(x, np.ndarray) for x in operands):
        out = eqn.outvars[0].aval
        if name in _SIMPLE:
            return [np.asarray(_SIMPLE[name](*operands)).astype(out.dtype)]
        if name == "iota":
            counts = np.arange(out.shape[params["dimension"]], dtype=out.dtype)
            return [_broadcast(counts, out.shape, [params["dimension"]])]
        if name == "broadcast_in_dim":
            return [_broadcast(operands[0], out.shape, params["broadcast_dimensions"])]
        if name == "convert_element_type":
            return [operands[0].astype(out.dtype)]
        if name == "reshape":
            return [operands[0].reshape(out.shape)]
    with jax.ensure_compile_time_eval():
        results = eqn.primitive.bind(*operands, **params)
    return list(results) if eqn.primitive.multiple_results else [results]


def _broadcast(x: np.ndarray, shape: Sequence[int], dimensions: Sequence[int]) -> np.ndarray:
    aligned = [1] * len(shape)
    for size, target in zip(x.shape, dimensions, strict=True):
        aligned[target] = size
    return np.broadcast_to(x.reshape(aligned), shape)


def source_line(eqn: Any) -> str:
    """`file.py:12`, the innermost line that is not in an installed package; empty if unknown."""
    traceback = getattr(eqn.source_info, "traceback", None)
    for frame in traceback.frames if traceback is not None else ():
        if _is_users(frame.file_name):
            name = frame.file_name.replace("\\", "/").rsplit("/", 1)[-1]
            return f"{name}:{frame.line_num}"
    return ""


@lru_cache(maxsize=4096)
def _is_users(file_name: str) -> bool:
    installed = any(part in file_name for part in ("site-packages", "dist-packages"))
    library = file_name.startswith(("<", sysconfig.get_paths()["stdlib"]))
    return not installed and not library
