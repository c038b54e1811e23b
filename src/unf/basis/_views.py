"""Views of labeled tensors: diagonals and means.

A *view* of a labeled tensor joins some of its axes (a diagonal), keeps some of the resulting
groups and averages over the others. Read from a tensor, a view is a reduction; written to one,
it is an embedding (broadcast over what is not kept, placed on the diagonal).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product
from math import comb, prod

from ..spec import SpecError
from ..spec._blocks import Label

Labels = tuple[Label, ...]
Group = tuple[int, ...]
MOST_VIEWS = 2**12
"""The most views of one tensor: six axes of one permutation have 2,430, seven have 14,214."""


def canonical_order(labels: Labels) -> tuple[int, ...]:
    """Positions sorted by name, each nested axis after its parent.

    Two tuples of labels carry the same permutations with the same nesting if and only if
    sorting makes them equal.
    """
    children: dict[int | None, list[int]] = {}
    for position, label in enumerate(labels):
        children.setdefault(label.parent, []).append(position)

    def key(position: int) -> tuple:
        return (labels[position].name, sorted(key(child) for child in children.get(position, [])))

    def visit(parent: int | None) -> Iterator[int]:
        for position in sorted(children.get(parent, []), key=lambda p: (key(p), p)):
            yield position
            yield from visit(position)

    return tuple(visit(None))


def reorder(labels: Labels, order: tuple[int, ...]) -> Labels:
    """The labels at the positions `order`, with parents renumbered."""
    return _group_labels(tuple((position,) for position in order), labels)


@cache
def automorphisms(labels: Labels) -> tuple[tuple[int, ...], ...]:
    """All ways to match the axes with themselves, respecting names and nesting; identity first."""
    positions: dict[str, list[int]] = {}
    for i, label in enumerate(labels):
        positions.setdefault(label.name, []).append(i)
    found = []
    for images in product(*(permutations(same) for same in positions.values())):
        image = dict(
            pair
            for same, shuffled in zip(positions.values(), images, strict=True)
            for pair in zip(same, shuffled, strict=True)
        )
        if all(
            labels[image[i]].parent == (None if label.parent is None else image[label.parent])
            for i, label in enumerate(labels)
        ):
            found.append(tuple(image[i] for i in range(len(labels))))
    return tuple(found)


@dataclass(frozen=True)
class View:
    """A diagonal and mean of a labeled tensor.

    Attributes:
        kept: the groups of axes that remain, in canonical order of their labels.
        summed: the groups averaged over (read) or broadcast over (written).
    """

    kept: tuple[Group, ...]
    summed: tuple[Group, ...]

    @property
    def groups(self) -> tuple[Group, ...]:
        """All groups."""
        return self.kept + self.summed

    def group_of(self, position: int) -> Group:
        """The group that contains an axis."""
        return next(group for group in self.groups if position in group)

    def parent(self, group: Group, labels: Labels) -> Group | None:
        """The group that a nested group is nested in."""
        parent = labels[group[0]].parent
        return None if parent is None else self.group_of(parent)

    def core(self, labels: Labels) -> Labels:
        """The labels of the groups kept."""
        return _group_labels(self.kept, labels)


def _group_labels(groups: tuple[Group, ...], labels: Labels) -> Labels:
    place = {position: i for i, group in enumerate(groups) for position in group}
    return tuple(
        Label(label.name, label.size, None if label.parent is None else place[label.parent])
        for label in (labels[group[0]] for group in groups)
    )


def make_view(kept: set[Group], summed: set[Group], labels: Labels) -> View:
    """A view with its groups in canonical order."""
    groups = tuple(sorted(kept))
    order = canonical_order(_group_labels(groups, labels))
    return View(tuple(groups[i] for i in order), tuple(sorted(summed)))


def patterns(labels: Labels) -> Iterator[tuple[Group, ...]]:
    """All ways to join axes into groups.

    Axes may share a group only if they have the same name and, if nested, their parents share
    a group (valid partitions, definition 1, extended to wreath products).
    """
    # Parents before children, whatever the order of the axes.
    order = sorted(range(len(labels)), key=lambda p: (_depth(p, labels), p))

    def extend(groups: tuple[Group, ...], rest: list[int]) -> Iterator[tuple[Group, ...]]:
        if not rest:
            yield tuple(sorted(groups))
            return
        position, *others = rest
        for i, group in enumerate(groups):
            if _may_join(position, group, groups, labels):
                joined = tuple(sorted((*group, position)))
                yield from extend((*groups[:i], joined, *groups[i + 1 :]), others)
        yield from extend((*groups, (position,)), others)

    yield from extend((), order)


def _depth(position: int, labels: Labels) -> int:
    parent = labels[position].parent
    return 0 if parent is None else 1 + _depth(parent, labels)


def _may_join(position: int, group: Group, groups: tuple[Group, ...], labels: Labels) -> bool:
    label, other = labels[position], labels[group[0]]
    if label.name != other.name:
        return False
    if label.parent is None or other.parent is None:
        return label.parent == other.parent
    return any(label.parent in g and other.parent in g for g in groups)


@cache
def all_views(labels: Labels) -> tuple[View, ...]:
    """Every view, finest first.

    A kept group's parent is kept too: an index of `h.k` means nothing without its `h`.
    """
    _check_count(labels)
    found = []
    for groups in patterns(labels):
        whole = make_view(set(groups), set(), labels)
        for chosen in product((True, False), repeat=len(groups)):
            kept = {group for group, keep in zip(groups, chosen, strict=True) if keep}
            parents = {whole.parent(group, labels) for group in kept} - {None}
            if parents <= kept:
                found.append(make_view(kept, set(groups) - kept, labels))
    return tuple(sorted(found, key=lambda v: (-len(v.groups), len(v.summed), v.kept, v.summed)))


def _check_count(labels: Labels) -> None:
    """Reject tensors with so many axes that their views cannot be listed."""
    names = [label.name for label in labels]
    equal = [names.count(name) for name in dict.fromkeys(names)]
    # Each of m equal axes joins a group, and each group is kept or not: Σ S(m, k) 2ᵏ ways.
    ways = [1]
    for m in range(max(equal, default=0)):
        ways.append(2 * sum(comb(m, k) * ways[k] for k in range(m + 1)))
    if (count := prod(ways[m] for m in equal)) > MOST_VIEWS:
        raise SpecError(
            f"a tensor with the axes {' '.join(names)} has about {count:.2g} views",
            expected=f"at most {MOST_VIEWS}",
            remedy="fix() some of these axes, or give axes that permute separately different names",
        )


@dataclass(frozen=True)
class Step:
    """How to compute a view from a finer one: by a mean, or by a diagonal.

    Attributes:
        source: the finer view.
        mean: the group averaged over, or None.
        diagonal: the two groups of `source` that are joined, or None.
    """

    source: View
    mean: Group | None = None
    diagonal: tuple[Group, Group] | None = None


@cache
def finer_step(view: View, labels: Labels) -> Step | None:
    """The cheapest way to compute a view from a finer one; None for the tensor itself.

    Means come last, and the smallest axis is averaged last, so that each step reads as
    little as possible; the same steps, reversed, embed coarse results into finer ones.
    """
    if view.summed:
        ready = [g for g in view.summed if view.parent(g, labels) not in view.summed]
        group = min(ready, key=lambda g: (labels[g[0]].size, g))
        source = make_view({*view.kept, group}, set(view.summed) - {group}, labels)
        return Step(source, mean=group)
    joined = [group for group in view.kept if len(group) > 1]
    if not joined:
        return None
    group = max(joined, key=lambda g: (_depth(g[0], labels), g))
    parts = (group[:-1], group[-1:])
    source = make_view({*view.kept, *parts} - {group}, set(), labels)
    return Step(source, diagonal=parts)


@cache
def constant_view(labels: Labels) -> View:
    """The view that keeps and joins nothing: a mean when read, a constant when written."""
    return View((), tuple((i,) for i in range(len(labels))))
