"""From stored leaves to labeled tensors, and back.

A leaf's axes may be products, concatenations, fixed, nested, or differ by index. `Layout.split`
undoes all of it: products become several axes, concatenations become several arrays, and a fixed
axis that names are nested in, or that others differ along, becomes one array per index. What
remains is a *block*: an array each of whose axes
carries one permutation or is fixed. `join` is the inverse. Everything downstream sees only blocks.
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
from ._grammar import AxisSpec, ByIndex, Concat, Name, Number, Product, base_name, map_atoms
from ._sizes import axis_size

MOST_AXES = 64
"""The most axes of a block, as of a NumPy array."""
MOST_CUTS = 2**12
"""The most blocks of a space beyond one per leaf; a layer on more could not be run."""


_Indices = tuple[tuple[str, int], ...]


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
    """One axis of a block in stored order, permuted or fixed; anonymous ones have no name.

    `axis` is the position of the leaf's axis that it is, or is a factor or a part of.
    """

    name: str | None
    size: int
    permuted: bool
    axis: int


@dataclass(frozen=True)
class Block:
    """A labeled tensor cut out of a leaf.

    Attributes:
        leaf: the position of its leaf in the weight space.
        atoms: its axes in stored order.
        indices: for a block at one index of some fixed axes, these axes and the index.
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
        """The size of the fixed axes together: how many channels one channel becomes."""
        return prod(self.atoms[i].size for i in self.fixed)

    @cached_property
    def labels(self) -> tuple[Label, ...]:
        """The permuted axes, in stored order."""
        atoms = [self.atoms[i] for i in self.permuted]
        names = [str(atom.name) for atom in atoms]
        return tuple(
            Label(name, atom.size, _find_parent(names, position))
            for position, (name, atom) in enumerate(zip(names, atoms, strict=True))
        )

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


def _find_parent(names: list[str], position: int) -> int | None:
    """The axis that the one at `position` is nested in: the only one, or the nearest before it."""
    parent = _parent_name(names[position])
    if not parent:
        return None
    found = [i for i, name in enumerate(names) if name == parent]
    before = [i for i in found if i < position]
    if not found:
        raise SpecError(
            f"{names[position]!r} is nested in {parent!r}, but no axis beside it has that name",
            expected=f"an axis {parent!r} in this leaf",
            remedy="write the name without the dot if all indices share one permutation",
        )
    if len(found) > 1 and not before:
        raise SpecError(
            f"{names[position]!r} is nested in {parent!r}, which occurs {len(found)} times "
            "in this leaf and never before it",
            remedy=f"put the {parent!r} it belongs to before it",
        )
    return found[0] if len(found) == 1 else before[-1]


def _parent_name(name: str) -> str:
    """The permutation that a block's axis is nested in, or the empty string."""
    parts = name.split(".")[:-1]
    while parts and parts[-1].endswith("]"):
        parts.pop()
    return ".".join(parts)


@dataclass(frozen=True)
class _Factor:
    """Reshape the axis at `position`, a product, to factors of the given sizes."""

    position: int
    sizes: tuple[int, ...]
    inner: "_Step"


@dataclass(frozen=True)
class _Cut:
    """Cut the axis at `position` into parts of the given sizes."""

    position: int
    sizes: tuple[int, ...]
    parts: tuple["_Step", ...]


_Step = Block | _Factor | _Cut


