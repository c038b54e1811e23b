"""Deep equivariant models (§3.5)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise, zip_longest
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh
from jaxtyping import Array, PRNGKeyArray, PyTree

from .._html import repr_html
from ..basis._cost import MAX_FIXED
from ..nn import MatrixProducts, Pointwise, PositionalEncoding, TiedLinear, UNFLinear
from ..nn._spaces import replace_fields, resize_with
from ..spec import SpecError, WeightSpace
from ..spec._space import check_differs_in_sizes, check_is_space

ActivationLike = str | Callable[[Array], Array]


def resolve_activation(activation: ActivationLike) -> Callable[[Array], Array]:
    """An activation function from its name in `jax.nn`; functions are returned as they are."""
    if callable(activation):
        return activation
    if activation.startswith("_") or not callable(getattr(jax.nn, activation, None)):
        raise ValueError(
            f"unknown activation {activation!r}; expected a name in jax.nn, e.g. 'relu'"
        )
    return getattr(jax.nn, activation)


def record_call(function: str, arguments: Mapping[str, Any]) -> tuple:
    """A function's name and arguments, for `save_model`, which writes them instead of a model."""
    left_out = ("self", "key", "dtype", "spaces", "fn", "probe")
    kept = {name: _plain(x) for name, x in arguments.items() if name not in left_out}
    for name in dir(jax.nn):
        if getattr(jax.nn, name) is kept.get("activation"):
            kept["activation"] = name
    return function, tuple(kept.items())


def _plain(x: Any) -> Any:
    """A number of NumPy or JAX as Python's, which a file can hold."""
    is_number = isinstance(x, np.generic | np.ndarray | jax.Array) and np.ndim(x) == 0
    return x.item() if is_number and not isinstance(x, Tracer) else x


def record_spaces(made_by: tuple, changed: Mapping[WeightSpace | None, WeightSpace]) -> tuple:
    """What `record_call` wrote, with other weight spaces among the arguments."""
    function, arguments = made_by

    def change(x: Any) -> Any:
        return changed.get(x, x) if isinstance(x, WeightSpace) else x

    return function, tuple((name, change(x)) for name, x in arguments)


def permute_long(
    space: WeightSpace, max_fixed: int | None, channels: int
) -> tuple[WeightSpace, PositionalEncoding | None]:
    """The space with long fixed axes permuted, and an encoding of their indices, if any."""
    inner = space if max_fixed is None else space.relax(above=max_fixed)
    encoded = tuple(name for name in inner.sizes if name not in space.sizes)
    return inner, PositionalEncoding(inner, channels, axes=encoded) if encoded else None


def _alternate(
    x: PyTree,
    layers: Sequence[Callable],
    after: Sequence[tuple[Callable | None, ...]],
    activation: Callable,
    dropout: float,
    key: PRNGKeyArray | None,
) -> PyTree:
    """Apply layers, and between two of them what is `after` the first, activation, and dropout."""
    drop = Pointwise(eqx.nn.Dropout(dropout))
    keys = [None] * len(layers) if key is None else jax.random.split(key, len(layers))
    for i, layer in enumerate(layers[:-1]):
        x = layer(x)
        for function in after[i] if after else ():
            x = x if function is None else function(x)
        x = drop(jax.tree.map(activation, x), key=keys[i])
    return layers[-1](x)


