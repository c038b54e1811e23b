"""Which permutations are nested: each index of `h` has a permutation of `k` of its own.

`k` may be nested in `h` if it is clear everywhere at which index of `h` the entries along `k` are
combined. It is in either of two cases:

- Every value that carries `k` carries `h` exactly once. This finds attention heads, group norm,
  grouped convolutions and mixtures of experts; a scale shared by all heads is a value with `k`
  alone, and rightly prevents it.
- Every axis that carries `k` carries `h`, which is not fixed, exactly once and before it. This
  finds a group norm of a residual stream, whose weights have two axes `(h k)`.

The two cannot be mixed: in `x[(h k)] * y[h, k]`, with axes `h, (h k)`, the second `k` belongs to
another `h` than the first.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from itertools import product as combinations
from math import prod

from ._expressions import Cat, Expr, Family, Prod, Variable, find_families, resolve, variables

MOST_CASES = 256
Candidates = dict[Variable, dict[Variable, None]]
Option = tuple[Variable, ...]


def find_parents(
    values: Iterable[Sequence[Expr]], indices: Mapping[Variable, Variable]
) -> dict[Variable, Variable]:
    """For each nested variable, its parent; `values` are all values' expressions.

    A variable that stands at one of the `indices` of another axis is not nested in that axis.
    """
    by_value: Candidates = {}
    by_axis: Candidates = {}
    seen: set = set()
    for exprs in values:
        for options in _options_by_axis(exprs):
            for option in chain(*options):
                if option not in seen:
                    seen.add(option)
                    _narrow_by_axis(by_axis, option)
            if prod(map(len, options)) > MOST_CASES:  # too many to check: nest nothing here
                by_value.update({v: {} for expr in exprs for v in variables(expr)})
                continue
            for choice in combinations(*options):
                case = Counter(chain(*choice))
                key = frozenset(case.items())
                if key not in seen:
                    seen.add(key)
                    _narrow_by_value(by_value, case)
    for v, index in indices.items():
        by_value.get(v, {}).pop(index, None)
    return _innermost({v: by_value.get(v) or among for v, among in by_axis.items()})


def nested_so_far(
    index: Variable, among: Iterable[Variable], values: Iterable[Sequence[Expr]]
) -> set[Variable]:
    """Those of some variables that every value so far carries only together with `index`."""
    kept = set(among)
    for exprs in values:
        present = kept.intersection(v for expr in exprs for v in variables(expr))
        for options in _options_by_axis(exprs) if present else ():
            if prod(map(len, options)) > MOST_CASES:
                kept -= present
                break
            for choice in combinations(*options):
                case = Counter(chain(*choice))
                if case[index] != 1:
                    kept.difference_update(case)
    return kept


def _narrow_by_value(candidates: Candidates, case: Counter[Variable]) -> None:
    once = {v: None for v, count in case.items() if count == 1 and not v.mixed}
    for v in case:
        if v.fixed is None:
            before = candidates.get(v, once)
            candidates[v] = {p: None for p in before if p in once and p is not v}


def _narrow_by_axis(candidates: Candidates, option: Option) -> None:
    """Of fixed axes none is a candidate: a specification cannot tell two of them apart."""
    for i, v in enumerate(option):
        if v.fixed is None:
            once = {p: None for p in option[:i] if option.count(p) == 1 and p.fixed is None}
            before = candidates.get(v, once)
            candidates[v] = {p: None for p in before if p in once}


def _innermost(candidates: Candidates) -> dict[Variable, Variable]:
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


def _options_by_axis(exprs: Sequence[Expr]) -> Iterator[list[list[Option]]]:
    """For each choice of layers, and for each axis, the variables that each part is made of."""
    families = {_last(f.index): f for t in exprs for f in find_families(t)}
    lengths = [len(f.members) for f in families.values()]
    for layers in combinations(*map(range, lengths)):
        chosen = dict(zip(families, layers, strict=True))
        yield [_options(expr, chosen) for expr in exprs]


def _last(v: Variable) -> Variable:
    """The last variable that one was bound to, even if that was cut since."""
    while isinstance(v.link, Variable):
        v = v.link
    return v


def _options(expr: Expr, layers: dict[Variable, int]) -> list[Option]:
    expr = resolve(expr)
    if isinstance(expr, Variable):
        return [(expr,)]
    if isinstance(expr, Family):
        return _options(expr.members[layers[_last(expr.index)]], layers)
    if isinstance(expr, Cat):
        return list({option: None for part in expr.parts for option in _options(part, layers)})
    if isinstance(expr, Prod):
        options = [_options(factor, layers) for factor in expr.factors]
        return [tuple(chain(*choice)) for choice in combinations(*options)]
    return [()]
