"""Deep models that read and edit weights, beyond the paper's."""

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, PRNGKeyArray, PyTree

from .._html import repr_html
from ..basis._cost import MAX_FIXED
from ..nn import AttentionPool
from ..nn._spaces import replace_fields
from ..spec import SpecError, WeightSpace
from ._invariant import Invariant
from ._neurons import NeuronFeatures, NeuronUNF
from ._probe import Probe, make_head
from ._unf import record_call, record_spaces

Size = Literal["small", "base", "large"]
SIZES: dict[str, dict[str, Any]] = {
    "small": {"hidden_channels": 64, "num_blocks": 4},
    "base": {"hidden_channels": 128, "num_blocks": 6},
    "large": {"hidden_channels": 256, "num_blocks": 8},
}
"""Presets of `reader`."""
_MLP_WIDTH, _MLP_LAYERS, _HEADS, _DROPOUT = 512, 3, 4, 0.1
_GAIN = 0.1
"""The initial size of an editor's changes, in standard deviations of the weights."""


def reader(
    space: WeightSpace,
    out_size: int,
    *,
    key: PRNGKeyArray,
    size: Size = "base",
    probe: Probe | None = None,
    in_channels: int = 1,
    dropout: float = _DROPOUT,
    max_fixed: int | None = MAX_FIXED,
) -> Invariant:
    """A deep invariant model: `NeuronFeatures`, attention pooling, and an MLP.

    It expects inputs of a known scale: `unf.fit` standardizes weights. With a `Probe` it also sees
    what the network answers to inputs that are learned.

    >>> import jax, unf
    >>> space = unf.testing.spaces.mlp(2, 4, 1)
    >>> model = reader(space, 10, key=jax.random.key(0), size="small")
    >>> model(unf.testing.random_features(space, 1, key=jax.random.key(1))).shape
    (10,)

    Args:
        space: the weight space of the input.
        out_size: length of the output vector.
        key: draws the coefficients.
        size: "small" (64 channels, 4 blocks), "base" (128, 6), or "large" (256, 8).
        probe: a probe on the same space, whose output becomes features of the MLP; `load_model`
            needs its `fn` again.
        in_channels: channels of the input.
        dropout: rate of dropout in each block, if the model is called with a key.
        max_fixed: longer fixed axes are permuted and told apart by their positions, see `UNF`.

    Raises:
        SpecError: if the probe belongs to another space.
    """
    made_by = record_call("reader", locals())
    if probe is not None and in_channels != 1:
        raise ValueError(f"in_channels is {in_channels}; a probe reads weights only, one channel")
    if probe is not None and probe.space != space:
        raise SpecError(
            "the probe belongs to another weight space",
            expected=repr(space),
            got=repr(probe.space),
            remedy="make it with the reader's space, or use probe.on(space)",
        )
    keys, options = jax.random.split(key, 3), _options(size)
    channels = options["hidden_channels"]
    backbone = NeuronFeatures(
        space, in_channels, key=keys[0], dropout=dropout, max_fixed=max_fixed, **options
    )
    pool = AttentionPool(backbone.out_space, channels, key=keys[1], num_heads=_HEADS)
    features = pool.out_size(channels) + (0 if probe is None else int(probe.head.out_size))
    head = make_head(features, out_size, _MLP_WIDTH, _MLP_LAYERS, "gelu", keys[2])
    return Invariant(backbone, pool, head, probe=probe, made_by=made_by)


def _options(size: str) -> dict[str, Any]:
    if size not in SIZES:
        raise ValueError(f"size is {size!r}; expected one of {list(SIZES)}")
    return SIZES[size]


class Editor(eqx.Module):
    """Weights to weights: w + g ⊙ Δ(w), with an equivariant model Δ and a gain g for each leaf.

    `editor` makes one with a `NeuronUNF`; any other model with a `space` that maps features to
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
    if num_outputs < 1:
        raise ValueError(f"num_outputs is {num_outputs}; expected at least 1")
    backbone = NeuronUNF(
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
