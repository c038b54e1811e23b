"""Deep residual models that read and edit weights, beyond the paper's."""

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, PRNGKeyArray, PyTree

from .._html import repr_html
from ..basis._cost import MAX_FIXED
from ..nn import AttentionPool, FourierFeatures, Pointwise, PositionalEncoding, UNFLinear
from ..nn._spaces import replace_fields
from ..spec import WeightSpace
from ..spec._space import check_differs_in_sizes, check_is_space
from ._invariant import Invariant
from ._probe import Probe, make_head
from ._unf import check_depth, permute_long, record_call, record_spaces

Size = Literal["small", "base", "large"]
SIZES: dict[str, dict[str, Any]] = {
    "small": {"hidden_channels": 32, "num_blocks": 4, "num_frequencies": 8},
    "base": {"hidden_channels": 96, "num_blocks": 5, "num_frequencies": 16},
    "large": {"hidden_channels": 192, "num_blocks": 6, "num_frequencies": 32},
}
"""Presets of `reader`."""
SCALE = 1.5
"""Deviation of the frequencies, in cycles per deviation of a weight."""
_MLP_WIDTH, _MLP_LAYERS, _HEADS, _DROPOUT = 512, 3, 4, 0.1
_GAIN = 0.01
"""How far an editor moves weights at the start, in their deviations."""


class GatedBlock(eqx.Module):
    """A residual block: x + V(a ⊙ gelu(b)), with (a, b) an equivariant layer of x, normalized.

    To know what a network computes, a model has to multiply: weights by the activations that they
    meet. A product of two features does so exactly, which a sum before an activation does not.
    V starts at zero, so that a deep stack starts as a shallow model. Dropout drops whole channels,
    so that training is equivariant, too, and few random numbers are needed.
    """

    norm: Pointwise
    layer: UNFLinear
    project: Pointwise

    def __init__(self, space: WeightSpace, channels: int, *, key: PRNGKeyArray, dtype: Any):
        """Initialize a block."""
        self.norm = Pointwise(eqx.nn.LayerNorm(channels, dtype=dtype))
        self.layer = UNFLinear(space, channels, 2 * channels, key=key, dtype=dtype)
        linear = eqx.nn.Linear(channels, channels, use_bias=False, dtype=dtype, key=key)
        zeros = jnp.zeros_like(linear.weight)
        self.project = Pointwise(eqx.tree_at(lambda m: m.weight, linear, zeros))

    def __call__(
        self, x: PyTree, *, dropout: float, key: PRNGKeyArray | None, **sharding: Any
    ) -> PyTree:
        """Apply to features with a trailing channel axis."""
        hidden = jax.tree.map(_gate, self.layer(self.norm(x), **sharding))
        if key is not None and dropout:
            channels = jax.tree.leaves(hidden)[0].shape[-1:]
            kept = jax.random.bernoulli(key, 1 - dropout, channels) / (1 - dropout)
            hidden = jax.tree.map(lambda leaf: leaf * jnp.broadcast_to(kept, leaf.shape), hidden)
        return jax.tree.map(jnp.add, x, self.project(hidden))

    def on(self, space: WeightSpace) -> "GatedBlock":
        """The same block on a weight space of other sizes."""
        return replace_fields(self, layer=self.layer.on(space))


