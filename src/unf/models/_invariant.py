"""Invariant models: an equivariant backbone, pooling and an MLP (§4.1)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._html import repr_html
from ..basis._cost import MAX_FIXED
from ..nn import AttentionPool, DeepSetLinear, InvariantPool, RolePool
from ..nn._spaces import replace_fields
from ..spec import SpecError, WeightSpace
from ._probe import Probe, make_head
from ._unf import UNF, ActivationLike, Tied, record_call, record_spaces, resolve_activation

SEVEN_STATISTICS = ("mean", "var", "min", "q25", "median", "q75", "max")
"""The statistics of every tensor that the baseline of Unterthiner et al. (2020) reads."""


class Invariant(eqx.Module):
    """Predict a vector from weights: head(pool(activation(backbone(x)))).

    `InvariantUNF`, `InvariantDeepSet` and `StatNN` make such models; any other backbone can be
    used in the same way:

    >>> import equinox as eqx, jax, unf
    >>> shapes = {"w": jax.ShapeDtypeStruct((8, 8), "float32")}
    >>> space = unf.WeightSpace.from_spec({"w": "n n"}, shapes)
    >>> keys = jax.random.split(jax.random.key(0))
    >>> backbone = unf.nn.UNFLinear(space, 1, 4, key=keys[0])
    >>> pool = unf.nn.InvariantPool(space, statistics=("mean", "max"))
    >>> head = eqx.nn.Linear(pool.out_size(4), 2, key=keys[1])
    >>> model = Invariant(backbone, pool, head, activation=jax.nn.relu)
    >>> model({"w": jax.numpy.ones((8, 8, 1))}).shape
    (2,)

    Attributes:
        backbone: maps features to features, or None.
        pool: maps features to a vector that permutations do not change.
        head: maps this vector to the output.
        activation: a function of every entry between backbone and pooling, or None.
        raw_pool: pools the input itself into more features for the head, or None.
        made_by: the function that made the model and its arguments, which `save_model` needs.
        probe: reads what the network answers, for more features for the head, or None.
    """

    backbone: Any
    pool: InvariantPool | RolePool | AttentionPool
    head: Any
    activation: Callable[[Array], Array] | None = eqx.field(static=True, default=None)
    raw_pool: InvariantPool | RolePool | None = None
    made_by: tuple | None = eqx.field(static=True, default=None, repr=False)
    probe: Probe | None = None

    @property
    def space(self) -> WeightSpace | None:
        """The weight space of the input; None for a model that fits any, before `on`."""
        return getattr(self.backbone, "space", self.pool.space)

    def __call__(
        self,
        x: PyTree,
        space: WeightSpace | None = None,
        *,
        raw: PyTree | None = None,
        key: PRNGKeyArray | None = None,
        mesh: Mesh | None = None,
        axis: str | None = None,
    ) -> Float[Array, " out_size"]:
        """A vector that does not change when the weights are permuted.

        Args:
            x: features with a trailing channel axis.
            space: their weight space, for a model that fits any; not needed after `on`.
            raw: the weights as they are, for a probe, if `x` has been standardized.
            key: turns dropout on in a `UNF`.
            mesh: devices to shard features across, as in `UNFLinear`.
            axis: the mesh axis to shard leaves along; by default all of its axes together.
        """
        if space is not None:
            return self.on(space)(x, raw=raw, key=key, mesh=mesh, axis=axis)
        options = {"key": key, "mesh": mesh, "axis": axis}
        options = {name: value for name, value in options.items() if value is not None}
        hidden = x if self.backbone is None else self.backbone(x, **options)
        if self.activation is not None:
            hidden = jax.tree.map(self.activation, hidden)
        features = self.pool(hidden)
        if self.raw_pool is not None:
            features = jnp.concatenate([features, self.raw_pool(x)])
        if self.probe is not None:
            features = jnp.concatenate([features, self.probe(x if raw is None else raw)])
        if self.backbone is None:
            _check_channels(self.head, self.pool, features)
        return self.head(features)

    def on(self, space: WeightSpace) -> "Invariant":
        """The model with the same coefficients on another weight space.

        Models of tied layers fit any space. Others fit those that differ from their own in the
        sizes of permuted axes.

        Raises:
            SpecError: naming the first leaf or fixed axis that differs.
        """
        has_space = hasattr(self.backbone, "on")
        backbone = self.backbone.on(space) if has_space else self.backbone
        pooled = space
        if self.pool.space != self.space:
            is_inner = self.pool.space == self.backbone.inner_space
            pooled = backbone.inner_space if is_inner else backbone.out_space
        return replace_fields(
            self,
            backbone=backbone,
            pool=self.pool.on(pooled),
            raw_pool=self.raw_pool and self.raw_pool.on(space),
            probe=self.probe and self.probe.on(space),
            made_by=self.made_by and record_spaces(self.made_by, {self.space: space}),
        )

    _repr_html_ = repr_html


class DeepSet(eqx.Module):
    """Deep Set layers with pointwise activations between them."""

    layers: tuple[DeepSetLinear, ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __call__(self, x: PyTree, **_: Any) -> PyTree:
        """Apply to features with a trailing channel axis."""
        x = self.layers[0](x)
        for layer in self.layers[1:]:
            x = layer(jax.tree.map(self.activation, x))
        return x


def _make_deep_set(
    in_channels: int, hidden_channels: int, activation: ActivationLike, keys: Sequence[PRNGKeyArray]
) -> DeepSet:
    """Deep Set layers, one for each key."""
    if not len(keys):
        raise ValueError("num_layers is 0; expected at least 1")
    widths = [in_channels, *[hidden_channels] * len(keys)]
    layers = tuple(DeepSetLinear(*widths[i : i + 2], key=each) for i, each in enumerate(keys))
    return DeepSet(layers, resolve_activation(activation))


def InvariantUNF(
    space: WeightSpace,
    in_channels: int,
    out_size: int,
    *,
    key: PRNGKeyArray,
    hidden_channels: int = 16,
    num_layers: int = 3,
    mlp_width: int = 512,
    mlp_layers: int = 3,
    activation: ActivationLike = "relu",
    norm: bool = False,
    products: int = 0,
    dropout: float = 0.0,
    statistics: str | tuple[str, ...] = ("mean",),
    keep_fixed: bool = False,
    raw_statistics: bool = False,
    minimal: bool = False,
    max_fixed: int | None = MAX_FIXED,
) -> Invariant:
    """An invariant model with a `UNF` as its backbone; the defaults are the paper's (§4.1).

    >>> import jax, unf
    >>> shapes = {"w": jax.ShapeDtypeStruct((8, 8), "float32")}
    >>> space = unf.WeightSpace.from_spec({"w": "n n"}, shapes)
    >>> model = InvariantUNF(space, 1, 1, key=jax.random.key(0))
    >>> model({"w": jax.numpy.ones((8, 8, 1))}).shape
    (1,)

    Args:
        space: the weight space of the input.
        in_channels: channels of the input.
        out_size: length of the output vector.
        key: draws the coefficients.
        hidden_channels: channels of every equivariant layer.
        num_layers: the number of equivariant layers.
        mlp_width: width of the MLP.
        mlp_layers: the number of linear layers of the MLP.
        activation: a function, or its name in `jax.nn`; only functions of `jax.nn` can be saved.
        norm: normalize channels before each activation between equivariant layers, see `UNF`.
        products: multiply weight matrices before each of those activations, see `UNF`.
        dropout: rate of dropout after each of those activations, see `UNF`.
        statistics: what to pool, see `InvariantPool`.
        keep_fixed: pool over permuted axes only, see `InvariantPool`.
        raw_statistics: give the MLP the statistics of the input too, as `StatNN` sees them.
        minimal: leave out terms that small axes make linearly dependent.
        max_fixed: longer fixed axes are permuted and told apart by their positions, see `UNF`.
    """
    made_by = record_call("InvariantUNF", locals())
    backbone_key, head_key = jax.random.split(key)
    backbone = UNF(
        space,
        in_channels,
        hidden_channels,
        key=backbone_key,
        hidden_channels=hidden_channels,
        num_layers=num_layers,
        activation=activation,
        norm=norm,
        products=products,
        dropout=dropout,
        minimal=minimal,
        max_fixed=max_fixed,
    )
    pool = InvariantPool(backbone.inner_space, statistics=statistics, keep_fixed=keep_fixed)
    raw_pool = InvariantPool(space, statistics=SEVEN_STATISTICS) if raw_statistics else None
    features = pool.out_size(hidden_channels)
    features += raw_pool.out_size(in_channels) if raw_pool is not None else 0
    head = make_head(features, out_size, mlp_width, mlp_layers, activation, head_key)
    return Invariant(backbone, pool, head, backbone.activation, raw_pool, made_by)


def InvariantDeepSet(
    space: WeightSpace,
    in_channels: int,
    out_size: int,
    *,
    key: PRNGKeyArray,
    hidden_channels: int = 16,
    num_layers: int = 3,
    mlp_width: int = 512,
    mlp_layers: int = 3,
    activation: ActivationLike = "relu",
) -> Invariant:
    """`InvariantUNF` with Deep Set layers, which ignore any reordering of a tensor's entries.

    The arguments have the same meaning as those of `InvariantUNF`.
    """
    made_by = record_call("InvariantDeepSet", locals())
    *keys, head_key = jax.random.split(key, num_layers + 1)
    backbone = _make_deep_set(in_channels, hidden_channels, activation, keys)
    pool = InvariantPool(space)
    features = pool.out_size(hidden_channels)
    head = make_head(features, out_size, mlp_width, mlp_layers, activation, head_key)
    return Invariant(backbone, pool, head, backbone.activation, made_by=made_by)


def StatNN(
    space: WeightSpace,
    in_channels: int,
    out_size: int,
    *,
    key: PRNGKeyArray,
    mlp_width: int = 600,
    mlp_layers: int = 6,
    activation: ActivationLike = "relu",
) -> Invariant:
    """An MLP on seven statistics of every weight tensor, a strong invariant baseline (§4.1).

    The statistics are those of Unterthiner et al. (2020): mean, variance and the quantiles at 0,
    25, 50, 75 and 100 % of every leaf and channel. The defaults are the paper's; the arguments
    have the same meaning as those of `InvariantUNF`.
    """
    made_by = record_call("StatNN", locals())
    pool = InvariantPool(space, statistics=SEVEN_STATISTICS)
    features = pool.out_size(in_channels)
    head = make_head(features, out_size, mlp_width, mlp_layers, activation, key)
    return Invariant(None, pool, head, made_by=made_by)


def InvariantTied(
    in_channels: int,
    out_size: int,
    *,
    key: PRNGKeyArray,
    spaces: Iterable[WeightSpace] | None = None,
    hidden_channels: int = 16,
    num_layers: int = 3,
    mlp_width: int = 512,
    mlp_layers: int = 3,
    activation: ActivationLike = "relu",
    norm: bool = False,
    dropout: float = 0.0,
    statistics: str | tuple[str, ...] = ("mean",),
    raw_statistics: bool = False,
) -> Invariant:
    """An invariant model for any network: tied layers, statistics pooled by role, and an MLP.

    >>> import jax, unf
    >>> model = InvariantTied(1, 1, key=jax.random.key(0))
    >>> for shape in ((8, 2), (16, 3, 3)):
    ...     x = {"w": jax.numpy.ones((*shape, 1))}
    ...     spec = {"w": " ".join("abc"[: len(shape)])}
    ...     space = unf.WeightSpace.from_spec(spec, {"w": x["w"][..., 0]})
    ...     print(model(x, space).shape)
    (1,)
    (1,)

    Args:
        in_channels: channels of the input.
        out_size: length of the output vector.
        key: draws the coefficients.
        spaces: the weight spaces whose keys the tables have, see `unf.nn.TiedLinear`.
        hidden_channels: channels of every tied layer.
        num_layers: the number of tied layers.
        mlp_width: width of the MLP.
        mlp_layers: the number of linear layers of the MLP.
        activation: a function, or its name in `jax.nn`; only functions of `jax.nn` can be saved.
        norm: normalize channels before each activation between tied layers.
        dropout: rate of dropout after each of those activations.
        statistics: what to pool, see `unf.nn.RolePool`.
        raw_statistics: give the MLP the statistics of the input too, as `TiedStatNN` sees them.
    """
    made_by = record_call("InvariantTied", locals())
    backbone_key, head_key = jax.random.split(key)
    backbone = Tied(
        in_channels,
        hidden_channels,
        key=backbone_key,
        spaces=spaces,
        hidden_channels=hidden_channels,
        num_layers=num_layers,
        activation=activation,
        norm=norm,
        dropout=dropout,
    )
    pool = RolePool(statistics=statistics)
    raw_pool = RolePool(statistics=SEVEN_STATISTICS) if raw_statistics else None
    features = pool.out_size(hidden_channels)
    features += raw_pool.out_size(in_channels) if raw_pool is not None else 0
    head = make_head(features, out_size, mlp_width, mlp_layers, activation, head_key)
    return Invariant(backbone, pool, head, backbone.activation, raw_pool, made_by)


def TiedDeepSet(
    in_channels: int,
    out_size: int,
    *,
    key: PRNGKeyArray,
    hidden_channels: int = 16,
    num_layers: int = 3,
    mlp_width: int = 512,
    mlp_layers: int = 3,
    activation: ActivationLike = "relu",
) -> Invariant:
    """`InvariantTied` with Deep Set layers, which ignore any reordering of a tensor's entries."""
    made_by = record_call("TiedDeepSet", locals())
    *keys, head_key = jax.random.split(key, num_layers + 1)
    backbone = _make_deep_set(in_channels, hidden_channels, activation, keys)
    pool = RolePool()
    features = pool.out_size(hidden_channels)
    head = make_head(features, out_size, mlp_width, mlp_layers, activation, head_key)
    return Invariant(backbone, pool, head, backbone.activation, made_by=made_by)


def TiedStatNN(
    in_channels: int,
    out_size: int,
    *,
    key: PRNGKeyArray,
    mlp_width: int = 600,
    mlp_layers: int = 6,
    activation: ActivationLike = "relu",
) -> Invariant:
    """`StatNN` for any network: its seven statistics, pooled by role."""
    made_by = record_call("TiedStatNN", locals())
    pool = RolePool(statistics=SEVEN_STATISTICS)
    features = pool.out_size(in_channels)
    head = make_head(features, out_size, mlp_width, mlp_layers, activation, key)
    return Invariant(None, pool, head, made_by=made_by)


def _check_channels(
    head: Any, pool: InvariantPool | RolePool | AttentionPool, features: Array
) -> None:
    """Check the number of channels of the input, if no backbone has."""
    size = getattr(head, "in_size", features.size)
    if size != features.size:
        raise SpecError(
            "features with the wrong number of channels",
            expected=f"{size // pool.out_size(1)}, which the model was made for",
            got=features.size // pool.out_size(1),
            remedy="stack as many trees with unf.nn.stack_channels as the model has in_channels",
        )
