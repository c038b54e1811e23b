"""The table of rules: what each primitive does to axes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ._terms import Reason, Term, fix, shuffled
from ._values import Value

Rule = Callable[..., Value | list[Value]]


@dataclass(frozen=True)
class Equation:
    """One operation, as a rule sees it.

    Attributes:
        primitive: its name.
        params: its parameters, as in the jaxpr.
        out_shapes: the shapes of its results.
        reason: what to give `unify` and `fix`, so that explanations name the source line.
        run: interprets an inner jaxpr on abstract values, for operations that hold one.
        values: every value met so far.
    """

    primitive: str
    params: dict[str, Any]
    out_shapes: tuple[tuple[int, ...], ...]
    reason: Reason
    run: Callable[[Any, Sequence[Value]], list[Value]]
    values: list[Value]

    def note(self, axes: Sequence[Term]) -> None:
        """Tell of a value inside the operation that is neither an operand nor a result.

        What is nested depends on every value: a product of matrices has all axes of both
        before it sums; a normalisation along an axis has a mean without that axis.
        """
        self.values.append(Value.of(axes))


RULES: dict[str, Rule] = {}
STACKABLE: set[str] = set()


def register_rule(*primitives: Any, stackable: bool = False) -> Callable[[Rule], Rule]:
    """Teach `infer` what a primitive does to axes: a decorator.

    The rule takes an `Equation` and a `Value` for each operand, calls `unify` on axes that
    must permute together and `fix` on those that must not, and returns the results' axes.
    It must be sound: if every operand is permuted along its axes, the result is permuted
    along the axes the rule returns. An operation that mixes entries along an axis must
    also `Equation.note` the axes of what it computes on the way: those of a product before
    it is summed, those that are left of a mean.

    Args:
        *primitives: the names of the primitives, as `jax.make_jaxpr` prints them.
        stackable: whether the rule handles layers stacked along an axis (`Family` terms);
            if not, they are made one before it is called.

    >>> from unf.graph import RULES, Value, register_rule, unify
    >>> @register_rule("my_scaled_add")
    ... def scaled_add(equation, x, y):
    ...     pairs = zip(x.axes, y.axes, strict=True)
    ...     return Value.of([unify(a, b, equation.reason) for a, b in pairs])
    >>> del RULES["my_scaled_add"]
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


def fixed_axes(shape: Sequence[int], reason: Reason) -> list[Term]:
    """New axes that do not permute."""
    return [shuffled(size, reason) for size in shape]


def fix_everything(equation: Equation, *operands: Value) -> list[Value]:
    """The rule of an operation nothing is known of: nothing it touches may permute."""
    for operand in operands:
        for term in operand.terms:
            fix(term, equation.reason)
    return [Value.of(fixed_axes(shape, equation.reason)) for shape in equation.out_shapes]