class Layout:
    """How one leaf is cut into at most `most` blocks, given its axes and the size of every name."""

    def __init__(
        self, leaf: int, axes: tuple[AxisSpec, ...], sizes: Mapping[str, int], most: int = MOST_CUTS
    ):
        self._leaf, self._sizes, self._most = leaf, sizes, most
        self.blocks: list[Block] = []
        self._steps = self._plan(axes, (), tuple(range(len(axes))))

    def _plan(
        self, axes: tuple[AxisSpec, ...], indices: _Indices, stored: tuple[int, ...]
    ) -> _Step:
        if len(axes) > MOST_AXES:
            raise SpecError(
                f"the specification has {len(axes)} axes, counting the factors of products",
                expected=f"at most {MOST_AXES}, as many as an array may have",
            )
        for i, axis in enumerate(axes):
            before, after = axes[:i], axes[i + 1 :]
            if isinstance(axis, Product):
                factored = (*before, *axis.factors, *after)
                of_factors = (*stored[:i], *[stored[i]] * len(axis.factors), *stored[i + 1 :])
                inner = self._plan(factored, indices, of_factors)
                return _Factor(i, self._shape(axis.factors), inner)
            if isinstance(axis, Concat):
                each = [(*before, part, *after) for part in axis.parts]
                parts = tuple(self._plan(part, indices, stored) for part in each)
                return _Cut(i, self._shape(axis.parts), parts)
        for i, axis in enumerate(axes):
            if isinstance(axis, ByIndex):
                return self._by_index(axes, _find_index(axes, i), indices, stored)
        # Fixed axes last: by now every name of the block is in sight.
        for i, axis in enumerate(axes):
            if not isinstance(axis, Name) or not axis.fixed:
                continue
            names = [axes[j] for j in _nested_in(axes, i)]
            if any(isinstance(name, Name) and not name.fixed for name in names):
                base = base_name(axis.path)
                parts = tuple(
                    self._plan(_at_index(axes, i, index), (*indices, (base, index)), stored)
                    for index in range(self._sizes[base])
                )
                return _Cut(i, (1,) * len(parts), parts)
        return self._block(axes, indices, stored)

    def _by_index(
        self,
        axes: tuple[AxisSpec, ...],
        position: int,
        indices: _Indices,
        stored: tuple[int, ...],
    ) -> _Cut:
        """One step for each index of a fixed axis that axes in braces refer to."""
        fixed = axes[position]
        assert isinstance(fixed, Name)
        count = self._sizes[fixed.path]
        parts = []
        for index in range(count):
            chosen = list(axes)
            for i, axis in enumerate(axes):
                if isinstance(axis, ByIndex) and _find_index(axes, i) == position:
                    if len(axis.options) != count:
                        raise SpecError(
                            f'"{axis}" has {len(axis.options)} axes between braces',
                            expected=f"one for each of the {count} indices of [{axis.index}]",
                        )
                    chosen[i] = axis.options[index]
            at_index = _at_index(tuple(chosen), position, index)
            parts.append(self._plan(at_index, (*indices, (fixed.path, index)), stored))
        return _Cut(position, (1,) * count, tuple(parts))

    def _block(
        self, axes: tuple[AxisSpec, ...], indices: _Indices, stored: tuple[int, ...]
    ) -> Block:
        atoms = tuple(
            Atom(axis.path, size, not axis.fixed, position)
            if isinstance(axis, Name)
            else Atom(None, size, False, position)
            for axis, size, position in zip(axes, self._shape(axes), stored, strict=True)
        )
        self.blocks.append(Block(self._leaf, atoms, indices))
        if len(self.blocks) > self._most:
            raise SpecError(
                "concatenations, braces, and fixed axes that names are nested in cut the arrays "
                "into too many blocks",
                expected=f"at most {MOST_CUTS} cuts in all",
                remedy="write fewer axes as concatenations, or write names without the dot",
            )
        return self.blocks[-1]

    def _shape(self, axes: tuple[AxisSpec, ...]) -> tuple[int, ...]:
        return tuple(axis_size(map_atoms(axis, _without_index), self._sizes) for axis in axes)

    def split(self, array: Any) -> list[Any]:
        """The blocks of a stored array, which may have any number of trailing axes.

        An axis may also be shorter, down to some indices of its first factor.
        """
        return _split(self._steps, array)

    def windows(self, shape: tuple[int, ...]) -> list[tuple[int, tuple[int, ...]]]:
        """Where each block begins in the flat array, and how far its entries are apart per axis."""
        strides = tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
        return _windows(self._steps, 0, strides)

    def join(self, blocks: list[Any]) -> Any:
        """The stored array made of its blocks: the inverse of `split`."""
        return _join(self._steps, iter(blocks))


