"""From the terms of the parameters to axes of a specification."""

from collections.abc import Iterator, Sequence

from ..spec import Axis as SpecAxis
from ..spec import Concat, Name, Number, Product, names_in
from ._names import name_axes
from ._nesting import find_parents
from ._terms import (
    Axis,
    Cat,
    Family,
    Prod,
    Reason,
    Term,
    Uniform,
    atoms,
    children,
    concat,
    find_families,
    is_fixed,
    product,
    resolve,
    same,
)
from ._unification import collapse, unify

_MIXED = Reason("layers whose permutations cannot be written apart")
_LAYERS = Reason("counts the same layers")


def to_axes(
    leaves: Sequence[tuple[str, Sequence[Term]]], values: Sequence[Sequence[Term]]
) -> tuple[list[tuple[SpecAxis, ...]], dict[str, int]]:
    """The axes of each leaf as a specification writes them, and the size of every name.

    Args:
        leaves: the path and terms of each parameter.
        values: the terms of every value of the computation, for what is nested.
    """
    _separate_families([terms for _, terms in leaves])
    rows = [[_push_down(term) for term in terms] for _, terms in leaves]
    writer = _Writer([path for path, _ in leaves], rows, values)
    axes = [tuple(writer.axis(term) for term in row) for row in rows]
    used = {name.path for row in axes for axis in row for name in names_in(axis)}
    return axes, {name: size for name, size in writer.sizes.items() if name in used}


# --- stacked layers ------------------------------------------------------------------------


def _push_down(term: Term) -> Term:
    """Families of products as products of families, so that each is one nested name."""
    term = resolve(term)
    if isinstance(term, Prod):
        return product([_push_down(factor) for factor in term.factors])
    if isinstance(term, Cat):
        return concat([_push_down(part) for part in term.parts])
    if not isinstance(term, Family):
        return term
    members = [resolve(_push_down(member)) for member in term.members]
    kinds = {type(member) for member in members}
    if kinds == {Axis}:
        return Family(term.index, tuple(members))
    shapes = {tuple(child.size for child in children(member)) for member in members}
    if len(kinds) == len(shapes) == 1 and kinds <= {Prod, Cat}:
        columns = zip(*[children(member) for member in members], strict=True)
        pushed = [_push_down(Family(term.index, tuple(column))) for column in columns]
        return product(pushed) if kinds == {Prod} else concat(pushed)
    return collapse(term, _MIXED)


def _separate_families(leaves: Sequence[Sequence[Term]]) -> None:
    """Make one what cannot be written as `layer.name`, until everything can be."""
    while True:
        rows = [[_push_down(term) for term in terms] for terms in leaves]
        at_fault = _first_conflict(rows)
        if at_fault is None:
            break
        collapse(at_fault, _MIXED)
    # The same members in two leaves: their layer axes, fixed both, are one name.
    indices: dict[tuple[Axis, ...], Axis] = {}
    for family in (family for row in rows for term in row for family in find_families(term)):
        unify(indices.setdefault(_members(family), family.index), family.index, _LAYERS)


def _first_conflict(rows: Sequence[Sequence[Term]]) -> Family | None:
    """A family whose members also stand elsewhere, are partly fixed, or count unclear layers."""
    places: dict[Axis, tuple] = {}
    plain = [[atom for term in row for atom in _plain_atoms(term)] for row in rows]
    alone = {atom for atoms_of_row in plain for atom in atoms_of_row}
    for row, beside in zip(rows, plain, strict=True):
        for family in (family for term in row for family in find_families(term)):
            index, members = resolve(family.index), _members(family)
            if len(members) < len(family.members):  # made something else since, by another
                return family
            if not isinstance(index, Axis) or beside.count(index) != 1:
                return family
            if len(set(map(is_fixed, members))) > 1 or alone.intersection(members):
                return family
            for place in enumerate(members):
                if places.setdefault(place[1], (place[0], members)) != (place[0], members):
                    return family
    return None


