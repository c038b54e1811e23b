"""Pooling weight-space features into a vector that no permutation changes."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..spec import WeightSpace
from ..spec._space import check_differs_in_sizes
from ._spaces import replace_fields

_EPSILON = 1e-12
_REDUCTIONS: dict[str, Callable[[Array], Array]] = {
    "mean": lambda x: jnp.mean(x, axis=0),
    "var": lambda x: jnp.var(x, axis=0),
    # A leaf with one entry has variance zero, where the slope of the root is infinite.
    "std": lambda x: jnp.sqrt(jnp.var(x, axis=0) + _EPSILON),
    "min": lambda x: jnp.min(x, axis=0),
    "max": lambda x: jnp.max(x, axis=0),
}
_QUANTILES = {"q25": 0.25, "median": 0.5, "q75": 0.75}


class InvariantPool(eqx.Module):
    """Concatenate statistics of every leaf (§2, eq. 16).

    The default, the mean over all entries, is the paper's pooling with means instead of sums.
    """

    space: WeightSpace = eqx.field(static=True)
    statistics: tuple[str, ...] = eqx.field(static=True)
    keep_fixed: bool = eqx.field(static=True)

    def __init__(
        self,
        space: WeightSpace,
        *,
        statistics: str | tuple[str, ...] = ("mean",),
        keep_fixed: bool = False,
    ):
        """Initialize a pooling layer.

        Args:
            space: the weight space of the input.
            statistics: any of "mean", "var", "std", "min", "max", "q25", "median", "q75".
            keep_fixed: pool over permuted axes only, so that every index of the fixed axes has
                its own features. The result is still invariant.
        """
        statistics = (statistics,) if isinstance(statistics, str) else tuple(statistics)
        known = [*_REDUCTIONS, *_QUANTILES]
        if not statistics or not set(statistics) <= set(known):
            raise ValueError(f"statistics are {statistics}; expected some of {known}")
        self.space, self.statistics, self.keep_fixed = space, statistics, keep_fixed

    def out_size(self, channels: int) -> int:
        """The length of the result for inputs with that many channels."""
        leaves = len(self.space.leaves)
        sets = sum(block.width for block in self.space.blocks) if self.keep_fixed else leaves
        return channels * len(self.statistics) * sets

    def __call__(self, x: PyTree) -> Float[Array, " features"]:
        """Pool features: leaf by leaf, statistic by statistic, channel by channel."""
        leaves = self.space.flatten(x, channels=True)
        arrays = self.space.fold(leaves) if self.keep_fixed else leaves
        return jnp.concatenate([self._pool(array) for array in arrays])

    def on(self, space: WeightSpace) -> "InvariantPool":
        """The same layer on a weight space of other sizes; fixed axes must agree."""
        check_differs_in_sizes(space, self.space)
        return replace_fields(self, space=space)

    def _pool(self, array: Array) -> Array:
        entries = array.reshape(-1, array.shape[-1])
        quantiles = [name for name in self.statistics if name in _QUANTILES]
        found = {name: f(entries) for name, f in _REDUCTIONS.items() if name in self.statistics}
        if quantiles:  # sort once for all of them
            levels = jnp.asarray([_QUANTILES[name] for name in quantiles], entries.dtype)
            values = jnp.quantile(entries, levels, axis=0)
            found |= zip(quantiles, values, strict=True)
        return jnp.concatenate([found[name] for name in self.statistics])