def _split(step: _Step, array: Any) -> list[Any]:
    if isinstance(step, Block):
        return [array]
    if isinstance(step, _Factor):
        i, (_, *others) = step.position, step.sizes
        factors = (array.shape[i] // max(1, prod(others)), *others)
        return _split(step.inner, array.reshape(*array.shape[:i], *factors, *array.shape[i + 1 :]))
    start, blocks = 0, []
    for size, part in zip(step.sizes, step.parts, strict=True):
        blocks += _split(part, _slice(array, start, start + size, step.position))
        start += size
    return blocks


def _windows(
    step: _Step, offset: int, strides: tuple[int, ...]
) -> list[tuple[int, tuple[int, ...]]]:
    if isinstance(step, Block):
        return [(offset, strides)]
    i, found = step.position, []
    if isinstance(step, _Factor):
        within = [strides[i] * prod(step.sizes[j + 1 :]) for j in range(len(step.sizes))]
        return _windows(step.inner, offset, (*strides[:i], *within, *strides[i + 1 :]))
    for size, part in zip(step.sizes, step.parts, strict=True):
        found += _windows(part, offset, strides)
        offset += size * strides[i]
    return found


def _join(step: _Step, blocks: Iterator[Any]) -> Any:
    if isinstance(step, Block):
        return next(blocks)
    if isinstance(step, _Factor):
        array, i, n = _join(step.inner, blocks), step.position, len(step.sizes)
        product = prod(array.shape[i : i + n])
        return array.reshape(*array.shape[:i], product, *array.shape[i + n :])
    parts = [_join(part, blocks) for part in step.parts]
    return array_module(parts[0]).concatenate(parts, axis=step.position)


def array_module(array: Any) -> Any:
    """NumPy for its own arrays, so that nothing is compiled for them; else `jax.numpy`."""
    return np if isinstance(array, np.ndarray) else jnp


def _slice(array: Any, start: int, stop: int, axis: int) -> Any:
    if isinstance(array, np.ndarray):
        return array[(slice(None),) * axis + (slice(start, stop),)]
    return jax.lax.slice_in_dim(array, start, stop, axis=axis)


def _find_index(axes: tuple[AxisSpec, ...], position: int) -> int:
    """The fixed axis that an axis in braces refers to: the only one, or the nearest before it."""
    by_index = axes[position]
    assert isinstance(by_index, ByIndex)
    wanted = Name(by_index.index, fixed=True)
    found = [i for i, axis in enumerate(axes) if axis == wanted]
    before = [i for i in found if i < position]
    if not found or (len(found) > 1 and not before):
        raise SpecError(
            f'"{by_index}" differs between the indices of {by_index.index!r}, '
            + (f"which occurs {len(found)} times, never before it" if found else "not fixed here"),
            expected=f"[{by_index.index}] before it in this leaf",
        )
    return found[0] if len(found) == 1 else before[-1]


def _nested_in(axes: tuple[AxisSpec, ...], position: int) -> list[int]:
    """The positions of the names that are nested in a fixed axis.

    If the fixed axis occurs several times, these are the names that it is the nearest one before.
    """
    fixed = axes[position]
    assert isinstance(fixed, Name)
    names = [(i, axis.path) for i, axis in enumerate(axes) if isinstance(axis, Name)]
    places = [i for i, path in names if path == fixed.path]
    found = []
    for i, path in names:
        if not path.startswith(f"{fixed.path}."):
            continue
        before = [place for place in places if place < i]
        if len(places) == 1:
            before = places
        if not before:
            raise SpecError(
                f"{path!r} is nested in {fixed.path!r}, which occurs {len(places)} times in this "
                "leaf and never before it",
                remedy=f"put the {fixed.path!r} it belongs to before it",
            )
        if before[-1] == position:
            found.append(i)
    return found


def _at_index(axes: tuple[AxisSpec, ...], position: int, index: int) -> tuple[AxisSpec, ...]:
    """The axes at one index of a fixed axis: names nested in it become names of that index."""
    changed, nested = list(axes), _nested_in(axes, position)
    for i in nested:
        name, fixed = axes[i], axes[position]
        assert isinstance(name, Name) and isinstance(fixed, Name)
        changed[i] = Name(f"{fixed.path}[{index}]{name.path[len(fixed.path) :]}", name.fixed)
    changed[position] = Number(1)
    return tuple(changed)


def _without_index(atom: Name | Number) -> AxisSpec:
    return Name(base_name(atom.path), atom.fixed) if isinstance(atom, Name) else atom