def _plain_atoms(term: Term) -> Iterator[Axis]:
    if isinstance(term, Axis):
        yield term
    elif not isinstance(term, Family):
        for child in children(term):
            yield from _plain_atoms(resolve(child))


# --- writing -------------------------------------------------------------------------------


class _Writer:
    """Names for all axes, and terms written with them.

    Members of a family take one name, that of the first, which is nested in the layer axis.
    """

    def __init__(
        self,
        paths: Sequence[str],
        rows: Sequence[Sequence[Term]],
        values: Sequence[Sequence[Term]],
    ):
        self.uses: dict[Axis, list[tuple[str, int, int]]] = {}
        for path, row in zip(paths, rows, strict=True):
            for position, term in enumerate(row):
                for atom in atoms(term):
                    self.uses.setdefault(atom, []).append((path, position, len(row)))
        families = {
            _members(family): family
            for row in rows
            for term in row
            for family in find_families(term)
        }
        self.leader = {member: members[0] for members in families for member in members}
        found = {
            child: parent
            for child, parent in find_parents([*rows, *values]).items()
            if child in self.uses and parent in self.uses
        }
        self.parents = {a: p for a, p in found.items() if a not in self.leader}
        for members, family in families.items():
            if not is_fixed(members[0]):
                self.parents[members[0]] = _family_parent(members, family, found, families)
        leaders = [a for a in self.uses if self.leader.get(a, a) is a]
        named = [atom for atom in leaders if not self._is_anonymous(atom)]
        self.names = name_axes(named, self.uses, self.parents)

    @property
    def sizes(self) -> dict[str, int]:
        """The size of every name."""
        return {name: atom.size for atom, name in self.names.items()}

    def axis(self, term: Term) -> SpecAxis:
        """One stored axis."""
        term = resolve(term) if not isinstance(term, Family) else term
        if isinstance(term, Uniform):
            return Number(term.size)
        if isinstance(term, Family):
            first = resolve(term.members[0])
            assert isinstance(first, Axis)
            return self._name(first)
        if isinstance(term, Axis):
            return self._name(term)
        if isinstance(term, Prod):
            return Product(tuple(self.axis(factor) for factor in term.factors))
        assert isinstance(term, Cat)
        if is_fixed(term) and not any(atom in self.parents.values() for atom in atoms(term)):
            return Number(term.size)
        if all(same(part, term.parts[0]) for part in term.parts[1:]):
            part = self.axis(term.parts[0])
            factors = part.factors if isinstance(part, Product) else (part,)
            return Product((Number(len(term.parts)), *factors))
        return Concat(tuple(self.axis(part) for part in term.parts))

    def _name(self, atom: Axis) -> SpecAxis:
        atom = self.leader.get(atom, atom)
        if self._is_anonymous(atom):
            return Number(atom.size)
        return Name(self.names[atom], atom.fixed is not None)

    def _is_anonymous(self, atom: Axis) -> bool:
        """Whether an axis is fixed, stands in one place, and is no input's or output's."""
        return (
            atom.fixed is not None
            and atom.label is None
            and len(self.uses[atom]) == 1
            and atom not in self.parents.values()
        )


def _members(family: Family) -> tuple[Axis, ...]:
    members = tuple(resolve(member) for member in family.members)
    return tuple(member for member in members if isinstance(member, Axis))


def _family_parent(
    members: tuple[Axis, ...],
    family: Family,
    found: dict[Axis, Axis],
    families: dict[tuple[Axis, ...], Family],
) -> Axis:
    """What each layer's member is nested in: its layer's member of another family, or the layer."""
    index = resolve(family.index)
    assert isinstance(index, Axis)
    theirs = tuple(found.get(member) for member in members)
    other = families.get(theirs)  # type: ignore[arg-type]
    return index if other is None or resolve(other.index) is not index else theirs[0] or index
