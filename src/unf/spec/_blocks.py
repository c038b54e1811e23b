"""From stored leaves to labelled tensors, and back.

A leaf's axes may be products, concatenations, fixed or nested. `split` undoes all of it:
products become several axes, concatenations several arrays, and fixed axes move behind
the permuted ones, where the channels are. What remains is a *block*: an array whose leading
axes each carry one permutation. `join` is the inverse. Everything downstream sees blocks only.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._errors import SpecError
from ._grammar import Axis, Concat, Name, Number, Product, rename
from ._sizes import axis_size


@dataclass(frozen=True)
class Label:
    """One permuted axis of a block.

    Attributes:
        name: the permutation; `layer[2].m` is the one at index 2 of a fixed axis.
        size: its number of elements.
        parent: for a nested name, the position in the block of the axis it is nested in.
    """

    name: str
    size: int
    parent: int | None = None


@dataclass(frozen=True)
class Atom:
    """One axis of a block in stored order, permuted or fixed; anonymous ones have no name."""

    name: str | None
    size: int
    permuted: bool


@dataclass(frozen=True)
class Block:
    """A labelled tensor cut out of a leaf.

    Attributes:
        leaf: the position of the leaf it is part of.
        atoms: its axes in stored order.
        indices: for a block at one index of fixed axes, those axes and the index.
    """

    leaf: int
    atoms: tuple[Atom, ...]
    indices: tuple[tuple[str, int], ...] = ()

    @cached_property
    def permuted(self) -> tuple[int, ...]:
        """Positions of the permuted axes."""
        return tuple(i for i, atom in enumerate(self.atoms) if atom.permuted)

    @cached_property
    def fixed(self) -> tuple[int, ...]:
        """Positions of the fixed axes."""
        return tuple(i for i, atom in enumerate(self.atoms) if not atom.permuted)

    @cached_property
    def width(self) -> int:
        """Elements per index of the permuted axes: how often a channel is repeated."""
        return prod(self.atoms[i].size for i in self.fixed)

    @cached_property
    def labels(self) -> tuple[Label, ...]:
        """The permuted axes, in stored order."""
        atoms = [self.atoms[i] for i in self.permuted]
        names = [str(atom.name) for atom in atoms]
        labels = []
        for position, name in enumerate(names):
            parent = parent_name(name)
            at = find_parent(parent, names, position) if parent else None
            labels.append(Label(name, atoms[position].size, at))
        return tuple(labels)

    def fold(self, array: Any) -> Any:
        """Move the fixed axes into the channels: `[stored..., c]` to `[permuted..., width·c]`."""
        order = (*self.permuted, *self.fixed, array.ndim - 1)
        if order != tuple(range(array.ndim)):
            array = jnp.transpose(array, order)
        if not self.fixed:
            return array
        return array.reshape(*array.shape[: len(self.permuted)], self.width * array.shape[-1])

    def unfold(self, array: Any) -> Any:
        """The inverse of `fold`."""
        channels = array.shape[-1] // self.width
        fixed = [self.atoms[i].size for i in self.fixed]
        array = array.reshape(*array.shape[:-1], *fixed, channels)
        order = (*self.permuted, *self.fixed)
        inverse = [order.index(i) for i in range(len(order))]
        if inverse != list(range(len(order))):
            array = jnp.transpose(array, (*inverse, array.ndim - 1))
        return array


def find_parent(parent: str, names: list[str], position: int) -> int:
    """The axis that one at `position` is nested in: the only one, or else the nearest before it."""
    found = [i for i, name in enumerate(names) if name == parent]
    before = [i for i in found if i < position]
    if len(found) != 1 and not before:
        raise SpecError(
            f"{names[position]!r} is nested in {parent!r}, which stands {len(found)} times "
            "in this leaf and never before it",
            remedy=f"put the {parent!r} it belongs to before it",
        )
    return found[0] if len(found) == 1 else before[-1]


class Layout:
    """How one leaf is cut into blocks.

    Args:
        leaf: the leaf's position in its weight space.
        axes: its axes.
        sizes: the size of every name.
    """

    def __init__(self, leaf: int, axes: tuple[Axis, ...], sizes: Mapping[str, int]):
        self.sizes = sizes
        self.axes = axes
        self.blocks = tuple(
            Block(leaf, tuple(self._atom(axis) for axis in atoms), indices)
            for atoms, indices in self._leaves(axes, ())
        )

    def _atom(self, axis: Axis) -> Atom:
        if isinstance(axis, Name):
            return Atom(axis.path, self._size(axis), not axis.fixed)
        return Atom(None, self._size(axis), False)

    def _size(self, axis: Axis) -> int:
        return axis_size(rename(axis, _without_index), self.sizes)

    def _leaves(self, axes, indices) -> Iterator[tuple[tuple[Axis, ...], tuple]]:
        step = _next_step(axes, self.sizes)
        if step is None:
            yield axes, indices
        elif isinstance(step, _Factor):
            yield from self._leaves(step.axes, indices)
        else:
            for part in step.parts:
                yield from self._leaves(part.axes, indices + part.index)

    def split(self, array: Any) -> list[Any]:
        """The blocks of a stored array, any number of trailing axes allowed."""
        return self._split(array, self.axes)

    def _split(self, array: Any, axes: tuple[Axis, ...]) -> list[Any]:
        step = _next_step(axes, self.sizes)
        if step is None:
            return [array]
        if isinstance(step, _Factor):
            sizes = [self._size(axis) for axis in step.axes]
            return self._split(array.reshape(*sizes, *array.shape[len(axes) :]), step.axes)
        start, blocks = 0, []
        for part in step.parts:
            stop = start + self._size(part.axes[step.position])
            segment = _slice(array, start, stop, step.position)
            blocks += self._split(segment, part.axes)
            start = stop
        return blocks

    def join(self, blocks: list[Any]) -> Any:
        """The stored array of its blocks: the inverse of `split`."""
        remaining = iter(blocks)
        return self._join(remaining, self.axes)

    def _join(self, blocks: Iterator[Any], axes: tuple[Axis, ...]) -> Any:
        step = _next_step(axes, self.sizes)
        if step is None:
            return next(blocks)
        if isinstance(step, _Factor):
            array = self._join(blocks, step.axes)
            sizes = [self._size(axis) for axis in axes]
            return array.reshape(*sizes, *array.shape[len(step.axes) :])
        parts = [self._join(blocks, part.axes) for part in step.parts]
        return array_module(parts[0]).concatenate(parts, axis=step.position)


def array_module(array: Any) -> Any:
    """NumPy for its own arrays, so that nothing is compiled for them; else jax.numpy."""
    return np if isinstance(array, np.ndarray) else jnp


def _slice(array: Any, start: int, stop: int, axis: int) -> Any:
    if isinstance(array, np.ndarray):
        return array[(slice(None),) * axis + (slice(start, stop),)]
    return jax.lax.slice_in_dim(array, start, stop, axis=axis)


@dataclass(frozen=True)
class _Factor:
    """Write a product as several axes."""

    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class _Part:
    axes: tuple[Axis, ...]
    index: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class _Cut:
    """Cut the axis at `position` into parts."""

    position: int
    parts: tuple[_Part, ...]


def _next_step(axes: tuple[Axis, ...], sizes: Mapping[str, int]) -> _Factor | _Cut | None:
    """The first thing to undo in these axes; None if they are those of a block."""
    for i, axis in enumerate(axes):
        if isinstance(axis, Product):
            return _Factor((*axes[:i], *axis.factors, *axes[i + 1 :]))
        if isinstance(axis, Concat):
            parts = (_Part((*axes[:i], part, *axes[i + 1 :])) for part in axis.parts)
            return _Cut(i, tuple(parts))
    # Fixed axes last: by now every name of the block is in sight.
    for i, axis in enumerate(axes):
        if isinstance(axis, Name) and axis.fixed and _has_nested(axis.path, axes):
            size = sizes[base_name(axis.path)]
            return _Cut(i, tuple(_at_index(axes, i, index) for index in range(size)))
    return None


def _has_nested(parent: str, axes: tuple[Axis, ...]) -> bool:
    return any(
        isinstance(axis, Name) and not axis.fixed and axis.path.startswith(f"{parent}.")
        for axis in axes
    )


def _at_index(axes: tuple[Axis, ...], position: int, index: int) -> _Part:
    """The block at one index of a fixed axis: what is nested in it gets names of its own."""
    fixed = axes[position]
    assert isinstance(fixed, Name)

    def nested(atom: Axis) -> Axis:
        if isinstance(atom, Name) and atom.path.startswith(f"{fixed.path}."):
            return Name(f"{fixed.path}[{index}]{atom.path[len(fixed.path) :]}", atom.fixed)
        return atom

    cut = tuple(Number(1) if i == position else rename(axis, nested) for i, axis in enumerate(axes))
    return _Part(cut, ((base_name(fixed.path), index),))


def _without_index(atom: Axis) -> Axis:
    return Name(base_name(atom.path), atom.fixed) if isinstance(atom, Name) else atom


def parent_name(name: str) -> str:
    """The permutation that a block's axis is nested in, or the empty string."""
    parts = name.split(".")[:-1]
    while parts and parts[-1].endswith("]"):
        parts.pop()
    return ".".join(parts)


def base_name(name: str) -> str:
    """The name of a block's axis as the specification has it: `layer.m` for `layer[2].m`."""
    while "[" in name:
        name = name[: name.index("[")] + name[name.index("]") + 1 :]
    return name
