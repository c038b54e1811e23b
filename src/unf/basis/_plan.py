"""The factored plan of a layer: reduce, mix, embed.

Each valid partition of a term's indices has groups with input indices only (averaged over),
output indices only (broadcast) and both (kept). The labels of the kept groups are the term's
*core*. All terms with one core are one matrix product over channels, at the core's size:

    features (reductions of the input)  ->  matrix  ->  targets (embeddings into the output)

A plan lists stacks (blocks with equal labels, side by side along channels), and for each core
its features and targets. It knows no channels, holds no parameters and runs nothing.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod

import numpy as np

from .._html import in_brief, repr_html
from ..spec import SpecError, WeightSpace
from ..spec._blocks import Block
from ..spec._space import check_is_space
from ._views import (
    Labels,
    Step,
    View,
    all_views,
    automorphisms,
    canonical_order,
    constant_view,
    finer_step,
    reorder,
)

MOST_COMPARED = 2**20
"""The most terms of a core that `minimal` checks one by one, which takes about ten seconds."""


@dataclass(frozen=True)
class Stack:
    """Blocks that carry the same permutations, side by side along channels.

    Attributes:
        labels: their permuted axes in canonical order.
        blocks: the blocks, as positions in the space's list.
        orders: for each block, the positions of `labels` among its own axes.
        widths: for each block, its channels per feature channel (its fixed axes).
    """

    labels: Labels
    blocks: tuple[int, ...]
    orders: tuple[tuple[int, ...], ...]
    widths: tuple[int, ...]

    @property
    def members(self) -> list[tuple[int, tuple[int, ...], int]]:
        """The block, order and width of each member."""
        return list(zip(self.blocks, self.orders, self.widths, strict=True))

    @cached_property
    def width(self) -> int:
        """Channels of the whole stack per feature channel."""
        return sum(self.widths)

    @cached_property
    def axis_order(self) -> tuple[int, ...]:
        """The order in which arrays hold the stack's axes: the one most of its data has already."""
        votes: Counter[tuple[int, ...]] = Counter()
        for _, order, width in self.members:
            votes[tuple(np.argsort(order).tolist())] += width
        return min(votes, key=lambda order: (-votes[order], order))

    def axes(self, view: View) -> list[tuple[int, ...]]:
        """The groups of a view in the order in which its array holds them."""
        return sorted(view.kept, key=lambda group: min(self.axis_order.index(i) for i in group))

    def steps(self, views: set[View]) -> list[tuple[View, Step]]:
        """The steps that compute all `views` from the tensor itself, finer ones first."""
        needed: dict[View, Step] = {}
        pending = list(views)
        while pending:
            view = pending.pop()
            step = finer_step(view, self.labels)
            if step is not None and view not in needed:
                needed[view] = step
                pending.append(step.source)
        finest_first = sorted(
            needed, key=lambda v: (-len(v.groups), len(v.summed), v.kept, v.summed)
        )
        return [(view, needed[view]) for view in finest_first]


@dataclass(frozen=True)
class Port:
    """One feature or target of a core: a view of a stack."""

    stack: int
    view: View


@dataclass(frozen=True)
class Core:
    """All terms that keep the same permutations: one product over channels.

    Attributes:
        labels: the permutations kept, in canonical order.
        features: the views that are read; target axis `i` is feature axis `matching[i]`.
        targets: the views that are written.
        matchings: every way to match equal names, each of which is a term.
        allowed: which (matching, feature, target) are terms; None if all are.
    """

    labels: Labels
    features: tuple[Port, ...]
    targets: tuple[Port, ...]
    matchings: tuple[tuple[int, ...], ...]
    allowed: tuple[tuple[tuple[bool, ...], ...], ...] | None = None

    @property
    def name(self) -> str:
        """A name for checkpoints, from the permutations alone: `a,b`; `()` for none."""
        return ",".join(label.name for label in self.labels) or "()"

    @property
    def size(self) -> int:
        """The number of entries per channel."""
        return prod(label.size for label in self.labels)


