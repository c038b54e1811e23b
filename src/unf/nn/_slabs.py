"""A layer on features of which only a slab at a time is held.

With many channels, the features of a large tensor would fill memory many times over. What a layer
reads of them can be gathered slab by slab instead:

- means over a large axis are small: they are summed up over slabs;
- views that keep the two largest axes are large, but a layer only multiplies them by coefficients,
  so each slab is mixed into the few channels of the output at once;
- diagonals are small, and whoever computes features entry by entry can do it there alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..basis import Plan
from ..basis._plan import Stack, views_used
from ..basis._views import View, make_view
from ._functional import (
    embed,
    gather_stack,
    masked,
    mix,
    reduce_stack,
    transpose,
    whole_view,
)


@dataclass(frozen=True)
class Part:
    """What is gathered of a leaf: a mean of one of its blocks, or a view mixed for a core.

    Means have their axes in the block's own order. Views that are mixed add up over all blocks of a
    stack, so their axes are in the stack's order, and `block` is None.
    """

    stack: int
    view: View
    block: int | None


@dataclass(frozen=True)
class Slabs:
    """Which tensors a layer reads slab by slab, and what it gathers of them.

    Attributes:
        plan: the layer's, from a weight space to itself.
        leaves: the leaves that are read slab by slab.
        stacks: the stacks that these consist of.
    """

    plan: Plan
    leaves: tuple[int, ...]
    stacks: tuple[int, ...]

    @cached_property
    def views(self) -> dict[int, set[View]]:
        """The views of every stack that the layer reads."""
        return views_used(self.plan, "in")

    def is_mixed(self, stack: int, view: View) -> bool:
        """Whether a view is so large that it is mixed slab by slab."""
        if stack not in self.stacks or any(len(group) > 1 for group in view.groups):
            return False
        return {(i,) for i in _largest(self.plan.in_stacks[stack].labels)} <= set(view.kept)

    @cached_property
    def parts(self) -> dict[int, tuple[Part, ...]]:
        """For each leaf, the parts that its slabs add to."""
        found: dict[int, dict[Part, None]] = {leaf: {} for leaf in self.leaves}
        for index in self.stacks:
            stack = self.plan.in_stacks[index]
            large = sorted((v for v in self.views[index] if self.is_mixed(index, v)), key=str)
            means = dict.fromkeys(_without(stack, i) for i in _largest(stack.labels))
            for block in stack.blocks:
                parts = found[self.plan.in_space.blocks[block].leaf]
                parts |= dict.fromkeys(Part(index, view, None) for view in large)
                parts |= dict.fromkeys(Part(index, view, block) for view in means)
        return {leaf: tuple(parts) for leaf, parts in found.items()}

    def cuts(self, leaf: int) -> list[tuple[int, int]]:
        """The axes along which a leaf can be cut into slabs, each with its number of indices.

        All blocks must have all of the axis, permuted, and blocks of one stack at the same place.
        Of an axis that is a product, the indices of the first factor count.
        """
        space, found = self.plan.in_space, []
        members = self.blocks_of(leaf)
        for axis, size in enumerate(space.leaves[leaf].shape):
            atoms = [[a for a in space.blocks[b].atoms if a.axis == axis] for b in members]
            uncut = all(prod(atom.size for atom in each) == size for each in atoms)
            if uncut and all(each and each[0].permuted for each in atoms):
                places = {(self.stack_of[b], self._label(b, axis)) for b in members}
                if len(places) == len({stack for stack, _ in places}):
                    found.append((axis, atoms[0][0].size))
        return found

    def axis(self, leaf: int, part: Part, leaf_axis: int) -> int | None:
        """The axis of a part along which slabs of the leaf follow each other; None: they add up."""
        stack, space = self.plan.in_stacks[part.stack], self.plan.in_space
        block = next(b for b in stack.blocks if space.blocks[b].leaf == leaf)
        if part.block is not None:
            block, stack = part.block, self.own_stack(part.block)
        label = self._label(block, leaf_axis)
        return next((i for i, g in enumerate(stack.axes(part.view)) if label in g), None)

    def _label(self, block: int, leaf_axis: int) -> int:
        """The position among a stack's labels of the first factor of an axis of a block's leaf."""
        space = self.plan.in_space.blocks[block]
        atom = next(i for i, atom in enumerate(space.atoms) if atom.axis == leaf_axis)
        return self.own_stack(block).orders[0].index(space.permuted.index(atom))

    def blocks_of(self, leaf: int) -> list[int]:
        """The blocks of a leaf, in the order in which its layout splits it."""
        return [i for i, block in enumerate(self.plan.in_space.blocks) if block.leaf == leaf]

    def fold(self, leaf: int, x: Array) -> dict[int, Array]:
        """The blocks of a leaf, or of a slab of it, with their fixed axes among the channels."""
        space = self.plan.in_space
        pairs = zip(self.blocks_of(leaf), space.layouts[leaf].split(x), strict=True)
        return {i: space.blocks[i].fold(part) for i, part in pairs}

    def parts_of(self, block: int) -> list[Part]:
        """The parts that one block adds to."""
        leaf, stack = self.plan.in_space.blocks[block].leaf, self.stack_of[block]
        return [p for p in self.parts[leaf] if p.stack == stack and p.block in (None, block)]

    def large_axes(self, block: int) -> list[int]:
        """The positions of the two largest permuted axes of a block, in its own order."""
        own = self.own_stack(block)
        return sorted(own.orders[0][label] for label in _largest(own.labels))

    def own_stack(self, block: int) -> Stack:
        """The stack of one block alone, whose arrays have their axes in the block's order."""
        stack = self.plan.in_stacks[self.stack_of[block]]
        at = stack.blocks.index(block)
        return Stack(stack.labels, (block,), (stack.orders[at],), (stack.widths[at],))

    @cached_property
    def stack_of(self) -> dict[int, int]:
        """The stack of each block."""
        return {b: i for i, stack in enumerate(self.plan.in_stacks) for b in stack.blocks}

    def diagonals(self, leaf: int) -> list[tuple[int, View]]:
        """The blocks of a leaf with the diagonals of them that the layer reads, whole."""
        found = []
        for block in self.blocks_of(leaf):
            index = self.stack_of[block]
            stack = self.plan.in_stacks[index]
            groups = {view.groups for view in self.views[index]}
            whole = {make_view(set(each), set(), stack.labels) for each in groups}
            found += [(block, view) for view in sorted(whole - {whole_view(stack)}, key=str)]
        return found


