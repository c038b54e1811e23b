"""The equivariant linear layer for any network: coefficients tied by structural role."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple
from zlib import crc32

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._html import in_brief
from ..basis import Plan
from ..basis._keys import BIAS, IDENTITY, LEVELS, find_ties
from ..spec import WeightSpace
from ..spec._grammar import names_in, parse_leaf
from ..spec._sizes import axis_size
from ..spec._space import check_is_space
from ._functional import Coefficients
from ._linear import UNFLinear
from ._spaces import replace_fields

Keys = tuple[str, ...]


class TiedLinear(eqx.Module):
    """An equivariant linear layer that fits every weight space.

    A `UNFLinear` has a channel matrix for each of its terms. Here a term's matrix is

        K = Σ_levels table[key of the term] / number of terms with that key into the same tensor,

    where the key says which part the term plays: the roles of the axes of source and target, which
    of these carry the same permutations, and which are kept and averaged. The *coarse* level says
    only what is kept between which roles, and knows almost every network; the *fine* level adds
    what the exact combination contributes, where it is known. Coefficients so depend on no name,
    no size, no depth, and not on the order in which axes are stored. All axes are permuted, fixed
    ones too.

    >>> import jax, unf
    >>> layer = TiedLinear(2, 3, key=jax.random.key(0))
    >>> for shape in ((8, 4), (64, 32)):
    ...     x = {"w": jax.numpy.ones((*shape, 2))}
    ...     space = unf.WeightSpace.from_spec({"w": "m n"}, {"w": x["w"][..., 0]})
    ...     print(layer(x, space)["w"].shape, layer.coverage(space))
    (8, 4, 3) {'coarse': 1.0, 'fine': 1.0}
    (64, 32, 3) {'coarse': 1.0, 'fine': 1.0}

    Attributes:
        table: a channel matrix for each key.
        bias: a vector of channels for each key of biases, or None.
        keys: the keys of the table, coarse and fine ones.
        bias_keys: those of the biases.
    """

    table: Float[Array, "keys in_channels out_channels"]
    bias: Float[Array, "bias_keys out_channels"] | None
    keys: Keys = eqx.field(static=True)
    bias_keys: Keys = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        key: PRNGKeyArray,
        spaces: Iterable[WeightSpace] | None = None,
        levels: Sequence[str] = LEVELS,
        bias: bool = True,
        dtype: Any = jnp.float32,
    ):
        """Initialize a layer: random coarse coefficients, zero fine ones, zero biases.

        Args:
            in_channels: channels of the input.
            out_channels: channels of the output.
            key: draws the coefficients; each key of the table has a random stream of its own.
            spaces: the weight spaces whose keys the table has; by default, those of small
                networks that together show most keys: an MLP, a residual CNN with norms, a
                recurrent network, and a Transformer. `extend` adds others.
            levels: the levels that the table has, "coarse" and "fine". Coarse ones alone are few,
                which is better where training is noisy.
            bias: whether to add a bias: one for all leaves, and one for each combination of roles.
            dtype: dtype of the table and the biases.
        """
        for name, size in {"in_channels": in_channels, "out_channels": out_channels}.items():
            if size < 1:
                raise ValueError(f"{name} is {size}; expected at least 1")
        self.keys = self.bias_keys = ()
        self.table = jnp.zeros((0, in_channels, out_channels), dtype)
        self.bias = jnp.zeros((0, out_channels), dtype) if bias else None
        spaces = common_spaces() if spaces is None else list(spaces)
        extended = self.extend(*spaces, levels=levels, key=key)
        self.keys, self.bias_keys = extended.keys, extended.bias_keys
        self.table, self.bias = extended.table, extended.bias

    @property
    def in_channels(self) -> int:
        """Channels of the input."""
        return self.table.shape[1]

    @property
    def out_channels(self) -> int:
        """Channels of the output."""
        return self.table.shape[2]

    def on(self, space: WeightSpace) -> UNFLinear:
        """The layer on one weight space: a `UNFLinear` with the table's coefficients."""
        check_is_space(space)
        layout = _layout(space, self.keys, self.bias_keys)
        coefficients = _gather(layout, self.table)
        bias = None if self.bias is None else _sum_levels(self.bias, layout.biases)
        return UNFLinear.from_coefficients(layout.plan, coefficients, bias)

    def __call__(
        self, x: PyTree, space: WeightSpace, *, mesh: Mesh | None = None, axis: str | None = None
    ) -> PyTree:
        """Apply to features of a weight space.

        Args:
            x: features with a trailing channel axis.
            space: their weight space.
            mesh: devices to shard features across, as in `UNFLinear`.
            axis: the mesh axis to shard leaves along; by default all of its axes together.
        """
        return self.on(space)(x, mesh=mesh, axis=axis)

    def coverage(self, space: WeightSpace) -> dict[str, float]:
        """The share of a space's terms whose key the table has, for each level."""
        check_is_space(space)
        ties, known = find_ties(space), set(self.keys)
        counts = {level: ties.counts(level) for level in LEVELS}
        return {
            level: sum(n for key, n in found.items() if key in known) / sum(found.values())
            for level, found in counts.items()
        }

    def extend(
        self,
        *spaces: WeightSpace,
        levels: Sequence[str] = LEVELS,
        key: PRNGKeyArray | None = None,
    ) -> "TiedLinear":
        """The layer with a table that also has the keys of these spaces.

        What the layer computes stays the same unless there is a `key`, which draws coarse
        coefficients from N(0, 1/fan-in); new fine coefficients are zero.
        """
        if unknown := set(levels) - set(LEVELS):
            raise ValueError(f"levels has {min(unknown)!r}; expected some of {LEVELS}")
        ties = [find_ties(space) for space in spaces]
        fan_in = self.in_channels * float(np.mean([x.keys_per_tensor for x in ties]) if ties else 1)
        keys = [k for level in levels for x in ties for k in x.keys[level]]
        bias_keys = [k for level in LEVELS for x in ties for k in x.bias_keys[level]]
        return self.with_keys(
            (*self.keys, IDENTITY, *keys), (*self.bias_keys, BIAS, *bias_keys), fan_in**-0.5, key
        )

    def with_keys(
        self,
        keys: Iterable[str],
        bias_keys: Iterable[str],
        scale: float = 0.0,
        key: PRNGKeyArray | None = None,
    ) -> "TiedLinear":
        """The layer with exactly these keys, of which new ones are drawn or zero."""
        keys, bias_keys = tuple(dict.fromkeys(keys)), tuple(dict.fromkeys(bias_keys))
        new = [k for k in keys if k not in set(self.keys)]
        shape = (len(new), self.in_channels, self.out_channels)
        drawn = jnp.zeros(shape, self.table.dtype)
        if key is not None and scale and new:
            deviations = np.array([scale * k.startswith("keeps") for k in new], np.float32)
            drawn = _draw(key, tuple(new), shape[1:]) * deviations[:, None, None]
        table = jnp.concatenate([self.table, drawn.astype(self.table.dtype)])
        found = {k: i for i, k in enumerate((*self.keys, *new))}
        table = table[np.array([found[k] for k in keys], int)]
        bias = self.bias
        if bias is not None:
            known = {k: i for i, k in enumerate(self.bias_keys)}
            padded = jnp.concatenate([bias, jnp.zeros((1, self.out_channels), bias.dtype)])
            bias = padded[np.array([known.get(k, len(known)) for k in bias_keys], int)]
        return replace_fields(self, table=table, bias=bias, keys=keys, bias_keys=bias_keys)

    @property
    def num_parameters(self) -> int:
        """The number of coefficients and biases in the table."""
        return self.table.size + (0 if self.bias is None else self.bias.size)

    def __repr__(self) -> str:
        coarse = sum(k.startswith("keeps") for k in self.keys)
        return (
            f"TiedLinear({self.in_channels} -> {self.out_channels} channels, {coarse} coarse and "
            f"{len(self.keys) - coarse} fine keys, {self.num_parameters:,} parameters)"
        )

    __pdoc__ = in_brief


