"""Axis terms: what is known of how each axis of a value permutes.

A term describes one axis of one value:

| term | the axis |
|---|---|
| `Axis` | carries a permutation not known further; unifying makes two of them one |
| `Uniform` | the value is constant along it, so any permutation leaves it alone |
| `Prod` | the row-major product of its factors |
| `Cat` | the concatenation of its parts |
| `Family` | at each index of another, fixed axis of the same value a term of its own |

Terms are immutable but for `Axis`, which unification links to another term, and which keeps
why. Everything restricts the group and nothing enlarges it, so where no common structure is
found, fixing both sides is always right; what they have in common is then a new fixed axis.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class Reason:
    """Why two axes permute together, or an axis does not: an operation and its source line."""

    text: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.text} ({self.where})" if self.where else self.text


class Axis:
    """An axis with a permutation of its own, until unified with something else.

    Attributes:
        size: its number of elements.
        origin: the parameter or input it comes from, for explanations.
        link: what it turned out to be, with `reason`.
        fixed: why it does not permute; None while it may.
        touched: whether an operation has used more of it than its place in one array. Only
            an axis that no operation has is still free to differ from layer to layer.
        shuffled: whether its entries are others' that have moved or mixed. It is fixed, and
            nothing may be nested in it: index i of it is not index i of what it came from,
            though unification may make the two one.
    """

    __slots__ = (
        "fixed", "label", "link", "origin", "reason", "shuffled", "size", "touched", "weight",
    )  # fmt: skip

    def __init__(self, size: int, origin: str = "", fixed: Reason | None = None):
        self.size, self.origin, self.fixed = size, origin, fixed
        self.link: Term | None = None
        self.reason: Reason | None = None
        self.touched = self.shuffled = False
        self.label: str | None = None
        self.weight = 1

    def __repr__(self) -> str:
        return f"Axis({self.origin or hex(id(self))}, {self.size})"


@dataclass(frozen=True)
class Uniform:
    """An axis along which the value is constant, or one of size one."""

    size: int


@dataclass(frozen=True, eq=False)
class Prod:
    """A row-major product of at least two factors, none of them a product or of size one."""

    factors: tuple["Term", ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(factor.size for factor in self.factors)


@dataclass(frozen=True, eq=False)
class Cat:
    """A concatenation of at least two parts, none of them a concatenation."""

    parts: tuple["Term", ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, eq=False)
class Family:
    """One term for each index of the fixed axis `index` of the same value."""

    index: Axis
    members: tuple["Term", ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.members[0].size


Term = Axis | Uniform | Prod | Cat | Family


def resolve(term: Term) -> Term:
    """What a term has turned out to be; its outermost form is final."""
    while isinstance(term, Axis) and term.link is not None:
        term = term.link
    if isinstance(term, Prod):
        return product(term.factors)
    if isinstance(term, Cat):
        return concat(term.parts)
    if isinstance(term, Family):
        members = [resolve(member) for member in term.members]
        return members[0] if all(same(m, members[0]) for m in members[1:]) else term
    return term


def axis(size: int, origin: str = "", fixed: Reason | None = None) -> Term:
    """A new axis; one of size one has nothing to permute."""
    return Uniform(1) if size == 1 else Axis(size, origin, fixed)


def shuffled(size: int, reason: Reason) -> Term:
    """A new fixed axis for entries that have moved or mixed."""
    new = axis(size, fixed=reason)
    if isinstance(new, Axis):
        new.shuffled = True
    return new


def product(factors: Iterable[Term]) -> Term:
    """The product of terms, flattened; neighbouring uniform factors are one."""
    flat: list[Term] = []
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


def concat(parts: Iterable[Term]) -> Term:
    """The concatenation of terms, flattened. Uniform parts stay apart: their values differ."""
    flat: list[Term] = []
    for part in map(resolve, parts):
        if part.size:
            flat.extend(part.parts if isinstance(part, Cat) else (part,))
    return flat[0] if len(flat) == 1 else Cat(tuple(flat))


def atoms(term: Term) -> Iterator[Axis]:
    """The unlinked axes in a term, from left to right, with repetitions."""
    term = resolve(term)
    if isinstance(term, Axis):
        yield term
    for child in children(term):
        yield from atoms(child)


def children(term: Term) -> tuple[Term, ...]:
    """The factors, parts or members of a resolved term."""
    if isinstance(term, Prod):
        return term.factors
    if isinstance(term, Cat):
        return term.parts
    return term.members if isinstance(term, Family) else ()


def find_families(term: Term) -> Iterator[Family]:
    """The families in a term, and in their members."""
    term = resolve(term)
    if isinstance(term, Family):
        yield term
    for child in children(term):
        yield from find_families(child)


def has_family(term: Term) -> bool:
    """Whether a term differs from layer to layer."""
    return any(True for _ in find_families(term))


def fix(term: Term, reason: Reason) -> None:
    """No element of the axis may move."""
    for atom in atoms(term):
        atom.touched = True
        atom.fixed = atom.fixed or reason


def is_fixed(term: Term) -> bool:
    """Whether nothing along the axis moves: also where concatenated parts are single elements."""
    term = resolve(term)
    if isinstance(term, Uniform):
        return term.size == 1
    if isinstance(term, Axis):
        return term.fixed is not None
    return all(is_fixed(child) for child in children(term))


def same(a: Term, b: Term) -> bool:
    """Whether two terms describe the same permutations in the same form."""
    a, b = resolve(a), resolve(b)
    if a is b or a == b:
        return True
    if type(a) is not type(b) or not children(a) or len(children(a)) != len(children(b)):
        return False
    return all(same(x, y) for x, y in zip(children(a), children(b), strict=True))
