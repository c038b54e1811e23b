"""Axis terms and their unification: what is known of how each axis of a value permutes.

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

from collections.abc import Iterable, Iterator, Sequence
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


# How many times concatenations may be cut at each other's ends: a shift by one along a long
# axis would go on for all its elements, and leaves nothing to permute in any case.
MOST_CUTS = 64


def unify(a: Term, b: Term, reason: Reason, cuts: int = 0) -> Term:
    """Make two axes permute together; the term of a value that has both (a join).

    A uniform axis agrees with anything and learns nothing.
    """
    a, b = resolve(a), resolve(b)
    if a is b or isinstance(b, Uniform):
        return a
    if isinstance(a, Uniform):
        return b
    if isinstance(a, Axis) and isinstance(b, Axis):
        return _link_axes(a, b, reason)
    if isinstance(a, Axis):
        return _bind(a, b, reason)
    if isinstance(b, Axis):
        return _bind(b, a, reason)
    if isinstance(a, Family) or isinstance(b, Family):
        return _unify_families(a, b, reason)
    if isinstance(a, Cat) or isinstance(b, Cat):
        if cuts > MOST_CUTS:
            fix(a, reason)
            fix(b, reason)
            return shuffled(a.size, reason)
        ends = sorted({*_ends(a), *_ends(b)})
        pairs = zip(cut(a, ends, reason), cut(b, ends, reason), strict=True)
        return concat([unify(x, y, reason, cuts + 1) for x, y in pairs])
    assert isinstance(a, Prod) and isinstance(b, Prod)
    return _unify_products(a, b, reason)


def _link_axes(a: Axis, b: Axis, reason: Reason) -> Axis:
    a.touched = b.touched = True
    if a.weight > b.weight:
        a, b = b, a
    a.link, a.reason = b, reason
    b.weight += a.weight
    b.fixed = b.fixed or a.fixed
    b.label = b.label or a.label
    b.shuffled = b.shuffled or a.shuffled
    return b


def _bind(a: Axis, structure: Term, reason: Reason) -> Term:
    structure = _with_axes(structure)
    if isinstance(structure, Family) and any(x is a for x in atoms(structure)):
        return unify(a, collapse(structure, reason), reason)
    a.link, a.reason = structure, reason
    for atom in atoms(structure):
        atom.touched = True
        atom.shuffled = atom.shuffled or a.shuffled
    if a.fixed is not None:
        fix(structure, a.fixed)
    return structure


def _with_axes(term: Term) -> Term:
    """The term with a new axis for each uniform part: one that a parameter may have."""
    term = resolve(term)
    if isinstance(term, Uniform):
        return axis(term.size)
    if isinstance(term, Prod):
        return product([_with_axes(factor) for factor in term.factors])
    if isinstance(term, Cat):
        return concat([_with_axes(part) for part in term.parts])
    if isinstance(term, Family):
        return Family(term.index, tuple(_with_axes(member) for member in term.members))
    return term


def _unify_families(a: Term, b: Term, reason: Reason) -> Term:
    if isinstance(a, Family) and isinstance(b, Family) and resolve(a.index) is resolve(b.index):
        pairs = zip(a.members, b.members, strict=True)
        return Family(a.index, tuple(unify(x, y, reason) for x, y in pairs))
    return unify(collapse(a, reason), collapse(b, reason), reason)


def collapse(term: Term, reason: Reason) -> Term:
    """The term without families: all members made one."""
    term = resolve(term)
    if isinstance(term, Family):
        joined = collapse(term.members[0], reason)
        for member in term.members[1:]:
            joined = unify(joined, collapse(member, reason), reason)
        return joined
    if isinstance(term, Prod):
        return product([collapse(factor, reason) for factor in term.factors])
    if isinstance(term, Cat):
        return concat([collapse(part, reason) for part in term.parts])
    return term


def _unify_products(a: Prod, b: Prod, reason: Reason) -> Term:
    """Match factors from the right, splitting the larger where sizes divide."""
    left, right = list(a.factors), list(b.factors)
    joined: list[Term] = []
    while left and right:
        x, y = resolve(left.pop()), resolve(right.pop())
        if x.size < y.size:
            x, y, left, right = y, x, right, left
        if x.size % y.size:
            for term in (x, y, *left, *right, *joined):
                fix(term, reason)
            return shuffled(a.size, reason)
        if x.size > y.size:
            outer, x = split(x, x.size // y.size, reason)
            left.append(outer)
        joined.insert(0, unify(x, y, reason))
    return product(joined)


def split(term: Term, outer: int, reason: Reason) -> tuple[Term, Term]:
    """Write an axis as a product whose first factor has `outer` elements."""
    term = resolve(term)
    inner = term.size // outer
    assert outer * inner == term.size
    if outer == 1 or inner == 1:
        return (Uniform(1), term) if outer == 1 else (term, Uniform(1))
    if isinstance(term, Uniform):
        return Uniform(outer), Uniform(inner)
    if isinstance(term, Axis):
        factors = _part(term, outer), _part(term, inner)
        term.link, term.reason = Prod(factors), reason
        return factors
    if isinstance(term, Family):
        pairs = [split(member, outer, reason) for member in term.members]
        outers, inners = zip(*pairs, strict=True)
        return Family(term.index, tuple(outers)), Family(term.index, tuple(inners))
    found = _split_product(term, inner, reason) if isinstance(term, Prod) else None
    if isinstance(term, Cat) and all(part.size % inner == 0 for part in term.parts):
        pairs = [split(part, part.size // inner, reason) for part in term.parts]
        joined = pairs[0][1]
        for _, part in pairs[1:]:
            joined = unify(joined, part, reason)
        found = concat([first for first, _ in pairs]), joined
    if found is None:
        fix(term, reason)
        return shuffled(outer, reason), shuffled(inner, reason)
    return found


def _part(whole: Axis, size: int) -> Term:
    """A factor or part of an axis, as fixed and shuffled as it was."""
    part = axis(size, fixed=whole.fixed)
    if isinstance(part, Axis):
        part.shuffled = whole.shuffled
    return part


def _split_product(term: Prod, inner: int, reason: Reason) -> tuple[Term, Term] | None:
    left, right, size = list(term.factors), [], 1
    while size < inner:
        factor = left.pop()
        size *= factor.size
        right.insert(0, factor)
    if size > inner:
        excess = size // inner
        if size % inner or right[0].size % excess:
            return None
        first, second = split(right[0], excess, reason)
        left.append(first)
        right[0] = second
    return product(left), product(right)


def cut(term: Term, ends: Sequence[int], reason: Reason) -> list[Term]:
    """Write an axis as a concatenation of parts that end at `ends`, the last being its size."""
    term = resolve(term)
    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    assert sum(sizes) == term.size
    if len(sizes) == 1:
        return [term]
    if isinstance(term, Uniform):
        return [Uniform(size) for size in sizes]
    if isinstance(term, Axis):
        parts = [_part(term, size) for size in sizes]
        term.link, term.reason = concat(parts), reason
        return parts
    if isinstance(term, Family):
        columns = zip(*[cut(member, ends, reason) for member in term.members], strict=True)
        return [Family(term.index, tuple(column)) for column in columns]
    if isinstance(term, Cat):
        return _cut_parts(term, list(ends), reason)
    assert isinstance(term, Prod)
    first, *rest = term.factors
    inner = prod(factor.size for factor in rest)
    if any(end % inner for end in ends):
        fix(term, reason)
        return [shuffled(size, reason) for size in sizes]
    pieces = cut(first, [end // inner for end in ends], reason)
    return [product([piece, *rest]) for piece in pieces]


def _cut_parts(term: Cat, ends: list[int], reason: Reason) -> list[Term]:
    pieces: list[list[Term]] = [[] for _ in ends]
    start = 0
    for part in term.parts:
        stop = start + part.size
        inside = sorted({end - start for end in ends if start < end < stop} | {part.size})
        position = start
        for piece in cut(part, inside, reason):
            target = next(i for i, end in enumerate(ends) if position < end)
            pieces[target].append(piece)
            position += piece.size
        start = stop
    return [concat(piece) for piece in pieces]


def _ends(term: Term) -> list[int]:
    if not isinstance(term, Cat):
        return [term.size]
    ends, total = [], 0
    for part in term.parts:
        total += part.size
        ends.append(total)
    return ends