def tie_pointwise(
    layer: TiedLinear, weight: Float[Array, "in_channels out_channels"]
) -> TiedLinear:
    """The layer that computes y = xΛ at every entry of every network."""
    is_identity = np.array([k == IDENTITY for k in layer.keys])
    table = jnp.where(is_identity[:, None, None], weight[None], 0).astype(layer.table.dtype)
    bias = None if layer.bias is None else jnp.zeros_like(layer.bias)
    return replace_fields(layer, table=table, bias=bias)


class _Level(NamedTuple):
    """For each of many coefficients, its position in a table and a factor; 0 if it is unknown."""

    positions: np.ndarray
    factors: np.ndarray


class _Layout(NamedTuple):
    """How the coefficients of a layer on one space are gathered from a table.

    Most terms have their sum over levels in common with others. `levels` has each distinct sum
    once, and `places` says for each core which of them stands where in its matrix.
    """

    plan: Plan
    levels: list[_Level]
    places: list[np.ndarray]
    biases: list[_Level]


@lru_cache(maxsize=64)
def _layout(space: WeightSpace, keys: Keys, bias_keys: Keys) -> _Layout:
    ties = find_ties(space)
    known = {k: i for i, k in enumerate(keys)}
    summands = []
    for level in LEVELS:
        table = np.array([known.get(k, -1) for k in ties.keys[level]])
        positions = np.concatenate([table[place].ravel() for place in ties.places[level]])
        factors = np.concatenate([share.ravel() for share in ties.shares[level]])
        summands += _level(positions, factors)
    distinct, inverse = np.unique(np.stack(summands), axis=1, return_inverse=True)
    levels = [_level(*distinct[i : i + 2]) for i in range(0, len(distinct), 2)]
    shapes = [place.shape for place in ties.places[LEVELS[0]]]
    parts = np.split(inverse.ravel().astype(np.int32), np.cumsum([m * n for m, n in shapes])[:-1])
    places = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
    known = {k: i for i, k in enumerate(bias_keys)}
    biases = [
        _level(np.array([known.get(k, -1) for k in ties.bias_keys[level]]), np.ones(()))
        for level in LEVELS
    ]
    return _Layout(ties.plan, levels, places, biases)