class UNF(eqx.Module):
    """Equivariant layers with pointwise activations between them.

    A layer has coefficients for every pair of indices of a fixed axis: fine for filter windows,
    too many for 784 inputs. So the model permutes fixed axes longer than `max_fixed`, and tells
    their indices apart by positional encodings, as the paper does with all of them.

    >>> import jax, unf
    >>> shapes = {"w": jax.ShapeDtypeStruct((8, 8), "float32")}
    >>> space = unf.WeightSpace.from_spec({"w": "n n"}, shapes)
    >>> model = UNF(space, 1, 4, key=jax.random.key(0))
    >>> model({"w": jax.numpy.ones((8, 8, 1))})["w"].shape
    (8, 8, 4)
    """

    positions: PositionalEncoding | None
    layers: tuple[UNFLinear, ...]
    products: tuple[MatrixProducts, ...]
    norms: tuple[Pointwise, ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)
    dropout: float = eqx.field(static=True)
    space: WeightSpace = eqx.field(static=True)
    out_space: WeightSpace = eqx.field(static=True)
    made_by: tuple = eqx.field(static=True, repr=False)

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
            num_layers: the number of equivariant layers.
            activation: a function, or its name in `jax.nn`; only functions of `jax.nn` can be
                saved.
            norm: normalize the channels of every entry before each activation.
            products: multiply weight matrices before each activation, with this many products
                for each pair of axes (`MatrixProducts`); the paper has none.
            dropout: rate of dropout after each activation, if the model is called with a key.
            out_space: the weight space of the output, by default `space`.
            minimal: leave out terms that small axes make linearly dependent.
            max_fixed: the longest fixed axes that layers keep fixed; None keeps all of them.
            dtype: dtype of the coefficients.
        """
        self.made_by = record_call("UNF", locals())
        check_is_space(space)
        check_depth("num_layers", num_layers, dropout)
        self.space, self.out_space = space, space if out_space is None else out_space
        self.activation, self.dropout = resolve_activation(activation), dropout
        inner, self.positions = permute_long(space, max_fixed, hidden_channels)
        encoded = () if self.positions is None else self.positions.axes
        in_channels += hidden_channels if encoded else 0
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        spaces = [*[inner] * num_layers, inner if out_space is None else out_space]
        if out_space is not None and (shared := set(encoded) & set(out_space.fixed)):
            spaces[-1] = out_space.relax(*shared)
        keys = jax.random.split(key, num_layers)
        options = {"minimal": minimal, "dtype": dtype}
        self.layers = tuple(
            UNFLinear(inner, *widths[i : i + 2], key=keys[i], out_space=spaces[i + 1], **options)
            for i in range(num_layers)
        )
        self.products = ()
        if products:
            keys = jax.random.split(jax.random.fold_in(key, 1), num_layers)
            self.products = tuple(
                MatrixProducts(inner, width, key=keys[i], rank=products, dtype=dtype)
                for i, width in enumerate(widths[1:-1])
            )
        self.norms = tuple(Pointwise(eqx.nn.LayerNorm(width)) for width in widths[1:-1] if norm)

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
        x = x if self.positions is None else self.positions(x)
        layers = [partial(layer, mesh=mesh, axis=axis) for layer in self.layers]
        after = list(zip_longest(self.products, self.norms))
        return _alternate(x, layers, after, self.activation, self.dropout, key)

    @property
    def inner_space(self) -> WeightSpace:
        """The weight space of the layers, in which long fixed axes are permuted."""
        return self.layers[0].plan.in_space

    def on(self, space: WeightSpace, *, out_space: WeightSpace | None = None) -> "UNF":
        """The model with the same coefficients on a weight space of other sizes.

        Only sizes of permuted axes may differ, among them long fixed axes that the model permutes
        (`max_fixed`).

        Args:
            space: the weight space of the input.
            out_space: that of the output; by default today's, at the sizes of `space`.

        Raises:
            SpecError: naming the first leaf or fixed axis that differs.
        """
        check_is_space(space)
        was, max_fixed = self.inner_space, dict(self.made_by[1])["max_fixed"]
        inner = space if max_fixed is None else space.relax(above=max_fixed)
        check_differs_in_sizes(inner, was)
        if out_space is None:
            out_space = resize_with(self.out_space, self.space, space)
        last = resize_with(self.layers[-1].plan.out_space, was, inner)
        *layers, end = self.layers
        return replace_fields(
            self,
            positions=self.positions and self.positions.on(inner),
            layers=(*(layer.on(inner) for layer in layers), end.on(inner, out_space=last)),
            products=tuple(layer.on(inner) for layer in self.products),
            space=space,
            out_space=out_space,
            made_by=record_spaces(self.made_by, {self.space: space, self.out_space: out_space}),
        )

    _repr_html_ = repr_html


class Tied(eqx.Module):
    """Tied layers with pointwise activations between them: an equivariant model for any network.

    >>> import jax, unf
    >>> model = Tied(1, 4, key=jax.random.key(0))
    >>> for shape in ((8, 2), (16, 3, 3)):
    ...     x = {"w": jax.numpy.ones((*shape, 1))}
    ...     spec = {"w": " ".join("abc"[: len(shape)])}
    ...     space = unf.WeightSpace.from_spec(spec, {"w": x["w"][..., 0]})
    ...     print(model(x, space)["w"].shape)
    (8, 2, 4)
    (16, 3, 3, 4)

    Attributes:
        layers: `TiedLinear` layers, or the `UNFLinear` layers they are on one space.
        space: the weight space; None before `on`.
    """

    layers: tuple[TiedLinear | UNFLinear, ...]
    norms: tuple[Pointwise, ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)
    dropout: float = eqx.field(static=True)
    space: WeightSpace | None = eqx.field(static=True)
    made_by: tuple = eqx.field(static=True, repr=False)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        key: PRNGKeyArray,
        spaces: Iterable[WeightSpace] | None = None,
        hidden_channels: int = 16,
        num_layers: int = 3,
        activation: ActivationLike = "relu",
        norm: bool = False,
        dropout: float = 0.0,
        dtype: Any = jnp.float32,
    ):
        """Initialize a model.

        Args:
            in_channels: channels of the input.
            out_channels: channels of the output.
            key: draws the coefficients.
            spaces: the weight spaces whose keys the tables have, see `TiedLinear`.
            hidden_channels: channels between layers.
            num_layers: the number of tied layers.
            activation: a function, or its name in `jax.nn`; only functions of `jax.nn` can be
                saved.
            norm: normalize the channels of every entry before each activation.
            dropout: rate of dropout after each activation, if the model is called with a key.
            dtype: dtype of the coefficients.
        """
        self.made_by = record_call("Tied", locals())
        check_depth("num_layers", num_layers, dropout)
        self.activation, self.dropout, self.space = resolve_activation(activation), dropout, None
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        spaces = None if spaces is None else list(spaces)
        self.layers = tuple(
            TiedLinear(*pair, key=each, spaces=spaces, dtype=dtype)
            for pair, each in zip(pairwise(widths), jax.random.split(key, num_layers), strict=True)
        )
        self.norms = tuple(Pointwise(eqx.nn.LayerNorm(width)) for width in widths[1:-1] if norm)

    def on(self, space: WeightSpace) -> "Tied":
        """The model on one weight space."""
        if space == self.space:
            return self
        layers = tuple(layer.on(space) for layer in self.layers)
        return replace_fields(self, layers=layers, space=space)

    def coverage(self, space: WeightSpace) -> dict[str, float]:
        """The share of a space's terms whose key the tables have, for each level."""
        assert isinstance(self.layers[0], TiedLinear)
        return self.layers[0].coverage(space)

    def __call__(
        self,
        x: PyTree,
        space: WeightSpace | None = None,
        *,
        key: PRNGKeyArray | None = None,
        mesh: Mesh | None = None,
        axis: str | None = None,
    ) -> PyTree:
        """Apply to features with a trailing channel axis.

        Args:
            x: the features.
            space: their weight space; not needed after `on`.
            key: turns dropout on.
            mesh: devices to shard features across, as in `UNFLinear`.
            axis: the mesh axis to shard leaves along; by default all of its axes together.
        """
        model = self if space is None else self.on(space)
        if model.space is None:
            raise SpecError("a tied model needs the weight space", remedy="call model(x, space)")
        layers = [partial(layer, mesh=mesh, axis=axis) for layer in model.layers]
        after = [(norm,) for norm in model.norms]
        return _alternate(x, layers, after, self.activation, self.dropout, key)


def check_depth(name: str, depth: int, dropout: float) -> None:
    """Check the number of layers or blocks, and the rate of dropout."""
    if depth < 1:
        raise ValueError(f"{name} is {depth}; expected at least 1")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout is {dropout}; expected 0 <= dropout < 1")