def _gate(x: Array) -> Array:
    a, b = jnp.split(x, 2, axis=-1)
    return a * jax.nn.gelu(b)


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
    norm: Pointwise
    last: UNFLinear
    dropout: float = eqx.field(static=True)
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
            dtype: dtype of the coefficients.
        """
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
        self.norm = Pointwise(eqx.nn.LayerNorm(hidden_channels, dtype=dtype))
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
        x = self.features(x)
        x = self.first(x if self.positions is None else self.positions(x), **sharding)
        for block, each in zip(self.blocks, keys, strict=True):
            x = block(x, dropout=self.dropout, key=each, **sharding)
        return self.last(self.norm(x), **sharding)

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


def reader(
    space: WeightSpace,
    out_size: int,
    *,
    key: PRNGKeyArray,
    size: Size = "base",
    fn: Callable[[PyTree, Array], Array] | None = None,
    input_shape: tuple[int, ...] = (),
    num_probes: int = 64,
    in_channels: int = 1,
    dropout: float = _DROPOUT,
    max_fixed: int | None = MAX_FIXED,
) -> Invariant:
    """A deep invariant model: a `ResidualUNF`, attention pooling, and an MLP.

    It expects inputs of a known scale: `unf.fit` standardizes weights. With `fn` it also sees what
    the network answers to inputs that are learned, as a `Probe` does.

    >>> import jax, unf
    >>> space = unf.testing.spaces.mlp(2, 4, 1)
    >>> model = reader(space, 10, key=jax.random.key(0), size="small")
    >>> model(unf.testing.random_features(space, 1, key=jax.random.key(1))).shape
    (10,)

    Args:
        space: the weight space of the input.
        out_size: length of the output vector.
        key: draws the coefficients.
        size: "small" (32 channels, 4 blocks), "base" (96, 5), or "large" (192, 6).
        fn: the network, a function of its weights and of inputs of shape
            (num_probes, *input_shape); such a model cannot be saved with `save_model`.
        input_shape: the shape of one input.
        num_probes: how many inputs are learned.
        in_channels: channels of the input.
        dropout: rate of dropout in each block, if the model is called with a key.
        max_fixed: longer fixed axes are permuted and told apart by their positions, see `UNF`.
    """
    made_by = record_call("reader", locals())
    keys, options = jax.random.split(key, 4), _options(size)
    channels = options["hidden_channels"]
    backbone = ResidualUNF(
        space, in_channels, channels,
        key=keys[0], dropout=dropout, max_fixed=max_fixed, **options,
    )  # fmt: skip
    pool = AttentionPool(backbone.inner_space, channels, key=keys[1], num_heads=_HEADS)
    features, probe = pool.out_size(channels), None
    if fn is not None:
        probe = Probe(fn, space, input_shape, _MLP_WIDTH, key=keys[3], num_probes=num_probes)
        features += _MLP_WIDTH
    head = make_head(features, out_size, _MLP_WIDTH, _MLP_LAYERS, "gelu", keys[2])
    return Invariant(backbone, pool, head, probe=probe, made_by=made_by)


def _options(size: str) -> dict[str, Any]:
    if size not in SIZES:
        raise ValueError(f"size is {size!r}; expected one of {list(SIZES)}")
    return SIZES[size]


class Editor(eqx.Module):
    """Weights to weights: w + g ⊙ Δ(w), with an equivariant model Δ and a gain g for each leaf.

    `editor` makes one with a `ResidualUNF`; any other model with a `space` that maps features to
    features, such as a `UNF`, can be used in the same way.

    Attributes:
        backbone: Δ, with a channel for each network that is written.
        gains: g, for each leaf and channel.
        made_by: the function that made the model and its arguments, which `save_model` needs.
    """

    backbone: Any
    gains: tuple[Array, ...]
    made_by: tuple | None = eqx.field(static=True, default=None, repr=False)

    @property
    def space(self) -> WeightSpace:
        """The weight space of input and output."""
        return self.backbone.space

    def __call__(
        self,
        x: PyTree,
        *,
        key: PRNGKeyArray | None = None,
        mesh: Mesh | None = None,
        axis: str | None = None,
    ) -> PyTree:
        """The edited weights, as features with a channel for each network that is written.

        Args:
            x: one network's weights, as features with one channel.
            key: turns dropout on.
            mesh: devices to shard features across, as in `UNFLinear`.
            axis: the mesh axis to shard leaves along; by default all of its axes together.
        """
        options = {"key": key, "mesh": mesh, "axis": axis}
        options = {name: value for name, value in options.items() if value is not None}
        before = self.space.flatten(x, channels=True)
        change = self.space.flatten(self.backbone(x, **options), channels=True)
        leaves = zip(before, change, self.gains, strict=True)
        return self.space.unflatten([w + d * jnp.broadcast_to(g, d.shape) for w, d, g in leaves])

    def on(self, space: WeightSpace) -> "Editor":
        """The same editor on a weight space of other sizes.

        Raises:
            SpecError: naming the first leaf or fixed axis that differs.
        """
        made_by = self.made_by and record_spaces(self.made_by, {self.space: space})
        return replace_fields(self, backbone=self.backbone.on(space), made_by=made_by)

    _repr_html_ = repr_html


def editor(
    space: WeightSpace,
    *,
    key: PRNGKeyArray,
    size: Size = "base",
    num_outputs: int = 1,
    dropout: float = 0.0,
    max_fixed: int | None = MAX_FIXED,
) -> Editor:
    """An equivariant model that edits weights; it starts near the identity.

    It may write several networks, whose outputs are averaged (`average`): a mean of functions can
    be what no single network of that size computes. `unf.fit` trains it through the networks that
    it writes.

    >>> import jax, unf
    >>> space = unf.testing.spaces.mlp(2, 4, 1)
    >>> model = editor(space, key=jax.random.key(0), size="small", num_outputs=3)
    >>> x = unf.testing.random_features(space, 1, key=jax.random.key(1))
    >>> model(x)["w0"].shape
    (2, 4, 3)

    Args:
        space: the weight space of the networks.
        key: draws the coefficients.
        size: as for `reader`.
        num_outputs: how many networks are written.
        dropout: rate of dropout in each block, if the model is called with a key.
        max_fixed: longer fixed axes are permuted and told apart by their positions, see `UNF`.
    """
    made_by = record_call("editor", locals())
    backbone = ResidualUNF(
        space, 1, num_outputs, key=key, dropout=dropout, max_fixed=max_fixed, **_options(size)
    )
    return Editor(backbone, initial_gains(space, num_outputs), made_by)


def initial_gains(space: WeightSpace, num_outputs: int) -> tuple[Array, ...]:
    """Gains with which an editor starts near the identity."""
    return tuple(jnp.full(num_outputs, _GAIN, jnp.float32) for _ in space.leaves)


def average(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The mean output of the networks in the channels of weights: x ↦ Σ_k fn(w_k, x) / K.

    >>> import jax.numpy as jnp
    >>> weights = {"w": jnp.array([[1.0, 3.0], [0.0, 2.0]])}  # two weights, two networks
    >>> float(average(lambda params, x: x @ params["w"])(weights, jnp.ones(2)))
    3.0
    """

    def averaged(weights: PyTree, *inputs: Any, **options: Any) -> Any:
        run = jax.vmap(lambda params: fn(params, *inputs, **options), in_axes=-1)
        return jax.tree.map(lambda outputs: jnp.mean(outputs, axis=0), run(weights))

    return averaged
