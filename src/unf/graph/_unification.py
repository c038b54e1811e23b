"""Unification: making two axes permute together, and splitting or cutting them where needed."""

from collections.abc import Sequence
from itertools import accumulate
from math import prod

from ._expressions import (
    Cat,
    Expr,
    Family,
    Prod,
    Reason,
    Uniform,
    Variable,
    children,
    concat,
    fix,
    fixed_axis,
    is_fixed,
    new_axis,
    product,
    rebuild,
    resolve,
    variables,
)

MOST_CUTS = 64
"""How often concatenations are cut at each other's ends. Adding an array to itself shifted by one
would cut a long axis into single elements, which leaves nothing to permute in any case."""


def unify(a: Expr, b: Expr, reason: Reason, cuts: int = 0) -> Expr:
    """Make two axes permute together, and return the axis of a value that has both.

    A uniform axis agrees with anything and does not change.
    """
    a, b = resolve(a), resolve(b)
    if a is b or isinstance(b, Uniform):
        return a
    if isinstance(a, Uniform):
        return b
    if isinstance(a, Variable) and isinstance(b, Variable):
        return _link(a, b, reason)
    if isinstance(a, Variable):
        return _bind(a, b, reason)
    if isinstance(b, Variable):
        return _bind(b, a, reason)
    if isinstance(a, Family) or isinstance(b, Family):
        return _unify_families(a, b, reason)
    if isinstance(a, Cat) or isinstance(b, Cat):
        if is_fixed(a) and is_fixed(b):  # nothing permutes, so nothing needs common ends
            return a
        if cuts > MOST_CUTS:
            return fixed_axis(a.size, reason, a, b)
        ends = sorted({*_ends(a), *_ends(b)})
        pairs = zip(cut(a, ends, reason), cut(b, ends, reason), strict=True)
        return concat([unify(x, y, reason, cuts + 1) for x, y in pairs])
    assert isinstance(a, Prod) and isinstance(b, Prod)
    return _unify_products(a, b, reason)


def _link(a: Variable, b: Variable, reason: Reason) -> Variable:
    a.touched = b.touched = True
    if a.weight > b.weight:
        a, b = b, a
    a.link, a.reason = b, reason
    b.weight += a.weight
    b.fixed = b.fixed or a.fixed
    b.label = b.label or a.label
    b.mixed = b.mixed or a.mixed
    b.layered = b.layered or a.layered
    return b


def _bind(a: Variable, structure: Expr, reason: Reason) -> Expr:
    structure = _with_variables(structure)
    if isinstance(structure, Family) and (a.touched or any(x is a for x in variables(structure))):
        # Elsewhere it may lack the axis that counts the layers: one permutation for all.
        return unify(a, collapse(structure, reason), reason)
    a.link, a.reason = structure, reason
    for variable in variables(structure):
        variable.touched = True
        variable.mixed = variable.mixed or a.mixed
        variable.layered = variable.layered or a.layered
    if a.fixed is not None:
        fix(structure, a.fixed)
    return structure


def _with_variables(expr: Expr) -> Expr:
    """The expression with a new variable for each uniform part, as a parameter may have.

    `(a + b) uniform` is `(a uniform) + (b uniform)`, with a variable for each.
    """
    expr = resolve(expr)
    if isinstance(expr, Uniform):
        return new_axis(expr.size)
    if isinstance(expr, Prod):
        first, *rest = map(resolve, expr.factors)
        if isinstance(first, Cat) and any(isinstance(factor, Uniform) for factor in rest):
            return concat([_with_variables(product([part, *rest])) for part in first.parts])
    return rebuild(expr, [_with_variables(child) for child in children(expr)])


def _unify_families(a: Expr, b: Expr, reason: Reason) -> Expr:
    if isinstance(a, Family) and isinstance(b, Family) and resolve(a.index) is resolve(b.index):
        pairs = zip(a.members, b.members, strict=True)
        return Family(a.index, tuple(unify(x, y, reason) for x, y in pairs))
    return unify(collapse(a, reason), collapse(b, reason), reason)


def collapse(expr: Expr, reason: Reason) -> Expr:
    """The expression without families: the members of each are unified."""
    expr = resolve(expr)
    found = [collapse(child, reason) for child in children(expr)]
    return unify_all(found, reason) if isinstance(expr, Family) else rebuild(expr, found)


def unify_all(exprs: Sequence[Expr], reason: Reason) -> Expr:
    """Make several axes permute together."""
    joined = exprs[0]
    for expr in exprs[1:]:
        joined = unify(joined, expr, reason)
    return joined


