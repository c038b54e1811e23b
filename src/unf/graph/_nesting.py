"""Which permutations are nested: each index of `h` has a permutation of `k` of its own.

`k` may be nested in `h` if every value that carries `k` carries `h` exactly once: wherever
entries along `k` are combined, they are combined at one index of `h`. This finds attention heads,
group norm, grouped convolutions and mixtures of experts; a scale shared by all heads is a value
with `k` alone, and rightly prevents it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import product as combinations
from math import prod

from ._expressions import Cat, Expr, Family, Prod, Variable, find_families, resolve, variables

MOST_CASES = 256


def find_parents(values: Iterable[Sequence[Expr]]) -> dict[Variable, Variable]:
    """For each nested variable, its parent; `values` are all values' expressions."""
    candidates: dict[Variable, dict[Variable, None]] = {}
    seen: set[tuple] = set()
    for exprs in values:
        for case in _cases(exprs):
            if case is None:  # too many to check: nest nothing that occurs here
                candidates.update({v: {} for expr in exprs for v in variables(expr)})
                continue
            key = tuple(sorted((id(v), count) for v, count in case.items()))
            if key in seen:
                continue
            seen.add(key)
            once = {v: None for v, count in case.items() if count == 1 and not v.mixed}
            for v in case:
                if v.fixed is None:
                    before = candidates.get(v, once)
                    candidates[v] = {p: None for p in before if p in once and p is not v}
    return _innermost(candidates)


def _innermost(candidates: dict[Variable, dict[Variable, None]]) -> dict[Variable, Variable]:
    """Of several candidates, the one that is itself nested in most of the others."""
    parents: dict[Variable, Variable] = {}
    for v, among in candidates.items():
        ranked = sorted(among, key=lambda p: -sum(q in candidates.get(p, {}) for q in among))
        for parent in ranked:
            if v not in _lineage(parent, parents):
                parents[v] = parent
                break
    return parents


def _lineage(v: Variable | None, parents: dict[Variable, Variable]) -> Iterator[Variable]:
    while v is not None:
        yield v
        v = parents.get(v)


def _cases(exprs: Sequence[Expr]) -> Iterator[Counter[Variable] | None]:
    """The variables that occur together, for each choice of parts and layers; None if too many."""
    families = {_last(f.index): f for t in exprs for f in find_families(t)}
    lengths = [len(f.members) for f in families.values()]
    for layers in combinations(*map(range, lengths)):
        chosen = dict(zip(families, layers, strict=True))
        options = [_options(expr, chosen) for expr in exprs]
        if prod(map(len, options)) > MOST_CASES:
            yield None
            return
        for choice in combinations(*options):
            yield sum(choice, Counter())


def _last(v: Variable) -> Variable:
    """The last variable that one was bound to, even if that was cut since."""
    while isinstance(v.link, Variable):
        v = v.link
    return v


def _options(expr: Expr, layers: dict[Variable, int]) -> list[Counter[Variable]]:
    expr = resolve(expr)
    if isinstance(expr, Variable):
        return [Counter({expr: 1})]
    if isinstance(expr, Family):
        return _options(expr.members[layers[_last(expr.index)]], layers)
    if isinstance(expr, Cat):
        return [option for part in expr.parts for option in _options(part, layers)]
    if isinstance(expr, Prod):
        options = [_options(factor, layers) for factor in expr.factors]
        return [sum(choice, Counter()) for choice in combinations(*options)]
    return [Counter()]
