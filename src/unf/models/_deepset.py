"""An invariant model of Deep Set layers, which know of a tensor only that it is a set."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._html import repr_html
from ..nn import Activation, DeepSetLinear, InvariantPool
from ..spec import WeightSpace
from ._head import head_config, make_head


class InvariantDeepSet(eqx.Module):
    """`InvariantUNF` with Deep Set layers: any reordering of a tensor's entries is ignored.

    >>> import jax, unf
    >>> shapes = {"w": jax.ShapeDtypeStruct((8, 8), "float32")}
    >>> space = unf.WeightSpace.from_spec({"w": "n n"}, shapes)
    >>> model = InvariantDeepSet(space, 1, 1, key=jax.random.key(0))
    >>> model({"w": jax.numpy.ones((8, 8, 1))}).shape
    (1,)
    """

    layers: tuple[DeepSetLinear, ...]
    pool: InvariantPool
    head: eqx.nn.MLP
    activation: Activation
    in_channels: int = eqx.field(static=True)

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
        activation: Any = "relu",
    ):
        """Make a model; the defaults are those of `InvariantUNF`.

        Args:
            space: the weight space of the input.
            in_channels: channels of the input.
            out_size: length of the output vector.
            key: draws the weights.
            hidden_channels: channels of every layer.
            num_layers: how many Deep Set layers.
            mlp_width: width of the MLP.
            mlp_layers: linear layers of the MLP.
            activation: a name in `jax.nn` or a callable; only named ones can be saved.
        """
        if num_layers < 1:
            raise ValueError(f"num_layers is {num_layers}; expected at least 1")
        *keys, head_key = jax.random.split(key, num_layers + 1)
        widths = [in_channels, *[hidden_channels] * num_layers]
        self.layers = tuple(
            DeepSetLinear(widths[i], widths[i + 1], key=keys[i]) for i in range(num_layers)
        )
        self.in_channels, self.activation = in_channels, Activation(activation)
        self.pool = InvariantPool(space)
        self.head = make_head(
            self.pool.out_size(hidden_channels),
            out_size,
            mlp_width,
            mlp_layers,
            activation,
            head_key,
        )

    def __call__(self, x: PyTree) -> Float[Array, " out_size"]:
        """A vector that no reordering of entries within a leaf changes."""
        for layer in self.layers:
            x = self.activation(layer(x))
        return self.head(self.pool(x))

    def _repr_html_(self) -> str:
        """What notebooks show."""
        return repr_html(self)

    def config(self) -> dict[str, Any]:
        """The arguments to make a model of this shape again."""
        return {
            "in_channels": self.in_channels,
            "hidden_channels": self.layers[0].weight.shape[-1],
            "num_layers": len(self.layers),
            **head_config(self.head),
            "activation": self.activation.activation,
        }

    @property
    def space(self) -> WeightSpace:
        """The weight space of the input."""
        return self.pool.space
