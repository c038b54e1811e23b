"""Which permutations are nested: each index of `h` has a permutation of `k` of its own.

`k` may be nested in `h` if every value that carries `k` carries `h` exactly once: wherever
entries along `k` are combined, they are combined at one index of `h`. Attention heads, group
norm, grouped convolutions and mixtures of experts come out of this; a scale shared by all
heads is a value with `k` alone, and rightly prevents it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import product as combinations
from math import prod

from ._terms import Axis, Cat, Family, Prod, Term, atoms, find_families, resolve

MOST_CASES = 256


def find_parents(values: Iterable[Sequence[Term]]) -> dict[Axis, Axis]:
    """For each axis that is nested, the axis it is nested in.

    Args:
        values: the terms of every value, parameters first.
    """
    candidates: dict[Axis, dict[Axis, None]] = {}
    seen: set[tuple] = set()
    for terms in values:
        for case in _cases(terms):
            if case is None:  # too many to look at: nest nothing that stands here
                candidates.update({atom: {} for term in terms for atom in atoms(term)})
                continue
            key = tuple(sorted((id(atom), count) for atom, count in case.items()))
            if key in seen:
                continue
            seen.add(key)
            alone = {a: None for a, count in case.items() if count == 1 and not a.shuffled}
            for atom in case:
                if atom.fixed is not None:
                    continue
                others = {other: None for other in alone if other is not atom}
                before = candidates.get(atom)
                if before is not None:
                    others = {other: None for other in before if other in others}
                candidates[atom] = others
    return _innermost(candidates)


def _innermost(candidates: dict[Axis, dict[Axis, None]]) -> dict[Axis, Axis]:
    """Of several candidates the one that is itself nested in most of the others."""
    parents: dict[Axis, Axis] = {}
    for atom, among in candidates.items():
        ranked = sorted(among, key=lambda p: -sum(q in candidates.get(p, {}) for q in among))
        for parent in ranked:
            if atom not in _ancestors(parent, parents):
                parents[atom] = parent
                break
    return parents


def _ancestors(atom: Axis | None, parents: dict[Axis, Axis]) -> list[Axis]:
    chain = []
    while atom is not None:
        chain.append(atom)
        atom = parents.get(atom)
    return chain


def _cases(terms: Sequence[Term]) -> Iterator[Counter[Axis] | None]:
    """The axes met together: one case for each choice of parts and of layers; None if too many."""
    families = {_last(f.index): f for t in terms for f in find_families(t)}
    lengths = [len(f.members) for f in families.values()]
    for layers in combinations(*map(range, lengths)):
        chosen = dict(zip(families, layers, strict=True))
        options = [_options(term, chosen) for term in terms]
        if prod(map(len, options)) > MOST_CASES:
            yield None
            return
        for choice in combinations(*options):
            yield sum(choice, Counter())


def _last(axis: Axis) -> Axis:
    """What stands for an axis: the last one it was linked to, even if that was cut."""
    while isinstance(axis.link, Axis):
        axis = axis.link
    return axis


def _options(term: Term, layers: dict[Axis, int]) -> list[Counter[Axis]]:
    term = resolve(term)
    if isinstance(term, Axis):
        return [Counter({term: 1})]
    if isinstance(term, Family):
        return _options(term.members[layers[_last(term.index)]], layers)
    if isinstance(term, Cat):
        return [option for part in term.parts for option in _options(part, layers)]
    if isinstance(term, Prod):
        options = [_options(factor, layers) for factor in term.factors]
        return [sum(choice, Counter()) for choice in combinations(*options)]
    return [Counter()]
