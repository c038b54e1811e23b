"""A deep residual backbone: Fourier features of every weight, then gated equivariant layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, PRNGKeyArray, PyTree

from .._html import repr_html
from ..basis._cost import MAX_FIXED
from ..nn import FourierFeatures, Pointwise, PositionalEncoding, UNFLinear
from ..nn._spaces import replace_fields
from ..spec import WeightSpace
from ..spec._space import check_differs_in_sizes, check_is_space
from ._unf import check_depth, permute_long, record_call, record_spaces

SCALE = 0.25
"""Deviation of the frequencies, in cycles per deviation of a weight."""
_EPSILON = 1e-5
"""Added to variances."""
_JOINED = 0.25
"""Which share of all entries small leaves may have that are joined."""


@dataclass(frozen=True)
class _Packing:
    """Small leaves as one array, so that pointwise operations run on few arrays.

    What a GPU does with a bias takes as long as launching it, so one operation on all biases
    together is as fast as on one of them. Large leaves stay alone, since joining copies them.

    Attributes:
        space: the weight space.
        joined: the leaves that are joined, by number; none or at least two.
    """

    space: WeightSpace
    joined: tuple[int, ...]

    def pack(self, tree: PyTree) -> list[Array]:
        """The large leaves, and the entries of all small ones, [entries, channels]."""
        leaves = self.space.flatten(tree, channels=True)
        alone = [leaf for i, leaf in enumerate(leaves) if i not in self.joined]
        rows = [leaves[i].reshape(-1, leaves[i].shape[-1]) for i in self.joined]
        return [*alone, jnp.concatenate(rows)] if rows else alone

    def unpack(self, arrays: Sequence[Array]) -> PyTree:
        """The inverse of `pack`."""
        remaining, start, leaves = iter(arrays), 0, []
        for i, leaf in enumerate(self.space.leaves):
            if i not in self.joined:
                leaves.append(next(remaining))
                continue
            stop = start + prod(leaf.shape)
            rows = jax.lax.slice_in_dim(arrays[-1], start, stop)
            leaves.append(rows.reshape(*leaf.shape, rows.shape[-1]))
            start = stop
        return self.space.unflatten(leaves)


@lru_cache
def _packing(space: WeightSpace, sharded: bool) -> _Packing:
    """Join the smallest leaves; none of leaves that are sharded, each in its own way."""
    sizes = [prod(leaf.shape) for leaf in space.leaves]
    joined, total = [], 0
    for i in sorted(range(len(sizes)), key=sizes.__getitem__):
        total += sizes[i]
        if total <= _JOINED * sum(sizes) and not sharded:
            joined.append(i)
    return _Packing(space, tuple(sorted(joined)) if len(joined) > 1 else ())


@jax.custom_jvp
def normalize(x: Array) -> Array:
    """Channels with mean 0 and variance 1 at every entry: a layer norm without coefficients.

    The layer that follows has coefficients and a bias of its own. Tangents are computed from the
    result, so that gradients read one array instead of all steps on the way.
    """
    return _normalize(x)[0]


@normalize.defjvp
def _normalize_tangent(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """With n = (x − mean)/σ: dn = (dx − mean(dx) − n mean(n dx))/σ."""
    y, inverse = _normalize(primals[0])
    n, t = (array.astype(inverse.dtype) for array in (y, tangents[0]))
    t = t - jnp.mean(t, axis=-1, keepdims=True) - n * jnp.mean(n * t, axis=-1, keepdims=True)
    return y, (t * inverse).astype(y.dtype)


def _normalize(x: Array) -> tuple[Array, Array]:
    """The result and 1/σ, computed in float32 or better."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    centered = wide - jnp.mean(wide, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centered), axis=-1, keepdims=True)
    inverse = jax.lax.rsqrt(variance + _EPSILON)
    return (centered * inverse).astype(x.dtype), inverse


