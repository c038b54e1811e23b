"""Unification: making two axes one, and cutting or splitting what they are made of."""

from collections.abc import Sequence
from math import prod

from ._terms import (
    Axis,
    Cat,
    Family,
    Prod,
    Reason,
    Term,
    Uniform,
    atoms,
    axis,
    concat,
    fix,
    product,
    resolve,
    shuffled,
)

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