@lru_cache(maxsize=64)
def make_slabs(plan: Plan, large: frozenset[int]) -> Slabs:
    """Read these leaves slab by slab, and those that are parts of the same stacks."""
    blocks, stacks, leaves = plan.in_space.blocks, set(), set(large)
    while True:
        reached = {
            i
            for i, s in enumerate(plan.in_stacks)
            if any(blocks[b].leaf in leaves for b in s.blocks)
        }
        if reached == stacks:
            return Slabs(plan, tuple(sorted(leaves)), tuple(sorted(stacks)))
        stacks = reached
        leaves |= {blocks[b].leaf for i in stacks for b in plan.in_stacks[i].blocks}


def gather(
    slabs: Slabs,
    coefficients: Mapping[str, Float[Array, "rows columns"]],
    leaf: int,
    features: Array,
) -> list[Array]:
    """The parts of a leaf, or of a slab of it, from its features there."""
    found: dict[Part, Array] = {}
    for block, x in slabs.fold(leaf, features).items():
        stack, own = slabs.plan.in_stacks[slabs.stack_of[block]], slabs.own_stack(block)
        parts = slabs.parts_of(block)
        reduced = reduce_stack(own, {part.view for part in parts}, x)
        for part in parts:
            array = reduced[part.view]
            if part.block is None:
                array = array @ _rows(slabs, coefficients, part, block).astype(array.dtype)
                array = _turn(array, own, stack, part.view)
            found[part] = found[part] + array if part in found else array
    return [found[part] for part in slabs.parts[leaf]]


def columns_of(
    slabs: Slabs, coefficients: Mapping[str, Float[Array, "rows columns"]], block: int
) -> list[Array]:
    """The coefficients that multiply a block's features in each of its large views."""
    parts = [part for part in slabs.parts_of(block) if part.block is None]
    return [_rows(slabs, coefficients, part, block) for part in parts]


def parts_from(
    slabs: Slabs, block: int, mixed: Array, means: Mapping[int, Array], sizes: Sequence[int]
) -> dict[Part, Array]:
    """The parts of a block, from what was computed with its features elsewhere.

    Args:
        slabs: which tensors are read slab by slab.
        block: the block.
        mixed: its features times all of `columns_of` it, side by side, at every entry.
        means: means of its features over either of its two largest axes, by position.
        sizes: how many columns each of the large views has.
    """
    own, found = slabs.own_stack(block), {}
    stack, start = slabs.plan.in_stacks[slabs.stack_of[block]], 0
    remaining = iter(sizes)
    for part in slabs.parts_of(block):
        if part.block is None:
            stop = start + next(remaining)
            x, axes = mixed[..., start:stop], own.axes(whole_view(own))
            start = stop
        else:
            label = next(i for i in _largest(own.labels) if _without(own, i) == part.view)
            x = means[own.orders[0][label]]
            axes = [group for group in own.axes(whole_view(own)) if group != (label,)]
        dropped = tuple(i for i, group in enumerate(axes) if group not in part.view.kept)
        x = jnp.mean(x, axis=dropped) if dropped else x
        found[part] = _turn(x, own, stack, part.view) if part.block is None else x
    return found


