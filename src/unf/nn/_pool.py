"""From weight-space features to a vector that no permutation changes."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..spec import WeightSpace

_EPSILON = 1e-12

STATISTICS: dict[str, Callable[[Array], Array]] = {
    "mean": lambda x: jnp.mean(x, axis=0),
    "var": lambda x: jnp.var(x, axis=0),
    # A leaf of one entry has no spread; the root's slope at zero is infinite.
    "std": lambda x: jnp.sqrt(jnp.var(x, axis=0) + _EPSILON),
    "min": lambda x: jnp.min(x, axis=0),
    "max": lambda x: jnp.max(x, axis=0),
}


class InvariantPool(eqx.Module):
    """Statistics of every leaf, side by side (§2, eq. 16).

    The default, the mean over everything, is the paper's pooling with means for sums.
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
        """Make a pooling.

        Args:
            space: the weight space of the input.
            statistics: any of "mean", "var", "std", "min", "max".
            keep_fixed: pool over permuted axes only, so that every index of the fixed ones
                gives features of its own, as invariance allows.
        """
        statistics = (statistics,) if isinstance(statistics, str) else tuple(statistics)
        unknown = [name for name in statistics if name not in STATISTICS]
        if unknown or not statistics:
            raise ValueError(f"statistics are {statistics}; expected some of {list(STATISTICS)}")
        self.space, self.statistics, self.keep_fixed = space, statistics, keep_fixed

    def out_size(self, channels: int) -> int:
        """The length of the result for inputs with that many channels."""
        groups = [block.width for block in self.space.blocks]
        return (
            channels
            * len(self.statistics)
            * (sum(groups) if self.keep_fixed else len(self.space.leaves))
        )

    def __call__(self, x: PyTree) -> Float[Array, " features"]:
        """Pool features: leaf by leaf, statistic by statistic, channel by channel."""
        leaves = self.space.flatten(x, channels=True)
        arrays = self.space.fold(leaves) if self.keep_fixed else leaves
        sets = [array.reshape(-1, array.shape[-1]) for array in arrays]
        return jnp.concatenate([STATISTICS[name](x) for x in sets for name in self.statistics])