class GatedBlock(eqx.Module):
    """A residual block: x + V(a ⊙ gelu(b)), with (a, b) an equivariant layer of x, normalized.

    To know what a network computes, a model has to multiply: weights by the activations that they
    meet. A product of two features does so exactly, which a sum before an activation does not.
    V starts at zero, so that a deep stack starts as a shallow model. Dropout drops whole channels,
    so that training is equivariant, too, and few random numbers are needed.
    """

    layer: UNFLinear
    project: Pointwise

    def __init__(self, space: WeightSpace, channels: int, *, key: PRNGKeyArray, dtype: Any):
        """Initialize a block."""
        self.layer = UNFLinear(space, channels, 2 * channels, key=key, dtype=dtype)
        linear = eqx.nn.Linear(channels, channels, use_bias=False, dtype=dtype, key=key)
        zeros = jnp.zeros_like(linear.weight)
        self.project = Pointwise(eqx.tree_at(lambda m: m.weight, linear, zeros))

    def __call__(
        self,
        x: list[Array],
        packing: _Packing,
        *,
        dropout: float,
        key: PRNGKeyArray | None,
        **sharding: Any,
    ) -> list[Array]:
        """Apply to packed features."""
        mixed = self.layer(packing.unpack([normalize(array) for array in x]), **sharding)
        hidden = [_gate(array) for array in packing.pack(mixed)]
        if key is not None and dropout:
            channels = hidden[0].shape[-1:]
            kept = jax.random.bernoulli(key, 1 - dropout, channels) / (1 - dropout)
            kept = kept.astype(hidden[0].dtype)
            hidden = [array * jnp.broadcast_to(kept, array.shape) for array in hidden]
        return [a + b for a, b in zip(x, self.project(hidden), strict=True)]

    def on(self, space: WeightSpace) -> "GatedBlock":
        """The same block on a weight space of other sizes."""
        return replace_fields(self, layer=self.layer.on(space))


def _gate(x: Array) -> Array:
    a, b = jnp.split(x, 2, axis=-1)
    return a * jax.nn.gelu(b)


def name_of_dtype(dtype: Any) -> str | None:
    """The name of a floating-point dtype, which files can hold."""
    if dtype is None:
        return None
    try:
        known = jnp.dtype(dtype)
    except TypeError:
        known = None
    if known is None or not jnp.issubdtype(known, jnp.floating):
        raise ValueError(
            f"compute_dtype is {dtype!r}; expected a floating-point dtype such as 'bfloat16'"
        )
    return known.name


def _cast(tree: PyTree, dtype: Any) -> PyTree:
    """The tree with another dtype for its real arrays."""
    return jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, tree)