def take_diagonal(slabs: Slabs, block: int, diagonal: View, leaf: Array) -> Array:
    """A leaf's entries on a diagonal of one of its blocks: [diagonal..., fixed, trailing]."""
    described = slabs.plan.in_space.blocks[block]
    folded = slabs.fold(described.leaf, leaf)[block]
    x = reduce_stack(slabs.own_stack(block), {diagonal}, folded)[diagonal]
    return x.reshape(*x.shape[:-1], described.width, -1)


def apply_to_parts(
    slabs: Slabs,
    coefficients: Mapping[str, Float[Array, "rows columns"]],
    bias: Float[Array, "leaves channels"] | None,
    parts: Mapping[Part, Array],
    diagonals: Mapping[tuple[int, View], Array],
    others: Mapping[int, Array],
) -> list[Array]:
    """The output of the layer, a leaf at a time.

    Args:
        slabs: which leaves are read slab by slab.
        coefficients: as in `unf.nn.apply`.
        bias: as there.
        parts: what `gather` found, of all these leaves.
        diagonals: the features on each of their `diagonals`.
        others: the features of all other leaves.
    """
    plan, space = slabs.plan, slabs.plan.in_space
    whole = {i: x for leaf, array in others.items() for i, x in slabs.fold(leaf, array).items()}
    features, mixed = {}, {}
    for index, stack in enumerate(plan.in_stacks):
        views = slabs.views[index]
        if index not in slabs.stacks:
            reduced = reduce_stack(stack, views, gather_stack(stack, whole))
            features |= {(index, view): reduced[view] for view in views}
            continue
        for view in views:
            if slabs.is_mixed(index, view):
                mixed[index, view] = parts[Part(index, view, None)]
                continue
            arrays = [
                _turn(_view_of(slabs, b, view, parts, diagonals), slabs.own_stack(b), stack, view)
                for b in stack.blocks
            ]
            features[index, view] = jnp.concatenate(arrays, axis=-1)
    return space.unfold(embed(plan, mix(plan, coefficients, features, mixed), bias))


def _turn(array: Array, stack: Stack, other: Stack, view: View) -> Array:
    """A view of a stack with its axes in the order of another stack with the same labels."""
    axes = stack.axes(view)
    return transpose(array, [axes.index(group) for group in other.axes(view)])


def _view_of(
    slabs: Slabs,
    block: int,
    view: View,
    parts: Mapping[Part, Array],
    diagonals: Mapping[tuple[int, View], Array],
) -> Array:
    """A view of a block from what was gathered of it."""
    own, index = slabs.own_stack(block), slabs.stack_of[block]
    diagonal = make_view(set(view.groups), set(), own.labels)
    if diagonal != whole_view(own):
        source, x = diagonal, diagonals[block, diagonal]
        x = x.reshape(*x.shape[: len(diagonal.kept)], -1)
    else:
        means = [_without(own, i) for i in _largest(own.labels)]
        source = next(mean for mean in means if set(view.kept) <= set(mean.kept))
        x = parts[Part(index, source, block)]
    dropped = [i for i, group in enumerate(own.axes(source)) if group not in view.kept]
    return jnp.mean(x, axis=tuple(dropped)) if dropped else x


def _rows(slabs: Slabs, coefficients: Mapping[str, Array], part: Part, block: int) -> Array:
    """The coefficients of a block's view: a row for each channel, a column for each matching."""
    plan, index = slabs.plan, part.stack
    labels = part.view.core(plan.in_stacks[index].labels)
    core = next(core for core in plan.cores if core.labels == labels)
    matrix = masked(plan, core, coefficients[core.name])
    channels = matrix.shape[0] // plan.matrix_shape(core, 1, 1)[0]
    matrices = matrix.reshape(len(core.matchings), -1, matrix.shape[1])
    start = 0
    for feature in core.features:
        stack = plan.in_stacks[feature.stack]
        if (feature.stack, feature.view) == (index, part.view):
            at = stack.blocks.index(block)
            start += channels * sum(stack.widths[:at])
            rows = matrices[:, start : start + channels * stack.widths[at]]
            return jnp.moveaxis(rows, 0, 1).reshape(rows.shape[1], -1)
        start += channels * stack.width
    raise AssertionError(f"no core reads {part}")


def _largest(labels: Sequence[Any]) -> list[int]:
    """The positions of the two largest axes."""
    return sorted(range(len(labels)), key=lambda i: (-labels[i].size, i))[:2]


def _without(stack: Stack, position: int) -> View:
    """The mean over an axis, and over those that are nested in it."""
    labels = stack.labels
    dropped = {position}
    while more := {i for i, x in enumerate(labels) if x.parent in dropped} - dropped:
        dropped |= more
    kept = {(i,) for i in range(len(labels)) if i not in dropped}
    return make_view(kept, {(i,) for i in dropped}, labels)
