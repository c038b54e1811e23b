"""What acts at every entry alone: activations, channel normalisation, dropout."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..spec import SpecError
from ..spec._tree import format_path


def stack_channels(*trees: PyTree) -> PyTree:
    """Features from one or more trees of weights: leaves stacked along a new channel axis.

    >>> import jax.numpy as jnp
    >>> params, gradient = {"w": jnp.ones((3, 4))}, {"w": jnp.zeros((3, 4))}
    >>> stack_channels(params, gradient)["w"].shape
    (3, 4, 2)

    Raises:
        SpecError: if the trees have different leaves or shapes, or leaves that are no arrays.
    """
    if not trees:
        raise SpecError("no trees to stack", remedy="call stack_channels(params)")
    _check_alike(trees)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=-1), *trees)


def _check_alike(trees: tuple[PyTree, ...]) -> None:
    """Say which is the first leaf that is no array, or that another tree lacks or has larger."""
    first, *others = (jax.tree_util.tree_flatten_with_path(tree)[0] for tree in trees)
    shapes = {format_path(path): jnp.shape(_array(leaf, path)) for path, leaf in first}
    for i, other in enumerate(others, 2):
        found = {format_path(path): jnp.shape(_array(leaf, path)) for path, leaf in other}
        for path in dict.fromkeys([*shapes, *found]):
            if shapes.get(path) != found.get(path):
                raise SpecError(
                    "trees that cannot be stacked",
                    path=path,
                    expected=f"{_of(shapes, path)}, as in the first tree",
                    got=f"{_of(found, path)} in tree {i}",
                    remedy="stack trees with the same leaves: weights, their gradients, momenta",
                )


def _of(shapes: dict[str, tuple[int, ...]], path: str) -> str:
    return f"shape {shapes[path]}" if path in shapes else "no such leaf"


def _array(leaf: Any, path: Any) -> Any:
    if isinstance(leaf, jax.Array | np.ndarray | np.generic | float | int):
        return leaf
    raise SpecError(
        "not an array of JAX or NumPy",
        path=format_path(path),
        got=type(leaf).__name__,
        remedy="convert it, e.g. tensor.detach().numpy(); keep only arrays of a module with "
        "equinox.filter(model, equinox.is_array)",
    )


def resolve_activation(activation: str | Callable[[Array], Array]) -> Callable[[Array], Array]:
    """An activation from its name in `jax.nn`, or itself."""
    if callable(activation):
        return activation
    found: Any = getattr(jax.nn, activation, None)
    if found is None or isinstance(found, ModuleType):
        raise ValueError(
            f"unknown activation {activation!r}; expected a name in jax.nn, e.g. 'relu'"
        )
    return found


class Activation(eqx.Module):
    """A pointwise function of every entry, by its name in `jax.nn` or as a callable."""

    activation: str | Callable[[Array], Array] = eqx.field(static=True)

    def __init__(self, activation: str | Callable[[Array], Array] = "relu"):
        """Make an activation."""
        resolve_activation(activation)
        self.activation = activation

    def __call__(self, x: PyTree) -> PyTree:
        """Apply to every leaf."""
        return jax.tree.map(resolve_activation(self.activation), x)


class ChannelNorm(eqx.Module):
    """Normalise the channels of every entry to mean 0 and variance 1, then scale and shift."""

    scale: Float[Array, " channels"]
    shift: Float[Array, " channels"]
    epsilon: float = eqx.field(static=True)

    def __init__(self, channels: int, *, epsilon: float = 1e-5):
        """Make a normalisation with scale 1 and shift 0."""
        self.scale, self.shift, self.epsilon = jnp.ones(channels), jnp.zeros(channels), epsilon

    def __call__(self, x: PyTree) -> PyTree:
        """Apply to every entry of every leaf."""

        def normalise(leaf: Array) -> Array:
            centred = leaf - jnp.mean(leaf, axis=-1, keepdims=True)
            variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
            scale, shift = (
                jnp.broadcast_to(p.astype(leaf.dtype), leaf.shape) for p in (self.scale, self.shift)
            )
            return centred * jax.lax.rsqrt(variance + self.epsilon) * scale + shift

        return jax.tree.map(normalise, x)


class Dropout(eqx.Module):
    """Set channels of entries to zero at random, and scale up the rest."""

    rate: float = eqx.field(static=True)

    def __init__(self, rate: float):
        """Make a dropout that zeroes the fraction `rate`."""
        if not 0 <= rate < 1:
            raise ValueError(f"the dropout rate is {rate}; expected 0 <= rate < 1")
        self.rate = rate

    def __call__(self, x: PyTree, *, key: PRNGKeyArray | None = None) -> PyTree:
        """Drop out with `key`; without one, as in evaluation, return the input."""
        if key is None or self.rate == 0:
            return x
        leaves, treedef = jax.tree.flatten(x)
        out = []
        for leaf, subkey in zip(leaves, jax.random.split(key, len(leaves)), strict=True):
            keep = jax.random.bernoulli(subkey, 1 - self.rate, leaf.shape)
            out.append(jnp.where(keep, leaf / (1 - self.rate), jnp.zeros((), leaf.dtype)))
        return treedef.unflatten(out)
