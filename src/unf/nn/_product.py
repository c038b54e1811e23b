"""Products of weight matrices: an equivariant map of second order.

Linear layers and pointwise activations cannot multiply weight matrices, as a network does when it
applies one after another. The matrix product of features with axes (a, b) and (b, c) has axes
(a, c), and it is equivariant to permutations of a, b and c.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..spec import WeightSpace
from ..spec._space import check_differs_in_sizes
from ._spaces import replace_fields

Pair = tuple[str, str]


class MatrixProducts(eqx.Module):
    """Add products of weight matrices to every block with two permuted axes.

    Let F_ab be all channels of all blocks with axes a and b, in either order, and let A, B, C be
    learned matrices that mix channels. Then

        Y_ac = Σ_b (F_ab A) · (F_bc B) / √|b|,    X_ac ↦ X_ac + Y_ac C,

    where · multiplies matrices channel by channel. Blocks without such products do not change:
    recurrent weights have them, the weights of an MLP do not. Blocks with nested axes do not
    take part.

    >>> import jax, unf
    >>> shapes = {"w": jax.ShapeDtypeStruct((8, 8), "float32")}
    >>> space = unf.WeightSpace.from_spec({"w": "n n"}, shapes)
    >>> layer = MatrixProducts(space, 3, key=jax.random.key(0))
    >>> layer({"w": jax.numpy.ones((8, 8, 3))})["w"].shape
    (8, 8, 3)
    """

    left: dict[str, Float[Array, "channels rank"]]
    right: dict[str, Float[Array, "channels rank"]]
    out: dict[str, Float[Array, "rank channels"]]
    space: WeightSpace = eqx.field(static=True)
    rank: int = eqx.field(static=True)

    def __init__(
        self,
        space: WeightSpace,
        channels: int,
        *,
        key: PRNGKeyArray,
        rank: int | None = None,
        dtype: Any = jnp.float32,
    ):
        """Initialize a layer with random matrices, N(0, 1/fan-in).

        Args:
            space: the weight space of the features.
            channels: channels of the features.
            key: draws the matrices.
            rank: the number of products for each pair of axes, by default `channels`.
            dtype: dtype of the matrices.
        """
        self.space = space
        self.rank = channels if rank is None else rank
        keys = iter(jax.random.split(key, 3 * len(self._stacks)))

        def draw(rows: int, columns: int, fan_in: int) -> Array:
            return jax.random.normal(next(keys), (rows, columns), dtype) / np.sqrt(fan_in)

        self.left, self.right, self.out = {}, {}, {}
        for pair, members in self._stacks.items():
            size = channels * sum(space.blocks[i].width for i in members)
            self.left[" ".join(pair)] = draw(2 * size, self.rank, 2 * size)
            self.right[" ".join(pair)] = draw(2 * size, self.rank, 2 * size)
            paths = len(self._middles(pair))
            self.out[" ".join(pair)] = draw(self.rank, size, self.rank * max(1, paths))

    def __call__(self, x: PyTree) -> PyTree:
        """Apply to features: a tree like the weights, each leaf with a trailing channel axis."""
        blocks = self.space.fold(self.space.flatten(x, channels=True))
        stacks = {
            (a, b): jnp.concatenate([self._facing(a, i, blocks[i]) for i in members], axis=-1)
            for (a, b), members in self._stacks.items()
        }
        lefts, rights = _mix(stacks, self.left), _mix(stacks, self.right)
        for (a, c), members in self._stacks.items():
            middles = self._middles((a, c))
            if not middles:
                continue
            products = sum(_multiply(lefts[a, b], rights[b, c]) for b in middles)
            added = products @ self.out[f"{a} {c}"].astype(stacks[a, c].dtype)
            cuts = np.cumsum([blocks[i].shape[-1] for i in members])[:-1]
            for i, part in zip(members, jnp.split(added, cuts, axis=-1), strict=True):
                blocks[i] = blocks[i] + self._facing(a, i, part)
        return self.space.unflatten(self.space.unfold(blocks))

    def on(self, space: WeightSpace) -> "MatrixProducts":
        """The same layer on a weight space of other sizes; fixed axes must agree."""
        check_differs_in_sizes(space, self.space)
        return replace_fields(self, space=space)

    @property
    def _stacks(self) -> dict[Pair, list[int]]:
        """Blocks with two permuted axes, by the sorted names of those axes."""
        stacks = defaultdict(list)
        for i, block in enumerate(self.space.blocks):
            if len(block.labels) == 2 and all(label.parent is None for label in block.labels):
                stacks[_sorted(block.labels[0].name, block.labels[1].name)].append(i)
        return dict(stacks)

    def _middles(self, pair: Pair) -> list[str]:
        """The axes b for which there are blocks with (a, b) and with (b, c)."""
        stacks, (a, c) = self._stacks, pair
        names = dict.fromkeys(name for stack in stacks for name in stack)
        return [b for b in names if _sorted(a, b) in stacks and _sorted(b, c) in stacks]

    def _facing(self, first: str, index: int, array: Array) -> Array:
        """Move the axis `first` of a block's array to the front, or back to its place."""
        is_first = self.space.blocks[index].labels[0].name == first
        return array if is_first else jnp.swapaxes(array, 0, 1)


def _sorted(a: str, b: str) -> Pair:
    return (a, b) if a <= b else (b, a)


def _mix(stacks: Mapping[Pair, Array], matrices: Mapping[str, Array]) -> dict[Pair, Array]:
    """Mix channels, for each order of two axes; for a square block, both orders add up."""
    mixed: dict[Pair, Array] = {}
    for (a, b), features in stacks.items():
        straight, transposed = jnp.split(matrices[f"{a} {b}"].astype(features.dtype), 2)
        mixed[a, b] = features @ straight
        other = jnp.swapaxes(features @ transposed, 0, 1)
        mixed[b, a] = mixed[a, b] + other if a == b else other
    return mixed


def _multiply(left: Float[Array, "a b rank"], right: Float[Array, "b c rank"]) -> Array:
    """Multiply matrices channel by channel, scaled so that products are as large as factors."""
    return jnp.einsum("abr,bcr->acr", left, right) / np.sqrt(left.shape[1])