@dataclass(frozen=True, repr=False)
class Plan:
    """How to compute every equivariant linear map from one weight space to another."""

    in_space: WeightSpace
    out_space: WeightSpace
    minimal: bool
    in_stacks: tuple[Stack, ...] = field(compare=False)
    out_stacks: tuple[Stack, ...] = field(compare=False)
    cores: tuple[Core, ...] = field(compare=False)

    @cached_property
    def num_terms(self) -> int:
        """|B|, the number of terms (eq. 20)."""
        return sum(int(self.term_counts(core).sum()) for core in self.cores)

    def axis_order(self, core: Core) -> tuple[int, ...]:
        """The order in which arrays hold a core's axes: that of a stack with the same labels."""
        for stack in (*self.in_stacks, *self.out_stacks):
            if stack.labels == core.labels:
                return stack.axis_order
        return tuple(range(len(core.labels)))

    def matrix_shape(self, core: Core, in_channels: int, out_channels: int) -> tuple[int, int]:
        """The shape of a core's matrix of coefficients."""
        rows, columns = (int(widths.sum()) for widths in self.widths(core))
        return len(core.matchings) * in_channels * rows, out_channels * columns

    def widths(self, core: Core) -> tuple[np.ndarray, np.ndarray]:
        """Channels of each feature and of each target of a core, per feature channel."""
        features = [self.in_stacks[feature.stack].width for feature in core.features]
        targets = [self.out_stacks[target.stack].width for target in core.targets]
        return np.array(features), np.array(targets)

    def term_counts(self, core: Core) -> np.ndarray:
        """The number of terms for each pair of a feature and a target, over all blocks."""
        sources = np.array([len(self.in_stacks[f.stack].blocks) for f in core.features])
        sinks = np.array([len(self.out_stacks[t.stack].blocks) for t in core.targets])
        return self.matchings_allowed(core) * np.outer(sources, sinks)

    def matchings_allowed(self, core: Core) -> np.ndarray:
        """The number of matchings of each feature with each target that are terms."""
        if core.allowed is None:
            return np.full((len(core.features), len(core.targets)), len(core.matchings))
        return np.sum(np.array(core.allowed, dtype=int), axis=0)

    def __repr__(self) -> str:
        return (
            f"Plan({self.num_terms:,} terms in {len(self.cores)} cores; "
            f"{len(self.in_space.leaves)} -> {len(self.out_space.leaves)} leaves"
            f"{', minimal' if self.minimal else ''})"
        )

    __pdoc__ = in_brief
    _repr_html_ = repr_html


def make_plan(
    space: WeightSpace, out_space: WeightSpace | None = None, *, minimal: bool = False
) -> Plan:
    """The plan for all equivariant linear maps from `space` to `out_space`; results are cached.

    Args:
        space: the input's weight space.
        out_space: the output's, by default the same. A name in both is the same permutation.
        minimal: leave out terms that small axes make linearly dependent: partitions with
            more groups on an axis than the axis has elements. What remains is a basis.

    >>> import jax
    >>> square = WeightSpace.from_spec("n n", jax.ShapeDtypeStruct((3, 3), "float32"))
    >>> make_plan(square), make_plan(square, minimal=True).num_terms
    (Plan(15 terms in 3 cores; 1 -> 1 leaves), 14)
    """
    out_space = space if out_space is None else out_space
    for each in (space, out_space):
        check_is_space(each)
    return _make_plan(space, out_space, minimal)


@lru_cache(maxsize=256)
def _make_plan(space: WeightSpace, out_space: WeightSpace, minimal: bool) -> Plan:
    _check_compatible(space, out_space)
    in_stacks = _make_stacks(space.blocks)
    out_stacks = in_stacks if out_space == space else _make_stacks(out_space.blocks)
    features, targets = _ports_by_core(in_stacks), _ports_by_core(out_stacks)
    cores = []
    for labels in sorted(features.keys() & targets.keys(), key=_core_sort_key):
        core = Core(labels, features[labels], targets[labels], automorphisms(labels))
        if minimal:
            core = _drop_dependent(core, in_stacks, out_stacks)
        if core is not None:
            cores.append(core)
    return Plan(space, out_space, minimal, in_stacks, out_stacks, tuple(cores))


def _core_sort_key(labels: Labels) -> tuple:
    return (
        len(labels),
        [(label.name, -1 if label.parent is None else label.parent) for label in labels],
    )


def _check_compatible(space: WeightSpace, out_space: WeightSpace) -> None:
    for name in space.axis_sizes.keys() & out_space.axis_sizes.keys():
        ours = (space.axis_sizes[name], "fixed" if name in space.fixed else "permuted")
        theirs = (out_space.axis_sizes[name], "fixed" if name in out_space.fixed else "permuted")
        if ours[1] != theirs[1] or (ours != theirs and ours[1] == "permuted"):
            raise SpecError(
                f"{name!r} is not the same permutation in the input's and the output's space",
                expected=f"size {ours[0]}, {ours[1]}, as in the input",
                got=f"size {theirs[0]}, {theirs[1]}",
                remedy="use different names, or relax() or fix() it in both",
            )


