"""Positional encodings, which distinguish the indices of axes that a layer permutes."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._html import in_brief
from ..spec import SpecError, WeightSpace
from ..spec._blocks import Block
from ..spec._grammar import base_name, parse_name
from ..spec._space import check_differs_in_sizes
from ._spaces import replace_fields


class PositionalEncoding(eqx.Module):
    """Give every entry an encoding of its index along chosen axes (§2, example 3).

    The paper permutes every axis and uses positional encodings to distinguish indices that
    should not be permuted: filter positions, inputs, outputs. Encodings of several axes, or of
    several occurrences of one axis, add up. They become new channels, which are zero for leaves
    without such an axis, or are added to the existing channels.
    """

    tables: dict[str, Float[Array, "size channels"]]
    space: WeightSpace = eqx.field(static=True)
    axes: tuple[str, ...] = eqx.field(static=True)
    channels: int = eqx.field(static=True)
    mode: str = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)

    def __init__(
        self,
        space: WeightSpace,
        channels: int,
        *,
        axes: tuple[str | int, ...] = (),
        kind: str = "sinusoidal",
        mode: str = "concat",
        key: PRNGKeyArray | None = None,
        dtype: Any = jnp.float32,
    ):
        """Initialize an encoding.

        Args:
            space: the weight space of the features.
            channels: channels of the encoding; with `mode="add"`, those of the features.
            axes: names of the axes to encode, by default every fixed axis.
            kind: "sinusoidal", or "learned": a table drawn from N(0, 1).
            mode: "concat" appends the encoding as new channels, "add" adds it to the existing
                channels.
            key: draws learned tables.
            dtype: dtype of the tables.
        """
        if kind not in ("sinusoidal", "learned") or mode not in ("concat", "add"):
            raise ValueError(f"unknown kind {kind!r} or mode {mode!r} of positional encoding")
        if kind == "learned" and key is None:
            raise ValueError("a learned positional encoding needs key=")
        names = [parse_name(axis) for axis in axes] or list(space.fixed)
        unknown = [name for name in names if name not in space.axis_sizes]
        if unknown or not names:
            raise SpecError(
                "no such axes to encode",
                expected=f"some of {list(space.axis_sizes)}",
                got=unknown or "a space without fixed axes, and no axes=",
            )
        self.space, self.axes, self.channels = space, tuple(names), channels
        self.mode, self.dtype = mode, dtype
        self.tables = {}
        if kind == "learned" and key is not None:
            for i, name in enumerate(names):
                shape = (space.axis_sizes[name], channels)
                self.tables[name] = jax.random.normal(jax.random.fold_in(key, i), shape, dtype)

    def on(self, space: WeightSpace) -> "PositionalEncoding":
        """The same encoding on a weight space of other sizes; learned tables keep theirs."""
        check_differs_in_sizes(space, self.space)
        for name, table in self.tables.items():
            if len(table) != space.axis_sizes[name]:
                raise SpecError(
                    f"the learned encoding of {name!r} has {len(table)} indices",
                    expected="an axis of that size, or kind='sinusoidal'",
                    got=f"size {space.axis_sizes[name]}",
                )
        return replace_fields(self, space=space)

    def _table(self, name: str) -> Float[Array, "size channels"]:
        """The encoding of each index of an axis; learned ones are stored, the others are not."""
        if self.tables:
            return self.tables[name]
        return jnp.asarray(sinusoids(self.space.axis_sizes[name], self.channels), self.dtype)

    def __call__(self, x: PyTree) -> PyTree:
        """Apply to features with a trailing channel axis."""
        leaves = self.space.flatten(x, channels=True)
        out = []
        for layout, leaf in zip(self.space.layouts, leaves, strict=True):
            code = layout.join([self._encode(block) for block in layout.blocks])
            code = code.astype(leaf.dtype)
            out.append(leaf + code if self.mode == "add" else jnp.concatenate([leaf, code], -1))
        return self.space.unflatten(out)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={self.space.axis_sizes[name]}" for name in self.axes)
        kind = "learned" if self.tables else "sinusoidal"
        return f"PositionalEncoding({sizes}; {self.channels} channels, {kind}, {self.mode})"

    __pdoc__ = in_brief

    def _encode(self, block: Block) -> Array:
        """The encoding of one block, with its axes in the order in which they are stored."""
        code = jnp.zeros((*(atom.size for atom in block.atoms), self.channels), self.dtype)
        for name, index in block.indices:
            if name in self.axes:
                code += jnp.broadcast_to(self._table(name)[index], code.shape)
        for axis, atom in enumerate(block.atoms):
            name = base_name(atom.name or "")
            if name in self.axes:
                shape = [1] * len(block.atoms) + [self.channels]
                shape[axis] = atom.size
                code += jnp.broadcast_to(self._table(name).reshape(shape), code.shape)
        return code


def sinusoids(size: int, channels: int) -> np.ndarray:
    """Sines and cosines of each index; the longest wavelength is twice the axis's length."""
    frequencies = 1 / np.geomspace(1, max(size, 2) / np.pi, -(-channels // 2))
    angles = np.arange(size)[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)[:, :channels]
