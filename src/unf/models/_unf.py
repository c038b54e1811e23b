"""Deep equivariant and invariant models (§3.5)."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._html import repr_html
from ..nn import (
    Activation,
    ChannelNorm,
    Dropout,
    InvariantPool,
    MatrixProducts,
    UNFLinear,
)
from ..spec import WeightSpace
from ._head import head_config, make_head
from ._statnn import leaf_statistics, num_statistics

ActivationLike = str | Callable[[Array], Array]


class UNF(eqx.Module):
    """Equivariant layers with pointwise activations between them.

    >>> import jax, unf
    >>> shapes = {"w": jax.ShapeDtypeStruct((8, 8), "float32")}
    >>> space = unf.WeightSpace.from_spec({"w": "n n"}, shapes)
    >>> model = UNF(space, 1, 4, key=jax.random.key(0))
    >>> model({"w": jax.numpy.ones((8, 8, 1))})["w"].shape
    (8, 8, 4)
    """

    layers: tuple[UNFLinear, ...]
    products: tuple[MatrixProducts, ...]
    norms: tuple[ChannelNorm, ...]
    activation: Activation
    dropout: Dropout
    space: WeightSpace = eqx.field(static=True)
    out_space: WeightSpace = eqx.field(static=True)

    def __init__(
        self,
        space: WeightSpace,
        in_channels: int,
        out_channels: int,
        *,
        key: PRNGKeyArray,
        hidden_channels: int = 16,
        num_layers: int = 3,
        activation: ActivationLike = "relu",
        norm: bool = False,
        products: int = 0,
        dropout: float = 0.0,
        out_space: WeightSpace | None = None,
        minimal: bool = False,
        dtype: Any = jnp.float32,
    ):
        """Make a model.

        Args:
            space: the weight space of the input.
            in_channels: channels of the input.
            out_channels: channels of the output.
            key: draws the coefficients.
            hidden_channels: channels between layers.
            num_layers: how many equivariant layers.
            activation: a name in `jax.nn` or a callable; only named ones can be saved.
            norm: normalise channels before each activation.
            products: multiply weight matrices before each activation, this many channels of
                them (`MatrixProducts`); none by default, as in the paper.
            dropout: rate after each activation; active when the model is called with a key.
            out_space: the weight space of the output, by default `space`.
            minimal: leave out terms that small axes make linearly dependent.
            dtype: of the coefficients.
        """
        if num_layers < 1:
            raise ValueError(f"num_layers is {num_layers}; expected at least 1")
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.space, self.out_space = space, space if out_space is None else out_space
        self.layers = tuple(
            UNFLinear(
                space,
                widths[i],
                widths[i + 1],
                key=subkey,
                out_space=self.out_space if i == num_layers - 1 else space,
                minimal=minimal,
                dtype=dtype,
            )
            for i, subkey in enumerate(jax.random.split(key, num_layers))
        )
        product_keys = jax.random.split(jax.random.fold_in(key, 1), num_layers)
        self.products = tuple(
            MatrixProducts(space, width, key=subkey, rank=products, dtype=dtype)
            for width, subkey in zip(widths[1:-1], product_keys, strict=False)
            if products
        )
        self.norms = tuple(ChannelNorm(w) for w in widths[1:-1]) if norm else ()
        self.activation, self.dropout = Activation(activation), Dropout(dropout)

    def __call__(
        self,
        x: PyTree,
        *,
        key: PRNGKeyArray | None = None,
        mesh: Mesh | None = None,
        axis: str | None = None,
    ) -> PyTree:
        """Apply to features; `key` turns dropout on, `mesh` spreads them as in `UNFLinear`."""
        keys = [None] * len(self.layers) if key is None else jax.random.split(key, len(self.layers))
        for i, layer in enumerate(self.layers[:-1]):
            x = layer(x, mesh=mesh, axis=axis)
            x = self.products[i](x) if self.products else x
            x = self.norms[i](x) if self.norms else x
            x = self.dropout(self.activation(x), key=keys[i])
        return self.layers[-1](x, mesh=mesh, axis=axis)

    def _repr_html_(self) -> str:
        """What notebooks show."""
        return repr_html(self)

    def config(self) -> dict[str, Any]:
        """The arguments to make a model of this shape again."""
        first, last = self.layers[0], self.layers[-1]
        return {
            "in_channels": first.in_channels,
            "out_channels": last.out_channels,
            "hidden_channels": first.out_channels,
            "num_layers": len(self.layers),
            "activation": self.activation.activation,
            "norm": bool(self.norms),
            "products": self.products[0].rank if self.products else 0,
            "dropout": self.dropout.rate,
            "minimal": first.plan.minimal,
        }


class InvariantUNF(eqx.Module):
    """An equivariant backbone, invariant pooling and an MLP (§4.1).

    >>> import jax, unf
    >>> shapes = {"w": jax.ShapeDtypeStruct((8, 8), "float32")}
    >>> space = unf.WeightSpace.from_spec({"w": "n n"}, shapes)
    >>> model = InvariantUNF(space, 1, 1, key=jax.random.key(0))
    >>> model({"w": jax.numpy.ones((8, 8, 1))}).shape
    (1,)
    """

    backbone: UNF
    pool: InvariantPool
    head: eqx.nn.MLP
    activation: Activation
    raw_statistics: bool = eqx.field(static=True)

    def __init__(
        self,
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
    ):
        """Make a model; the defaults are the paper's.

        Args:
            space: the weight space of the input.
            in_channels: channels of the input.
            out_size: length of the output vector.
            key: draws the coefficients.
            hidden_channels: channels of every equivariant layer.
            num_layers: how many equivariant layers.
            mlp_width: width of the MLP.
            mlp_layers: linear layers of the MLP.
            activation: a name in `jax.nn` or a callable; only named ones can be saved.
            norm: normalise channels before each activation between equivariant layers.
            products: multiply weight matrices before each of those, see `UNF`.
            dropout: rate after each of those; active when the model is called with a key.
            statistics: what to pool, see `InvariantPool`.
            keep_fixed: pool over permuted axes only, see `InvariantPool`.
            raw_statistics: give the MLP the input's own statistics too, as `StatNN` sees them.
            minimal: leave out terms that small axes make linearly dependent.
        """
        backbone_key, head_key = jax.random.split(key)
        self.backbone = UNF(
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
        )
        self.activation = self.backbone.activation
        self.pool = InvariantPool(space, statistics=statistics, keep_fixed=keep_fixed)
        self.raw_statistics = raw_statistics
        raw = num_statistics(space, in_channels) if raw_statistics else 0
        self.head = make_head(
            self.pool.out_size(hidden_channels) + raw,
            out_size,
            mlp_width,
            mlp_layers,
            activation,
            head_key,
        )

    def __call__(
        self,
        x: PyTree,
        *,
        key: PRNGKeyArray | None = None,
        mesh: Mesh | None = None,
        axis: str | None = None,
    ) -> Float[Array, " out_size"]:
        """A vector that permuting the weights does not change.

        Args:
            x: the features.
            key: turns dropout on.
            mesh: devices to spread features over, as in `UNFLinear`.
            axis: the mesh's axis to spread leaves over; by default all of its axes together.
        """
        features = self.activation(self.backbone(x, key=key, mesh=mesh, axis=axis))
        features = self.pool(features)
        if self.raw_statistics:
            features = jnp.concatenate([features, leaf_statistics(self.space, x)])
        return self.head(features)

    def _repr_html_(self) -> str:
        """What notebooks show."""
        return repr_html(self)

    def config(self) -> dict[str, Any]:
        """The arguments to make a model of this shape again."""
        backbone = self.backbone.config()
        return {
            **{k: v for k, v in backbone.items() if k != "out_channels"},
            "hidden_channels": backbone["out_channels"],
            **head_config(self.head),
            "statistics": list(self.pool.statistics),
            "keep_fixed": self.pool.keep_fixed,
            "raw_statistics": self.raw_statistics,
        }

    @property
    def space(self) -> WeightSpace:
        """The weight space of the input."""
        return self.backbone.space