def _make_stacks(blocks: tuple[Block, ...]) -> tuple[Stack, ...]:
    members: dict[Labels, list[tuple[int, tuple[int, ...]]]] = {}
    for position, block in enumerate(blocks):
        order = canonical_order(block.labels)
        members.setdefault(reorder(block.labels, order), []).append((position, order))
    return tuple(
        Stack(
            labels,
            tuple(position for position, _ in members[labels]),
            tuple(order for _, order in members[labels]),
            tuple(blocks[position].width for position, _ in members[labels]),
        )
        for labels in sorted(members, key=_core_sort_key)
    )


def _ports_by_core(stacks: tuple[Stack, ...]) -> dict[Labels, tuple[Port, ...]]:
    ports: dict[Labels, list[Port]] = {}
    for index, stack in enumerate(stacks):
        for view in all_views(stack.labels):
            ports.setdefault(view.core(stack.labels), []).append(Port(index, view))
    return {labels: tuple(found) for labels, found in ports.items()}


def _drop_dependent(core: Core, in_stacks, out_stacks) -> Core | None:
    """The core without partitions that have more groups on an axis than it has elements."""
    if (terms := len(core.matchings) * len(core.features) * len(core.targets)) > MOST_COMPARED:
        raise SpecError(
            f"minimal would compare {terms:,} terms of the core {core.name}",
            expected=f"at most {MOST_COMPARED:,}",
            remedy="use minimal=False, or fix() some of these axes",
        )
    allowed = np.zeros((len(core.matchings), len(core.features), len(core.targets)), bool)
    for m, f, t in np.ndindex(allowed.shape):
        feature, target = core.features[f], core.targets[t]
        in_labels, out_labels = in_stacks[feature.stack].labels, out_stacks[target.stack].labels
        allowed[m, f, t] = _is_independent(
            core.labels, core.matchings[m], feature.view, in_labels, target.view, out_labels
        )
    features = np.flatnonzero(allowed.any(axis=(0, 2)))
    targets = np.flatnonzero(allowed.any(axis=(0, 1)))
    if not len(features):
        return None
    allowed = allowed[:, features][:, :, targets]
    mask = None if allowed.all() else tuple(tuple(map(tuple, rows)) for rows in allowed.tolist())
    kept = tuple(core.features[i] for i in features), tuple(core.targets[i] for i in targets)
    return Core(core.labels, *kept, core.matchings, mask)


def _is_independent(core: Labels, matching, feature, in_labels, target, out_labels) -> bool:
    """Whether each axis has an element for each of the partition's groups on it.

    A nested axis has its own elements at every index, so groups count per parent.
    """
    counts: Counter[tuple] = Counter((label.name, label.parent) for label in core)
    sizes = {label.name: label.size for label in (*core, *in_labels, *out_labels)}
    of_target = {group: i for i, group in enumerate(target.kept)}
    of_feature = {group: matching.index(i) for i, group in enumerate(feature.kept)}
    sides = [("in", feature, in_labels, of_feature), ("out", target, out_labels, of_target)]
    for side, view, labels, kept in sides:
        for group in view.summed:
            parent = view.parent(group, labels)
            identity = None if parent is None else kept.get(parent, (side, parent))
            counts[labels[group[0]].name, identity] += 1
    return all(count <= sizes[name] for (name, _), count in counts.items())


def count_terms(
    space: WeightSpace, out_space: WeightSpace | None = None, *, minimal: bool = False
) -> int:
    """|B|, the number of terms in a layer from `space` to `out_space` (§3.1).

    >>> import jax
    >>> matrix = jax.ShapeDtypeStruct((8, 32), "float32")
    >>> count_terms(WeightSpace.from_spec("a b", matrix))
    4
    """
    return make_plan(space, out_space, minimal=minimal).num_terms


def views_used(plan: Plan, side: str) -> dict[int, set[View]]:
    """For each stack of a side, "in" or "out", the views that some core reads or writes."""
    stacks = plan.in_stacks if side == "in" else plan.out_stacks
    used: dict[int, set[View]] = {index: set() for index in range(len(stacks))}
    for core in plan.cores:
        for port in core.features if side == "in" else core.targets:
            used[port.stack].add(port.view)
    if side == "out":  # where the bias goes
        for index, stack in enumerate(stacks):
            used[index].add(constant_view(stack.labels))
    return used
