"""Layers that need no weight space: they treat every entry of a leaf the same way."""

from collections.abc import Callable, Mapping
from math import sqrt
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..spec import SpecError
from ..spec._tree import format_path


def stack_channels(*trees: PyTree) -> PyTree:
    """Stack one or more trees of weights into features, along a new channel axis.

    >>> import jax.numpy as jnp
    >>> params, gradient = {"w": jnp.ones((3, 4))}, {"w": jnp.zeros((3, 4))}
    >>> stack_channels(params, gradient)["w"].shape
    (3, 4, 2)

    Raises:
        SpecError: if the trees differ in leaves or shapes, or a leaf is not an array.
    """
    if not trees:
        raise SpecError("no trees to stack", remedy="call stack_channels(params)")
    first, *others = (_shapes(tree) for tree in trees)
    for i, other in enumerate(others, 2):
        remedy = "stack trees with the same leaves: weights, their gradients, momenta"
        check_leaves(other, first, f"tree {i} cannot be stacked on the first", remedy)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=-1), *trees)


def check_leaves(
    found: Mapping[str, str], expected: Mapping[str, str], message: str, remedy: str
) -> None:
    """Compare descriptions of leaves by path.

    Raises:
        SpecError: naming the first leaf that is missing, unexpected, different or out of order.
    """
    for path in dict.fromkeys([*expected, *found]):
        if found.get(path) != expected.get(path):
            sides = [side.get(path, "no such leaf") for side in (expected, found)]
            raise SpecError(message, path=path, expected=sides[0], got=sides[1], remedy=remedy)
    if list(found) != list(expected):
        raise SpecError(message, expected=list(expected), got=f"{list(found)}, another order")


def _shapes(tree: PyTree) -> dict[str, str]:
    shapes = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic | float | int):
            raise SpecError(
                "not a JAX or NumPy array",
                path=format_path(path),
                got=type(leaf).__name__,
                remedy="convert it, e.g. tensor.detach().numpy(); keep only a module's arrays "
                "with equinox.filter(model, equinox.is_array)",
            )
        shapes[format_path(path)] = f"shape {jnp.shape(leaf)}"
    return shapes


class Pointwise(eqx.Module):
    """Apply a module to the channels at every entry of every leaf.

    The module maps a vector of channels to a vector, as Equinox's own do: `eqx.nn.Linear`,
    `eqx.nn.LayerNorm`, `eqx.nn.Dropout`, `eqx.nn.MLP`. A function such as `jax.nn.gelu` works too.
    All entries of all leaves share the module's parameters.

    >>> import equinox as eqx, jax
    >>> layer = Pointwise(eqx.nn.Linear(2, 5, key=jax.random.key(0)))
    >>> layer({"w": jax.numpy.ones((3, 4, 2))})["w"].shape
    (3, 4, 5)

    Attributes:
        module: what to apply.
    """

    module: Callable

    def __call__(self, x: PyTree, *, key: PRNGKeyArray | None = None) -> PyTree:
        """Apply the module to features with a trailing channel axis.

        Args:
            x: the features.
            key: for modules that draw random numbers; every leaf gets its own. `eqx.nn.Dropout`
                without a key returns its input, as in evaluation.
        """
        leaves, treedef = jax.tree.flatten(x)
        keys = [None] * len(leaves) if key is None else jax.random.split(key, len(leaves))
        return treedef.unflatten([self._lift(*pair) for pair in zip(leaves, keys, strict=True)])

    def _lift(self, leaf: Array, key: PRNGKeyArray | None) -> Array:
        """Apply the module at every entry of one leaf; at once, where Equinox's module can."""
        module: Any = self.module
        if isinstance(module, eqx.nn.Linear):
            return _affine(leaf, module.weight.T, module.bias)
        if isinstance(module, eqx.nn.Dropout):
            return module(leaf, key=key, inference=True if key is None else None)
        arguments: tuple = (leaf,)
        if key is not None and isinstance(module, eqx.Module):
            arguments = (leaf, jax.random.split(key, leaf.shape[:-1]))
            module = lambda entry, key: self.module(entry, key=key)  # noqa: E731
        for _ in leaf.shape[:-1]:
            module = jax.vmap(module)
        return module(*arguments)


class DeepSetLinear(eqx.Module):
    """The Deep Set layer with pooling (Zaheer et al. 2017, eq. 4): y = xΛ + mean(x)Γ + b.

    All leaves share Λ, Γ and b. The layer is equivariant to every permutation of the entries of a
    leaf.
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
        """Initialize a layer.

        Args:
            in_channels: channels of the input.
            out_channels: channels of the output.
            key: draws the weights, from N(0, 1/(2·in_channels)).
            pool: the set to average over: the entries of each "leaf", or "all" weights.
            bias: whether to add a bias.
            dtype: dtype of the weights.
        """
        if pool not in ("leaf", "all"):
            raise ValueError(f"pool is {pool!r}; expected 'leaf' or 'all'")
        shape, scale = (in_channels, out_channels), sqrt(2 * in_channels)
        self.weight, self.pooled_weight = (
            jax.random.normal(each, shape, dtype) / scale for each in jax.random.split(key)
        )
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
            f"the layer expects {weight.shape[0]} channels, but the features have "
            f"{x.shape[-1] if x.ndim else 'none'}; stack that many trees with "
            "unf.nn.stack_channels"
        )
    y = x @ weight
    return y if bias is None else y + jnp.broadcast_to(bias, y.shape)
