"""Pooling weight-space features into a vector that no permutation changes."""

from collections.abc import Callable
from math import sqrt
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..spec import SpecError, WeightSpace
from ..spec._space import check_differs_in_sizes, check_is_space
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
        check_is_space(space)
        self.space, self.statistics, self.keep_fixed = space, _check(statistics), keep_fixed

    def out_size(self, channels: int) -> int:
        """The length of the result for inputs with that many channels."""
        leaves = len(self.space.leaves)
        sets = sum(block.width for block in self.space.blocks) if self.keep_fixed else leaves
        return channels * len(self.statistics) * sets

    def __call__(self, x: PyTree) -> Float[Array, " features"]:
        """Pool features: leaf by leaf, statistic by statistic, channel by channel."""
        leaves = self.space.flatten(x, channels=True)
        arrays = self.space.fold(leaves) if self.keep_fixed else leaves
        return jnp.concatenate([_pool(array, self.statistics) for array in arrays])

    def on(self, space: WeightSpace) -> "InvariantPool":
        """The same layer on a weight space of other sizes; fixed axes must agree."""
        check_differs_in_sizes(space, self.space)
        return replace_fields(self, space=space)


class AttentionPool(eqx.Module):
    """Weighted means of every leaf, with weights that the entries' channels decide.

    A head h of leaf ℓ has a query q, and its mean is Σᵢ softmaxᵢ(xᵢ·q/√channels) xᵢ over all
    entries i of the leaf. With q = 0 it is the plain mean.

    Attributes:
        queries: the queries of all leaves.
        space: the weight space of the input.
    """

    queries: Float[Array, "leaves num_heads channels"]
    space: WeightSpace = eqx.field(static=True)

    def __init__(
        self,
        space: WeightSpace,
        channels: int,
        *,
        key: PRNGKeyArray,
        num_heads: int = 4,
        dtype: Any = jnp.float32,
    ):
        """Initialize a pooling layer.

        Args:
            space: the weight space of the input.
            channels: channels of the input.
            key: draws the queries, from N(0, 1).
            num_heads: the number of means of each leaf.
            dtype: dtype of the queries.
        """
        if num_heads < 1:
            raise ValueError(f"num_heads is {num_heads}; expected at least 1")
        self.space = space
        self.queries = jax.random.normal(key, (len(space.leaves), num_heads, channels), dtype)

    def out_size(self, channels: int) -> int:
        """The length of the result for inputs with that many channels."""
        return self.queries.shape[0] * self.queries.shape[1] * channels

    def __call__(self, x: PyTree) -> Float[Array, " features"]:
        """Pool features: leaf by leaf, head by head, channel by channel."""
        leaves = self.space.flatten(x, channels=True)
        pairs = zip(leaves, self.queries, strict=True)
        return jnp.concatenate([self._pool(leaf, queries).reshape(-1) for leaf, queries in pairs])

    def _pool(self, leaf: Array, queries: Array) -> Float[Array, "num_heads channels"]:
        entries = leaf.reshape(-1, leaf.shape[-1])
        scores = entries @ queries.T / sqrt(leaf.shape[-1])
        return jax.nn.softmax(scores, axis=0).T @ entries

    def on(self, space: WeightSpace) -> "AttentionPool":
        """The same layer on a weight space of other sizes; fixed axes must agree."""
        check_differs_in_sizes(space, self.space)
        return replace_fields(self, space=space)


class RolePool(eqx.Module):
    """Average statistics over the leaves of each kind, so that every network has as many features.

    By the roles of its axes, a leaf is a filter, a lookup table, a matrix, a scale or a shift. It
    reads the input (its axis `in` or `index` is fixed), writes the output (its axis `out`, `scale`
    or `shift` is), or is in between. For each of these 15 groups, the result has a 1 and the mean
    of its leaves' statistics, or zeros if there are no such leaves.

    Attributes:
        statistics: what is pooled, see `InvariantPool`.
        space: the weight space of the input; None before `on`.
    """

    statistics: tuple[str, ...] = eqx.field(static=True)
    space: WeightSpace | None = eqx.field(static=True)

    def __init__(self, *, statistics: str | tuple[str, ...] = ("mean",)):
        """Initialize a pooling layer for any weight space."""
        self.statistics, self.space = _check(statistics), None

    def out_size(self, channels: int) -> int:
        """The length of the result for inputs with that many channels."""
        return len(GROUPS) * (1 + channels * len(self.statistics))

    def on(self, space: WeightSpace) -> "RolePool":
        """The same layer on one weight space."""
        check_is_space(space)
        return replace_fields(self, space=space)

    def __call__(self, x: PyTree, space: WeightSpace | None = None) -> Float[Array, " features"]:
        """Pool features: group by group, statistic by statistic, channel by channel."""
        space = self.space if space is None else space
        if space is None:
            raise SpecError("pooling by role needs the weight space", remedy="call pool(x, space)")
        members: dict[tuple[str, str], list[Array]] = {group: [] for group in GROUPS}
        leaves = space.flatten(x, channels=True)
        for group, leaf in zip(groups_of(space), leaves, strict=True):
            members[GROUPS[group]].append(_pool(leaf, self.statistics))
        size, dtype = self.out_size(leaves[0].shape[-1]) // len(GROUPS), jnp.result_type(*leaves)
        return jnp.concatenate(
            [
                jnp.concatenate([jnp.ones(1, dtype), jnp.mean(jnp.stack(found), axis=0)])
                if found
                else jnp.zeros(size, dtype)
                for found in members.values()
            ]
        )


_KINDS = {"window": "filter", "index": "lookup", "in": "matrix", "out": "matrix", "scale": "scale"}
GROUPS = tuple(
    (kind, place)
    for kind in ("filter", "lookup", "matrix", "scale", "shift")
    for place in ("first", "between", "last")
)


def groups_of(space: WeightSpace) -> list[int]:
    """The group of each leaf in `GROUPS`: its kind, and if it reads inputs or writes outputs."""
    groups = []
    for leaf, layout in zip(space.leaves, space.layouts, strict=True):
        roles = space.roles[leaf.path]
        atoms = [atom for block in layout.blocks for atom in block.atoms]
        permuted = {atom.axis for atom in atoms if atom.permuted}
        fixed = {role for axis, role in enumerate(roles) if axis not in permuted}
        place = "last" if fixed & {"out", "scale", "shift"} else "between"
        place = "first" if place == "between" and fixed & {"in", "index"} else place
        kind = next((kind for role, kind in _KINDS.items() if role in roles), "shift")
        groups.append(GROUPS.index((kind, place)))
    return groups


def _check(statistics: str | tuple[str, ...]) -> tuple[str, ...]:
    statistics = (statistics,) if isinstance(statistics, str) else tuple(statistics)
    known = [*_REDUCTIONS, *_QUANTILES]
    if not statistics or not set(statistics) <= set(known):
        raise ValueError(f"statistics are {statistics}; expected some of {known}")
    return statistics


def _pool(array: Float[Array, "*axes channels"], statistics: tuple[str, ...]) -> Array:
    entries = array.reshape(-1, array.shape[-1])
    quantiles = [name for name in statistics if name in _QUANTILES]
    found = {name: f(entries) for name, f in _REDUCTIONS.items() if name in statistics}
    if quantiles:  # sort once for all of them
        levels = jnp.asarray([_QUANTILES[name] for name in quantiles], entries.dtype)
        values = jnp.quantile(entries, levels, axis=0)
        found |= zip(quantiles, values, strict=True)
    return jnp.concatenate([found[name] for name in statistics])