def _unify_products(a: Prod, b: Prod, reason: Reason) -> Expr:
    """Match factors from the right, splitting the larger where sizes divide.

    A concatenation matches several factors at once if they fit, since only its parts need to
    split then, each on its own.
    """
    left, right = list(a.factors), list(b.factors)
    joined: list[Expr] = []
    while left and right:
        x, y = resolve(left.pop()), resolve(right.pop())
        if x.size < y.size:
            x, y, left, right = y, x, right, left
        while isinstance(x, Cat) and right and x.size % (y.size * right[-1].size) == 0:
            y = product([right.pop(), y])
        if x.size % y.size:
            return fixed_axis(a.size, reason, x, y, *left, *right, *joined)
        if x.size > y.size:
            outer, x = split(x, x.size // y.size, reason)
            left.append(outer)
        joined.insert(0, unify(x, y, reason))
    return product(joined)


def split(expr: Expr, outer: int, reason: Reason) -> tuple[Expr, Expr]:
    """Write an axis as a product whose first factor has `outer` elements."""
    expr = resolve(expr)
    inner = expr.size // outer
    assert outer * inner == expr.size
    if outer == 1 or inner == 1:
        return (Uniform(1), expr) if outer == 1 else (expr, Uniform(1))
    if isinstance(expr, Uniform):
        return Uniform(outer), Uniform(inner)
    if isinstance(expr, Variable):
        factors = _part(expr, outer), _part(expr, inner)
        expr.link, expr.reason = Prod(factors), reason
        return factors
    if isinstance(expr, Family):
        pairs = [split(member, outer, reason) for member in expr.members]
        outers, inners = zip(*pairs, strict=True)
        return Family(expr.index, tuple(outers)), Family(expr.index, tuple(inners))
    found = _split_product(expr, inner, reason) if isinstance(expr, Prod) else None
    if isinstance(expr, Cat) and all(part.size % inner == 0 for part in expr.parts):
        pairs = [split(part, part.size // inner, reason) for part in expr.parts]
        outers, inners = zip(*pairs, strict=True)
        found = concat(outers), unify_all(inners, reason)
    if found is None:
        return fixed_axis(outer, reason, expr), fixed_axis(inner, reason)
    return found


def outer_factor(expr: Expr, outer: int, reason: Reason) -> Expr:
    """The first factor, of `outer` elements, of an axis whose second factor is reduced.

    As `split`, except that the parts of a concatenation keep second factors of their own.
    """
    expr = resolve(expr)
    inner = expr.size // outer
    if isinstance(expr, Cat) and outer > 1 and all(part.size % inner == 0 for part in expr.parts):
        return concat([outer_factor(p, p.size // inner, reason) for p in expr.parts])
    if isinstance(expr, Prod):
        kept, left = [], outer
        for factor in expr.factors:
            if left % factor.size:
                break
            kept.append(factor)
            left //= factor.size
        else:
            return expr
        if factor.size % left == 0:
            return product([*kept, outer_factor(factor, left, reason)])
    return split(expr, outer, reason)[0]


def _part(whole: Variable, size: int) -> Expr:
    """A factor or part of an axis, fixed or mixed if the axis is."""
    part = new_axis(size, fixed=whole.fixed)
    if isinstance(part, Variable):
        part.mixed, part.layered = whole.mixed, whole.layered
    return part


def _split_product(expr: Prod, inner: int, reason: Reason) -> tuple[Expr, Expr] | None:
    left, right, size = list(expr.factors), [], 1
    while size < inner:
        factor = left.pop()
        size *= factor.size
        right.insert(0, factor)
    if size > inner:
        excess = size // inner
        if size % inner or right[0].size % excess:
            return None
        first, right[0] = split(right[0], excess, reason)
        left.append(first)
    return product(left), product(right)


def cut(expr: Expr, ends: Sequence[int], reason: Reason) -> list[Expr]:
    """Write an axis as a concatenation of parts that end at `ends`, the last being its size."""
    expr = resolve(expr)
    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    assert sum(sizes) == expr.size
    if len(sizes) == 1:
        return [expr]
    if isinstance(expr, Uniform):
        return [Uniform(size) for size in sizes]
    if isinstance(expr, Variable):
        parts = [_part(expr, size) for size in sizes]
        expr.link, expr.reason = concat(parts), reason
        return parts
    if isinstance(expr, Family):
        columns = zip(*[cut(member, ends, reason) for member in expr.members], strict=True)
        return [Family(expr.index, tuple(column)) for column in columns]
    if isinstance(expr, Cat):
        return _cut_parts(expr, list(ends), reason)
    assert isinstance(expr, Prod)
    first, *rest = expr.factors
    inner = prod(factor.size for factor in rest)
    if any(end % inner for end in ends):
        return [fixed_axis(size, reason, expr) for size in sizes]
    pieces = cut(first, [end // inner for end in ends], reason)
    return [product([piece, *rest]) for piece in pieces]


def _cut_parts(expr: Cat, ends: list[int], reason: Reason) -> list[Expr]:
    pieces: list[list[Expr]] = [[] for _ in ends]
    start = 0
    for part in expr.parts:
        stop = start + part.size
        inside = sorted({end - start for end in ends if start < end < stop} | {part.size})
        position = start
        for piece in cut(part, inside, reason):
            target = next(i for i, end in enumerate(ends) if position < end)
            pieces[target].append(piece)
            position += piece.size
        start = stop
    return [concat(piece) for piece in pieces]


def _ends(expr: Expr) -> list[int]:
    parts = expr.parts if isinstance(expr, Cat) else (expr,)
    return list(accumulate(part.size for part in parts))
