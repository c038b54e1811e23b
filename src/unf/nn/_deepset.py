"""Layers that treat all weights alike: equivariant to every permutation of a tensor's entries."""

from math import sqrt
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree


def _normal(key: PRNGKeyArray, in_channels: int, out_channels: int, fan_in: int, dtype: Any):
    return jax.random.normal(key, (in_channels, out_channels), dtype) / sqrt(fan_in)


class PointwiseLinear(eqx.Module):
    """The same linear map of channels at every entry of every leaf: y = xΛ + b.

    This is what the authors' learned optimizers call a Deep Set layer.
    """

    weight: Float[Array, "in_channels out_channels"]
    bias: Float[Array, " out_channels"] | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        key: PRNGKeyArray,
        bias: bool = True,
        dtype: Any = jnp.float32,
    ):
        """Make a layer with weights from N(0, 1/in_channels) and zero bias."""
        self.weight = _normal(key, in_channels, out_channels, in_channels, dtype)
        self.bias = jnp.zeros(out_channels, dtype) if bias else None

    def __call__(self, x: PyTree) -> PyTree:
        """Apply to features with a trailing channel axis."""
        return jax.tree.map(lambda leaf: _affine(leaf, self.weight, self.bias), x)


class DeepSetLinear(eqx.Module):
    """The Deep Set layer with pooling (Zaheer et al. 2017, eq. 4): y = xΛ + mean(x)Γ + b.

    Λ, Γ and b are shared by all leaves.
    """

    weight: Float[Array, "in_channels out_channels"]
    pooled_weight: Float[Array, "in_channels out_channels"]
    bias: Float[Array, " out_channels"] | None
    pool: str = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        key: PRNGKeyArray,
        pool: str = "leaf",
        bias: bool = True,
        dtype: Any = jnp.float32,
    ):
        """Make a layer.

        Args:
            in_channels: channels of the input.
            out_channels: channels of the output.
            key: draws the weights, from N(0, 1/(2·in_channels)).
            pool: the set that is averaged over: the entries of each "leaf", or "all" weights.
            bias: whether to add a bias.
            dtype: of the weights.
        """
        if pool not in ("leaf", "all"):
            raise ValueError(f"pool is {pool!r}; expected 'leaf' or 'all'")
        keys = jax.random.split(key)
        fan_in = 2 * in_channels
        self.weight = _normal(keys[0], in_channels, out_channels, fan_in, dtype)
        self.pooled_weight = _normal(keys[1], in_channels, out_channels, fan_in, dtype)
        self.bias = jnp.zeros(out_channels, dtype) if bias else None
        self.pool = pool

    def __call__(self, x: PyTree) -> PyTree:
        """Apply to features with a trailing channel axis."""
        leaves, treedef = jax.tree.flatten(x)
        means = [jnp.mean(leaf.reshape(-1, leaf.shape[-1]), axis=0) for leaf in leaves]
        if self.pool == "all":
            sizes = [leaf.size for leaf in leaves]
            weighted = [mean * (size / sum(sizes)) for mean, size in zip(means, sizes, strict=True)]
            means = [jnp.sum(jnp.stack(weighted), axis=0)] * len(leaves)
        out = []
        for leaf, mean in zip(leaves, means, strict=True):
            constant = _affine(mean, self.pooled_weight, self.bias)
            out.append(_affine(leaf, self.weight, constant))
        return treedef.unflatten(out)


def _affine(x: Array, weight: Array, bias: Array | None) -> Array:
    if x.shape[-1:] != weight.shape[:1]:
        raise ValueError(
            f"features have {x.shape[-1] if x.ndim else 'no'} channels, the layer was made for "
            f"{weight.shape[0]}; stack as many trees with unf.nn.stack_channels"
        )
    y = x @ weight
    return y if bias is None else y + jnp.broadcast_to(bias, y.shape)