def _level(positions: np.ndarray, factors: np.ndarray) -> _Level:
    found = positions >= 0
    positions = np.where(found, positions, 0).astype(np.int32)
    return _Level(positions, np.where(found, factors, 0.0))


@partial(jax.jit, inline=True)  # one program, where nothing else is compiled around it
def _sum_levels(table: Float[Array, "keys *channels"], levels: list[_Level]) -> Array:
    """The sum over levels of a table's entries, each with its factor."""
    if not len(table):
        return jnp.zeros((len(levels[0].positions), *table.shape[1:]), table.dtype)
    shape = (-1, *[1] * (table.ndim - 1))
    found = [
        table.at[level.positions].get(mode="promise_in_bounds")
        * level.factors.reshape(shape).astype(table.dtype)
        for level in levels
    ]
    return sum(found[1:], start=found[0])


def _gather(layout: _Layout, table: Array) -> Coefficients:
    """The matrix of each core, from the table."""
    matrices = _matrices(table, layout.levels, layout.places)
    return {core.name: x for core, x in zip(layout.plan.cores, matrices, strict=True)}


@partial(jax.jit, inline=True)
def _matrices(table: Array, levels: list[_Level], places: list[Any]) -> list[Array]:
    sums, matrices = _sum_levels(table, levels), []
    for place in places:
        found = sums.at[place].get(mode="promise_in_bounds")
        rows, columns, in_channels, out_channels = found.shape
        shape = (rows * in_channels, columns * out_channels)
        matrices.append(jnp.swapaxes(found, 1, 2).reshape(shape))
    return matrices


