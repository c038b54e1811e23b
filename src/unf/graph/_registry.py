"""The table of rules: what each primitive does to axes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ._expressions import Expr, Reason, fix, fixed_axis
from ._values import Value

Rule = Callable[..., Value | list[Value]]


@dataclass(frozen=True)
class Equation:
    """One operation, as a rule sees it.

    Attributes:
        primitive: its name.
        params: its parameters, as in the jaxpr.
        out_shapes: the shapes of its results.
        reason: what to pass to `unify` and `fix`, so that explanations name the source line.
        run: interprets an inner jaxpr on abstract values, for operations that contain one.
        values: every value seen so far.
    """

    primitive: str
    params: dict[str, Any]
    out_shapes: tuple[tuple[int, ...], ...]
    reason: Reason
    run: Callable[[Any, Sequence[Value]], list[Value]]
    values: list[Value]

    def note(self, axes: Sequence[Expr]) -> None:
        """Record a value inside the operation that is neither an operand nor a result.

        What is nested depends on every value: a matrix product has all axes of both operands
        before it sums; a normalization along an axis has a mean without that axis.
        """
        self.values.append(Value.of(axes))


RULES: dict[str, Rule] = {}
STACKABLE: set[str] = set()


def register_rule(*primitives: Any, stackable: bool = False) -> Callable[[Rule], Rule]:
    """Teach `infer` what a primitive does to axes: a decorator.

    The rule takes an `Equation` and a `Value` for each operand, calls `unify` on axes that
    must permute together and `fix` on those that must not, and returns a `Value` for each
    result. It must be sound: if every operand is permuted along its axes, the result is
    permuted along the axes that the rule returns. An operation that mixes entries along an
    axis must also `Equation.note` the axes of its intermediate values: those of a product
    before it is summed, those that remain of a mean.

    Args:
        *primitives: the names of the primitives, as `jax.make_jaxpr` prints them.
        stackable: whether the rule handles layers stacked along an axis; if not, their
            permutations are unified before it is called.

    >>> from unf.graph import Value, register_rule, unify
    >>> @register_rule("my_scaled_add")
    ... def scaled_add(equation, x, y):
    ...     pairs = zip(x.axes, y.axes, strict=True)
    ...     return Value.of([unify(a, b, equation.reason) for a, b in pairs])
    >>> _ = RULES.pop("my_scaled_add")  # forget it again
    """
    for name in primitives:
        if not isinstance(name, str):
            raise TypeError(
                f"register_rule takes names of primitives, e.g. 'dot_general', not {name!r}"
            )

    def register(rule: Rule) -> Rule:
        for name in primitives:
            RULES[name] = rule
            STACKABLE.discard(name)
            if stackable:
                STACKABLE.add(name)
        return rule

    return register


def fixed_axes(shape: Sequence[int], reason: Reason) -> list[Expr]:
    """A new fixed axis for each dimension."""
    return [fixed_axis(size, reason) for size in shape]


def fix_everything(equation: Equation, *operands: Value) -> list[Value]:
    """The rule for operations that nothing is known about: fix every axis they touch."""
    for operand in operands:
        for expr in operand.exprs:
            fix(expr, equation.reason)
    return [Value.of(fixed_axes(shape, equation.reason)) for shape in equation.out_shapes]