class ResidualUNF(eqx.Module):
    """Fourier features of every weight, then residual blocks of gated equivariant layers.

    Simulating one layer of the network that is read takes about two blocks. Long fixed axes are
    permuted and told apart by positional encodings, as in `UNF`.

    >>> import jax, unf
    >>> space = unf.testing.spaces.mlp(2, 4, 1)
    >>> model = ResidualUNF(space, 1, 3, key=jax.random.key(0), hidden_channels=8)
    >>> x = unf.testing.random_features(space, 1, key=jax.random.key(1))
    >>> {leaf.shape[-1] for leaf in jax.tree.leaves(model(x))}
    {3}
    """

    features: FourierFeatures
    positions: PositionalEncoding | None
    first: UNFLinear
    blocks: tuple[GatedBlock, ...]
    last: UNFLinear
    dropout: float = eqx.field(static=True)
    compute_dtype: str | None = eqx.field(static=True)
    space: WeightSpace = eqx.field(static=True)
    made_by: tuple = eqx.field(static=True, repr=False)

    def __init__(
        self,
        space: WeightSpace,
        in_channels: int,
        out_channels: int,
        *,
        key: PRNGKeyArray,
        hidden_channels: int = 64,
        num_blocks: int = 4,
        num_frequencies: int = 16,
        scale: float = SCALE,
        dropout: float = 0.0,
        max_fixed: int | None = MAX_FIXED,
        compute_dtype: Any = None,
        dtype: Any = jnp.float32,
    ):
        """Initialize a model.

        Args:
            space: the weight space of the input.
            in_channels: channels of the input.
            out_channels: channels of the output.
            key: draws the coefficients.
            hidden_channels: channels between layers.
            num_blocks: the number of residual blocks.
            num_frequencies: Fourier features of each channel of the input, which are learned.
            scale: the deviation of their frequencies at the start, see `FourierFeatures`.
            dropout: rate of dropout in each block, if the model is called with a key.
            max_fixed: the longest fixed axes that layers keep fixed; None keeps all of them.
            compute_dtype: dtype of everything between the Fourier features and the output, such as
                "bfloat16", which moves half as many bytes; by default coefficients and features
                are as they are.
            dtype: dtype of the coefficients.
        """
        self.compute_dtype = compute_dtype = name_of_dtype(compute_dtype)
        self.made_by = record_call("ResidualUNF", locals())
        check_depth("num_blocks", num_blocks, dropout)
        self.space, self.dropout = space, dropout
        inner, self.positions = permute_long(space, max_fixed, hidden_channels)
        keys = jax.random.split(key, num_blocks + 3)
        self.features = FourierFeatures(
            inner, in_channels, num_frequencies,
            key=keys[0], scale=scale, learned=True, dtype=dtype,
        )  # fmt: skip
        channels = self.features.out_channels
        channels += 0 if self.positions is None else hidden_channels
        self.first = UNFLinear(inner, channels, hidden_channels, key=keys[1], dtype=dtype)
        self.blocks = tuple(
            GatedBlock(inner, hidden_channels, key=each, dtype=dtype) for each in keys[3:]
        )
        self.last = UNFLinear(inner, hidden_channels, out_channels, key=keys[2], dtype=dtype)

    @property
    def inner_space(self) -> WeightSpace:
        """The weight space of the layers, in which long fixed axes are permuted."""
        return self.first.plan.in_space

    def __call__(
        self,
        x: PyTree,
        *,
        key: PRNGKeyArray | None = None,
        mesh: Mesh | None = None,
        axis: str | None = None,
    ) -> PyTree:
        """Apply to features with a trailing channel axis.

        Args:
            x: the features.
            key: turns dropout on.
            mesh: devices to shard features across, as in `UNFLinear`.
            axis: the mesh axis to shard leaves along; by default all of its axes together.
        """
        sharding = {"mesh": mesh, "axis": axis}
        count = len(self.blocks)
        keys = [None] * count if key is None else jax.random.split(key, count)
        packing = _packing(self.inner_space, mesh is not None)
        x = self.features(x)
        x = x if self.positions is None else self.positions(x)
        layers, wide = (self.first, self.blocks, self.last), None
        if self.compute_dtype is not None:
            wide = jnp.result_type(*jax.tree.leaves(eqx.filter((layers, x), eqx.is_inexact_array)))
            layers, x = _cast((layers, x), self.compute_dtype)
        first, blocks, last = layers
        hidden = packing.pack(first(x, **sharding))
        for block, each in zip(blocks, keys, strict=True):
            hidden = block(hidden, packing, dropout=self.dropout, key=each, **sharding)
        y = last(packing.unpack([normalize(array) for array in hidden]), **sharding)
        return y if wide is None else _cast(y, wide)

    def on(self, space: WeightSpace) -> "ResidualUNF":
        """The model with the same coefficients on a weight space of other sizes.

        Raises:
            SpecError: naming the first leaf or fixed axis that differs.
        """
        check_is_space(space)
        max_fixed = dict(self.made_by[1])["max_fixed"]
        inner = space if max_fixed is None else space.relax(above=max_fixed)
        check_differs_in_sizes(inner, self.inner_space)
        return replace_fields(
            self,
            features=self.features.on(inner),
            positions=self.positions and self.positions.on(inner),
            first=self.first.on(inner),
            blocks=tuple(block.on(inner) for block in self.blocks),
            last=self.last.on(inner),
            space=space,
            made_by=record_spaces(self.made_by, {self.space: space}),
        )

    _repr_html_ = repr_html