def _draw(key: PRNGKeyArray, names: Keys, shape: tuple[int, ...]) -> Array:
    """Normal numbers for each name, which do not depend on the other names."""
    streams = np.array([crc32(name.encode()) for name in names], np.uint32)
    return jax.vmap(
        lambda stream: jax.random.normal(jax.random.fold_in(key, stream), shape, jnp.float32)
    )(streams)


@lru_cache(maxsize=1)
def common_spaces() -> tuple[WeightSpace, ...]:
    """The weight spaces of four small networks, which together show most keys."""
    linear, norm = "in out", {"scale": ("scale", "c"), "shift": ("shift", "c")}
    mlp = {}
    for i, (m, n) in enumerate(pairwise("abcd")):
        mlp |= {f"w{i}": (linear, f"{m} {n}"), f"b{i}": ("shift", n)}
    convolution = "window window in out"
    cnn = {"stem": (convolution, "y x i c"), **norm, "w": (linear, "c o"), "b": ("shift", "o")}
    embed, start = {"embed": ("index out", "v d")}, {"start": ("shift shift", "s h")}
    rnn = {"in": (linear, "d h"), "bias": ("shift", "h"), "rec": (linear, "h h"), **start}
    rnn |= {"gates": (linear, "d (g h)"), "rec_gates": (linear, "h (g h)"), **embed}
    rnn |= {"gate_bias": ("shift", "(g h)"), "out": (linear, "h v"), "out_bias": ("shift", "v")}
    attention = {**embed, "positions": ("index out", "t d"), "out": (linear, "d u")}
    for i in "01":
        cnn |= {f"{i}k0": (convolution, f"y{i} x{i} c m{i}"), f"{i}s0": ("scale", f"m{i}")}
        cnn |= {f"{i}b0": ("shift", f"m{i}"), f"{i}k1": (convolution, f"v{i} u{i} m{i} c")}
        cnn |= {f"{i}s1": ("scale", "c"), f"{i}b1": ("shift", "c")}
        heads = {"q": f"(n{i} n{i}.k)", "k": f"(n{i} n{i}.k)", "v": f"(n{i} n{i}.v)"}
        for name, axis in heads.items():
            attention |= {f"{i}{name}": (linear, f"d {axis}"), f"{i}{name}b": ("shift", axis)}
        attention |= {f"{i}o": (linear, f"(n{i} n{i}.v) d"), f"{i}ob": ("shift", "d")}
        attention |= {f"{i}scale": ("scale", "d"), f"{i}shift": ("shift", "d")}
        attention |= {f"{i}up": (linear, f"d m{i}"), f"{i}upb": ("shift", f"m{i}")}
        attention |= {f"{i}down": (linear, f"m{i} d"), f"{i}downb": ("shift", "d")}
    return tuple(map(_small_space, (mlp, cnn, rnn, attention)))


def _small_space(leaves: Mapping[str, tuple[str, str]]) -> WeightSpace:
    """The space with these roles and axes, in which every name has size 2."""
    axes = {path: parse_leaf(written, path) for path, (_, written) in leaves.items()}
    sizes = {name.path: 2 for row in axes.values() for axis in row for name in names_in(axis)}
    shapes = {
        path: jax.ShapeDtypeStruct(tuple(axis_size(axis, sizes) for axis in row), jnp.float32)
        for path, row in axes.items()
    }
    spec = {path: written for path, (_, written) in leaves.items()}
    roles = {path: each for path, (each, _) in leaves.items()}
    return WeightSpace.from_spec(spec, shapes, sizes=sizes, roles=roles)
