"""The statistics baseline of Unterthiner et al. (2020)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._html import repr_html
from ..spec import SpecError, WeightSpace
from ._head import head_config, make_head

_QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


def leaf_statistics(space: WeightSpace, x: PyTree) -> Float[Array, " features"]:
    """Mean, variance and the 0, 25, 50, 75 and 100 % quantiles of every leaf and channel."""
    features = []
    for leaf in space.flatten(x, channels=True):
        entries = leaf.reshape(-1, leaf.shape[-1])
        quantiles = jnp.quantile(entries, jnp.asarray(_QUANTILES, entries.dtype), axis=0)
        moments = jnp.stack([jnp.mean(entries, axis=0), jnp.var(entries, axis=0)])
        features.append(jnp.concatenate([moments, quantiles]).reshape(-1))
    return jnp.concatenate(features)


def num_statistics(space: WeightSpace, channels: int) -> int:
    """How many numbers `leaf_statistics` gives."""
    return (2 + len(_QUANTILES)) * len(space.leaves) * channels


class StatNN(eqx.Module):
    """An MLP on seven statistics of every weight tensor (§4.1), a strong invariant baseline."""

    head: eqx.nn.MLP
    space: WeightSpace = eqx.field(static=True)
    in_channels: int = eqx.field(static=True)
    activation: Any = eqx.field(static=True)

    def __init__(
        self,
        space: WeightSpace,
        in_channels: int,
        out_size: int,
        *,
        key: PRNGKeyArray,
        mlp_width: int = 600,
        mlp_layers: int = 6,
        activation: Any = "relu",
    ):
        """Make a model; the defaults are the paper's.

        Args:
            space: the weight space of the input.
            in_channels: channels of the input.
            out_size: length of the output vector.
            key: draws the weights.
            mlp_width: width of the MLP.
            mlp_layers: linear layers of the MLP.
            activation: a name in `jax.nn` or a callable; only named ones can be saved.
        """
        self.space, self.in_channels, self.activation = space, in_channels, activation
        self.head = make_head(
            num_statistics(space, in_channels), out_size, mlp_width, mlp_layers, activation, key
        )

    def __call__(self, x: PyTree) -> Float[Array, " out_size"]:
        """A vector that permuting the weights does not change."""
        found = jax.tree.leaves(x)[0].shape[-1:]
        features = leaf_statistics(self.space, x)
        if features.shape != (num_statistics(self.space, self.in_channels),):
            raise SpecError(
                "features with the wrong number of channels",
                expected=f"{self.in_channels}, which the model was made for",
                got=found[0],
                remedy="stack as many trees with unf.nn.stack_channels as it has in_channels",
            )
        return self.head(features)

    def _repr_html_(self) -> str:
        """What notebooks show."""
        return repr_html(self)

    def config(self) -> dict[str, Any]:
        """The arguments to make a model of this shape again."""
        return {
            "in_channels": self.in_channels,
            **head_config(self.head),
            "activation": self.activation,
        }
