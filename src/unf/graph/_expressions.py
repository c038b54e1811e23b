"""Expressions for axes: what is known about how each axis of a value permutes.

| expression | the axis |
|---|---|
| `Variable` | carries a permutation of its own; unifying makes two of them one |
| `Uniform` | the value is constant along it, so permuting it changes nothing |
| `Prod` | is the row-major product of its factors |
| `Cat` | is the concatenation of its parts |
| `Family` | has an expression of its own at each index of another, fixed axis of the same value |

Expressions are immutable except for `Variable`, which unification binds to another expression
and which remembers why. Everything here restricts the group and nothing enlarges it, so where two
axes have no common structure, fixing both is always sound.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class Reason:
    """Why two axes permute together, or why one is fixed: an operation and its source line."""

    text: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.text} ({self.where})" if self.where else self.text


class Variable:
    """An axis with a permutation of its own, until it is unified with something else.

    Attributes:
        size: its number of elements.
        origin: the parameter or input it comes from, for explanations.
        link: the expression it is bound to, because of `reason`.
        fixed: why it does not permute; None while it may.
        label: the name of an input's or output's axis.
        touched: whether an operation has used more of it than its place in one array. An axis
            that no operation has touched may still differ from layer to layer; for others, every
            value so far has to be looked at.
        layered: whether it is the axis of one of several layers that are stacked in an array.
        mixed: whether its entries are those of another axis, moved or mixed. It is fixed, and
            nothing may be nested in it: its index i is not index i of the original axis,
            though unification may make the two one.
        weight: how many variables are bound to it.
    """

    __slots__ = (
        "fixed", "label", "layered", "link", "mixed", "origin", "reason", "size", "touched",
        "weight",
    )  # fmt: skip

    def __init__(self, size: int, origin: str = "", fixed: Reason | None = None):
        self.size, self.origin, self.fixed = size, origin, fixed
        self.link: Expr | None = None
        self.reason: Reason | None = None
        self.touched = self.mixed = self.layered = False
        self.label: str | None = None
        self.weight = 1

    def __repr__(self) -> str:
        return f"Variable({self.origin or hex(id(self))}, {self.size})"


@dataclass(frozen=True)
class Uniform:
    """An axis along which the value is constant, or one of size one."""

    size: int


@dataclass(frozen=True, eq=False)
class Prod:
    """A row-major product of at least two factors, none of them a product or of size one."""

    factors: tuple["Expr", ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(factor.size for factor in self.factors)


@dataclass(frozen=True, eq=False)
class Cat:
    """A concatenation of at least two parts, none of them a concatenation."""

    parts: tuple["Expr", ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, eq=False)
class Family:
    """One expression for each index of the fixed axis `index` of the same value."""

    index: Variable
    members: tuple["Expr", ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.members[0].size


Expr = Variable | Uniform | Prod | Cat | Family


def new_axis(size: int, origin: str = "", fixed: Reason | None = None) -> Expr:
    """A new variable; an axis of size one is uniform, since it has nothing to permute."""
    return Uniform(1) if size == 1 else Variable(size, origin, fixed)


def fixed_axis(size: int, reason: Reason, *origins: Expr) -> Expr:
    """A new fixed axis for a result whose entries have moved or mixed.

    The axes that the entries come from, `origins`, are fixed too.
    """
    for origin in origins:
        fix(origin, reason)
    new = new_axis(size, fixed=reason)
    if isinstance(new, Variable):
        new.mixed = True
    return new


def product(factors: Iterable[Expr]) -> Expr:
    """The product of expressions, flattened; neighboring uniform factors become one."""
    flat: list[Expr] = []
    for factor in map(resolve, factors):
        for part in factor.factors if isinstance(factor, Prod) else (factor,):
            if part.size == 1 and isinstance(part, Uniform):
                continue
            if isinstance(part, Uniform) and flat and isinstance(flat[-1], Uniform):
                part = Uniform(flat.pop().size * part.size)
            flat.append(part)
    if len(flat) <= 1:
        return flat[0] if flat else Uniform(1)
    return Prod(tuple(flat))


def concat(parts: Iterable[Expr]) -> Expr:
    """The concatenation of expressions, flattened. Uniform parts may differ in value: both stay."""
    flat: list[Expr] = []
    for part in map(resolve, parts):
        if part.size:
            flat.extend(part.parts if isinstance(part, Cat) else (part,))
    return flat[0] if len(flat) == 1 else Cat(tuple(flat))


def resolve(expr: Expr) -> Expr:
    """What an expression is bound to by now; its outermost form is final."""
    while isinstance(expr, Variable) and expr.link is not None:
        expr = expr.link
    if isinstance(expr, Prod):
        return product(expr.factors)
    if isinstance(expr, Cat):
        return concat(expr.parts)
    if isinstance(expr, Family):
        members = [resolve(member) for member in expr.members]
        return members[0] if all(same(m, members[0]) for m in members[1:]) else expr
    return expr


def children(expr: Expr) -> tuple[Expr, ...]:
    """The factors, parts or members of a resolved expression."""
    if isinstance(expr, Prod):
        return expr.factors
    if isinstance(expr, Cat):
        return expr.parts
    return expr.members if isinstance(expr, Family) else ()


def rebuild(expr: Expr, new: Iterable[Expr]) -> Expr:
    """An expression of the same form with other children; itself if it has none."""
    if isinstance(expr, Prod):
        return product(new)
    if isinstance(expr, Cat):
        return concat(new)
    return Family(expr.index, tuple(new)) if isinstance(expr, Family) else expr


def variables(expr: Expr) -> Iterator[Variable]:
    """The unbound variables in an expression, from left to right, with repetitions."""
    expr = resolve(expr)
    if isinstance(expr, Variable):
        yield expr
    for child in children(expr):
        yield from variables(child)


def find_families(expr: Expr) -> Iterator[Family]:
    """The families in an expression, and those in their members."""
    expr = resolve(expr)
    if isinstance(expr, Family):
        yield expr
    for child in children(expr):
        yield from find_families(child)


def fix(expr: Expr, reason: Reason) -> None:
    """Fix an axis: none of its elements may move."""
    for variable in variables(expr):
        variable.touched = True
        variable.fixed = variable.fixed or reason


def is_fixed(expr: Expr) -> bool:
    """Whether no element of the axis moves, as also where all concatenated parts have size one."""
    expr = resolve(expr)
    if isinstance(expr, Uniform):
        return expr.size == 1
    if isinstance(expr, Variable):
        return expr.fixed is not None
    return all(is_fixed(child) for child in children(expr))


def same(a: Expr, b: Expr) -> bool:
    """Whether two expressions describe the same permutations in the same form."""
    a, b = resolve(a), resolve(b)
    if a is b or a == b:
        return True
    if type(a) is not type(b) or not children(a) or len(children(a)) != len(children(b)):
        return False
    return all(same(x, y) for x, y in zip(children(a), children(b), strict=True))
