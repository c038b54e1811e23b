"""From the expressions of the parameters to axes of a specification."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from ..spec._grammar import AxisSpec, ByIndex, Concat, Name, Number, Product, names_in
from ._expressions import (
    Cat,
    Expr,
    Family,
    Prod,
    Reason,
    Uniform,
    Variable,
    children,
    find_families,
    is_fixed,
    rebuild,
    resolve,
    same,
    variables,
)
from ._names import Place, name_variables
from ._nesting import find_parents
from ._unification import collapse, unify

_MIXED = Reason("layers whose permutations cannot be written apart")
_LAYERS = Reason("counts the same layers")
MOST_OPTIONS = 64
"""The most axes between braces; members of longer families are unified."""
Key = tuple[tuple[Variable, ...], ...]
"""What tells families apart: the variables of each member."""


def to_axes(
    leaves: Sequence[tuple[str, Sequence[Expr]]],
    values: Sequence[Sequence[Expr]],
    unread: set[Variable],
    streams: set[Variable],
    others: Sequence[Sequence[Expr]] = (),
) -> tuple[list[tuple[AxisSpec, ...]], dict[str, int], list[tuple[AxisSpec, ...] | None]]:
    """The axes of each leaf as a specification writes them, the size of every name, and `others`.

    `leaves` are paths and expressions of parameters, `values` the expressions of every value
    in the computation, which decide what is nested. `unread` variables are nested in nothing:
    they would be in any axis beside them, which says nothing about the network. `streams` are
    the variables along which skip connections add, for their names. The axes of `others` are
    written in the names of the leaves, with numbers where these have none; None stands for one
    that has layers of its own.
    """
    apart = _separate_families([exprs for _, exprs in leaves])
    rows = [[_push_down(expr) for expr in exprs] for _, exprs in leaves]
    writer = _Writer([path for path, _ in leaves], rows, values, unread, streams, apart)
    axes = [tuple(writer.axis(expr) for expr in row) for row in rows]
    used = {name.path for row in axes for axis in row for name in names_in(axis)}
    sizes = {name: size for name, size in writer.sizes.items() if name in used}
    return axes, sizes, [writer.axes_of_value(exprs) for exprs in others]


def _push_down(expr: Expr) -> Expr:
    """Families of products as products of families, so that each is one name."""
    expr = resolve(expr)
    if not isinstance(expr, Family):
        return rebuild(expr, [_push_down(child) for child in children(expr)])
    members = [resolve(_push_down(member)) for member in expr.members]
    kinds = {type(member) for member in members}
    shapes = {tuple(child.size for child in children(member)) for member in members}
    if len(kinds) == len(shapes) == 1 and kinds <= {Prod, Cat}:
        columns = zip(*[children(member) for member in members], strict=True)
        pushed = [_push_down(Family(expr.index, tuple(column))) for column in columns]
        return rebuild(members[0], pushed)
    return Family(expr.index, tuple(members))


def _separate_families(leaves: Sequence[Sequence[Expr]]) -> set[Key]:
    """Find the families to write as `layer{a | b}`, since they cannot be written as `layer.name`.

    The members of families that can be written neither way are unified.
    """
    apart: set[Key] = set()
    while True:
        rows = [[_push_down(expr) for expr in exprs] for exprs in leaves]
        conflict = _first_conflict(rows, apart)
        if conflict is None:
            break
        family, row = conflict
        if _fits_braces(family, row) and _key(family) not in apart:
            apart.add(_key(family))
        else:
            collapse(family, _MIXED)
    # With the same members in two leaves, their layer axes, both fixed, are one name.
    indices: dict[Key, Variable] = {}
    for family in (family for row in rows for expr in row for family in find_families(expr)):
        unify(indices.setdefault(_key(family), family.index), family.index, _LAYERS)
    return apart


def _fits_braces(family: Family, row: Sequence[Expr]) -> bool:
    """Whether a family is none of families, and its index is an axis of its own or a factor."""
    factors = [resolve(f) for e in row for f in (e.factors if isinstance(e, Prod) else (e,))]
    return (
        len(family.members) <= MOST_OPTIONS
        and sum(factor is resolve(family.index) for factor in factors) == 1
        and not any(True for member in family.members for _ in find_families(member))
    )


def _first_conflict(
    rows: Sequence[Sequence[Expr]], apart: set[Key]
) -> tuple[Family, Sequence[Expr]] | None:
    """A family whose members also occur elsewhere, are partly fixed, or have unclear layers.

    Families in `apart` are written otherwise, and their members count as occurring elsewhere.
    """
    places: dict[Variable, tuple] = {}
    plain = [[v for expr in row for v in _outside_families(expr, apart)] for row in rows]
    alone = {v for of_row in plain for v in of_row}
    for row, beside in zip(rows, plain, strict=True):
        for family in (family for expr in row for family in find_families(expr)):
            index, members = resolve(family.index), _members(family)
            if _key(family) in apart:
                if not _fits_braces(family, row):
                    return family, row
                continue
            if len(members) < len(family.members):  # some are composite
                return family, row
            if not isinstance(index, Variable) or beside.count(index) != 1:
                return family, row
            if len(set(map(is_fixed, members))) > 1 or alone.intersection(members):
                return family, row
            for i, member in enumerate(members):
                if places.setdefault(member, (i, members)) != (i, members):
                    return family, row
    return None


def _outside_families(expr: Expr, apart: set[Key]) -> Iterator[Variable]:
    if isinstance(expr, Variable):
        yield expr
    elif not isinstance(expr, Family) or _key(expr) in apart:
        for child in children(expr):
            yield from _outside_families(resolve(child), apart)


class _Writer:
    """Names all variables, and writes expressions with these names.

    The members of a family share the name of the first, which is nested in the layer axis.
    """

    def __init__(
        self,
        paths: Sequence[str],
        rows: Sequence[Sequence[Expr]],
        values: Sequence[Sequence[Expr]],
        unread: set[Variable],
        streams: set[Variable],
        apart: set[Key],
    ):
        self.apart = apart
        self.uses: dict[Variable, list[Place]] = {}
        for path, row in zip(paths, rows, strict=True):
            for position, expr in enumerate(row):
                for v, where in self._occurrences(expr, path):
                    self.uses.setdefault(v, []).append(Place(where, position, len(row)))
        found = [family for row in rows for expr in row for family in find_families(expr)]
        families = {_members(f): f for f in found if _key(f) not in apart}
        self.indices = {v: _index(f) for f in found if _key(f) in apart for v in variables(f)}
        self.leader = {member: members[0] for members in families for member in members}
        nested = {
            child: parent
            for child, parent in find_parents([*rows, *values], self.indices).items()
            if child in self.uses and parent in self.uses and child not in unread
        }
        self.parents = {a: p for a, p in nested.items() if a not in self.leader}
        for members, family in families.items():
            if not is_fixed(members[0]):
                self.parents[members[0]] = _family_parent(members, family, nested, families)
        leaders = [a for a in self.uses if self.leader.get(a, a) is a]
        named = [v for v in leaders if not self._is_anonymous(v)]
        self.names = {v: f"v{i}" for i, v in enumerate(named)}
        axes = [self.axis(expr) for row in rows for expr in row]
        written = {name.path for axis in axes for name in names_in(axis)}
        named = [v for v in named if self.names[v] in written]
        streams = {self.leader.get(v, v) for v in streams}
        indices = set(self.indices.values())
        self.names = name_variables(named, self.uses, self.parents, streams, indices)

    @property
    def sizes(self) -> dict[str, int]:
        """The size of every name."""
        return {name: v.size for v, name in self.names.items()}

    def axis(self, expr: Expr) -> AxisSpec:
        """What a specification says about one stored axis."""
        expr = resolve(expr) if not isinstance(expr, Family) else expr
        if isinstance(expr, Uniform):
            return Number(expr.size)
        if isinstance(expr, Family):
            if _key(expr) in self.apart:
                index = self.axis(expr.index)
                assert isinstance(index, Name)
                return ByIndex(index.path, tuple(map(self.axis, expr.members)))
            first = resolve(expr.members[0])
            assert isinstance(first, Variable)
            return self._name(first)
        if isinstance(expr, Variable):
            return self._name(expr)
        if isinstance(expr, Prod):
            return Product(tuple(self.axis(factor) for factor in expr.factors))
        assert isinstance(expr, Cat)
        if is_fixed(expr) and not any(v in self.parents.values() for v in variables(expr)):
            return Number(expr.size)
        if all(same(part, expr.parts[0]) for part in expr.parts[1:]):
            part = self.axis(expr.parts[0])
            factors = part.factors if isinstance(part, Product) else (part,)
            return Product((Number(len(expr.parts)), *factors))
        return Concat(tuple(self._joined(expr.parts)))

    def axes_of_value(self, exprs: Sequence[Expr]) -> tuple[AxisSpec, ...] | None:
        """The axes of a value that is no leaf; None if it has families, or members of them."""
        exprs = [_push_down(expr) for expr in exprs]
        if any(True for expr in exprs for _ in find_families(expr)):
            return None
        if any(v in self.leader for expr in exprs for v in variables(expr)):
            return None
        return tuple(self.axis(expr) for expr in exprs)

    def _occurrences(self, expr: Expr, path: str) -> Iterator[tuple[Variable, str]]:
        """The variables in an expression, each with the path of the leaf, or of one index of it."""
        if isinstance(expr, Variable):
            yield expr, path
        each_index = isinstance(expr, Family) and _key(expr) in self.apart
        for i, child in enumerate(children(expr)):
            yield from self._occurrences(resolve(child), f"{path}/{i}" if each_index else path)

    def _joined(self, parts: Sequence[Expr]) -> Iterator[AxisSpec]:
        """The parts of a concatenation; neighboring fixed ones are one fixed part."""
        holders = set(self.parents.values())
        for fixed, group in groupby(
            parts, lambda e: is_fixed(e) and not holders.intersection(variables(e))
        ):
            run = list(group)
            if fixed and len(run) > 1:
                yield Number(sum(part.size for part in run))
            else:
                yield from map(self.axis, run)

    def _name(self, v: Variable) -> AxisSpec:
        v = self.leader.get(v, v)
        if v not in self.names or self._is_anonymous(v):
            return Number(v.size)
        return Name(self.names[v], v.fixed is not None)

    def _is_anonymous(self, v: Variable) -> bool:
        """Whether an axis is fixed, occurs once, and is not an input's or output's."""
        return (
            v.fixed is not None
            and v.label is None
            and len(self.uses[v]) == 1
            and v not in self.indices.values()
            and v not in self.parents.values()
        )


def _members(family: Family) -> tuple[Variable, ...]:
    members = tuple(resolve(member) for member in family.members)
    return tuple(member for member in members if isinstance(member, Variable))


def _index(family: Family) -> Variable:
    index = resolve(family.index)
    assert isinstance(index, Variable)
    return index


def _key(family: Family) -> Key:
    return tuple(tuple(variables(member)) for member in family.members)


def _family_parent(
    members: tuple[Variable, ...],
    family: Family,
    found: dict[Variable, Variable],
    families: dict[tuple[Variable, ...], Family],
) -> Variable:
    """The parent of a layer's member: the layer's member of another family, or the layer."""
    index = _index(family)
    theirs = tuple(found.get(member) for member in members)
    other = families.get(theirs)  # type: ignore[arg-type]
    return index if other is None or resolve(other.index) is not index else theirs[0] or index
