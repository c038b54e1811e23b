"""Sines and cosines of weights, which make small differences between them visible."""

from math import pi
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..spec import WeightSpace
from ..spec._space import check_differs_in_sizes
from ._spaces import replace_fields


class FourierFeatures(eqx.Module):
    """Append sines and cosines of the channels: y = (x, sin 2πxB, cos 2πxB).

    Every leaf has frequencies B of its own, from N(0, scale²). Networks see a function of high
    frequency in an input much better through such features (Tancik et al. 2020), and what a
    network does is often such a function of its weights: think of a sine as its activation.

    >>> import jax, unf
    >>> space = unf.testing.spaces.mlp(2, 4, 1)
    >>> layer = FourierFeatures(space, 1, 8, key=jax.random.key(0))
    >>> x = unf.testing.random_features(space, 1, key=jax.random.key(1))
    >>> {leaf.shape[-1] for leaf in jax.tree.leaves(layer(x))}, layer.out_channels
    ({17}, 17)

    Attributes:
        frequencies: B of each leaf.
        learned: whether gradients reach the frequencies.
        space: the weight space of the features.
    """

    frequencies: tuple[Float[Array, "in_channels num_frequencies"], ...]
    learned: bool = eqx.field(static=True)
    space: WeightSpace = eqx.field(static=True)

    def __init__(
        self,
        space: WeightSpace,
        in_channels: int,
        num_frequencies: int,
        *,
        key: PRNGKeyArray,
        scale: float = 1.0,
        learned: bool = False,
        dtype: Any = jnp.float32,
    ):
        """Initialize a layer.

        Args:
            space: the weight space of the features.
            in_channels: channels of the input.
            num_frequencies: the number of frequencies; each adds a sine and a cosine.
            key: draws the frequencies.
            scale: their standard deviation, in cycles per unit of the input. Inputs should have
                a known scale: `unf.fit` standardizes weights.
            learned: whether to train the frequencies.
            dtype: dtype of the frequencies.
        """
        if num_frequencies < 1:
            raise ValueError(f"num_frequencies is {num_frequencies}; expected at least 1")
        shape, keys = (in_channels, num_frequencies), jax.random.split(key, len(space.leaves))
        self.frequencies = tuple(scale * jax.random.normal(each, shape, dtype) for each in keys)
        self.learned, self.space = learned, space

    @property
    def out_channels(self) -> int:
        """Channels of the output."""
        channels, count = self.frequencies[0].shape
        return channels + 2 * count

    def __call__(self, x: PyTree) -> PyTree:
        """Apply to features with a trailing channel axis."""
        leaves = self.space.flatten(x, channels=True)
        used = [each if self.learned else jax.lax.stop_gradient(each) for each in self.frequencies]
        return self.space.unflatten(list(map(append_waves, leaves, used)))

    def on(self, space: WeightSpace) -> "FourierFeatures":
        """The same layer on a weight space of other sizes; fixed axes must agree."""
        check_differs_in_sizes(space, self.space)
        return replace_fields(self, space=space)


def append_waves(x: Array, frequencies: Array) -> Array:
    """(x, sin 2πxB, cos 2πxB), along the last axis."""
    # Precise, so that phases of many cycles keep their fraction.
    precise = jnp.promote_types(jnp.result_type(x, frequencies), jnp.float32)
    phases = (
        2 * pi * jnp.matmul(x.astype(precise), frequencies.astype(precise), precision="highest")
    )
    waves = [jnp.sin(phases).astype(x.dtype), jnp.cos(phases).astype(x.dtype)]
    return jnp.concatenate([x, *waves], axis=-1)
