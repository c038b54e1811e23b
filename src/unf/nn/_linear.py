"""The equivariant linear layer of the paper, and its special case for filters."""

from collections.abc import Mapping, Sequence
from math import prod, sqrt
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.random import threefry_2x32
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, UInt32

from .._html import in_brief, repr_html
from ..basis import CostReport, Plan, cost_report, make_plan, terms
from ..basis._cost import core_parameters
from ..spec import SpecError, WeightSpace
from ..spec._space import check_differs_in_sizes
from ._functional import Coefficients, apply, coefficient_shapes
from ._spaces import replace_fields, resize_with

_ROWS, _COLUMNS = 128, 1024
"""How many random numbers are drawn at a time."""
_MOST_COEFFICIENTS = 2**34
"""64 GiB in float32."""


def init_coefficients(
    plan: Plan,
    in_channels: int,
    out_channels: int,
    *,
    key: PRNGKeyArray,
    dtype: Any = jnp.float32,
) -> Coefficients:
    """Draw random coefficients from N(0, 1/fan-in).

    The fan-in of an output is the number of values its terms read: the input's channels, at each
    index of the fixed axes.
    """
    shapes = coefficient_shapes(plan, in_channels, out_channels)
    _check_size(plan, sum(prod(shape) for shape in shapes.values()))
    fan_in, drawn = _fan_in(plan) * in_channels, _normals(key, [prod(x) for x in shapes.values()])
    coefficients = {}
    for core, values in zip(plan.cores, drawn, strict=True):
        stacks = [plan.out_stacks[target.stack] for target in core.targets]
        scales = [1 / sqrt(fan_in[stack.blocks[0]]) for stack in stacks]  # one for all blocks
        scale = np.repeat(scales, [stack.width * out_channels for stack in stacks])
        values = values.reshape(shapes[core.name]) * scale.astype(np.float32)[None]
        coefficients[core.name] = jnp.asarray(values, dtype)
    return coefficients


def _check_size(plan: Plan, coefficients: int) -> None:
    """Refuse what no machine can hold, before memory is allocated for it."""
    if coefficients <= _MOST_COEFFICIENTS:
        return
    space = plan.in_space
    longest = max(space.fixed, key=lambda name: space.axis_sizes[name], default=None)
    cause = f"; the fixed axis {longest!r} is {space.axis_sizes[longest]} long" if longest else ""
    raise SpecError(
        f"the layer would have {coefficients:,} coefficients{cause}",
        remedy=f"permute it, space.relax({longest!r}), and tell its indices apart with "
        "unf.nn.PositionalEncoding, as models do with max_fixed=; or use fewer channels",
    )


def _normals(key: PRNGKeyArray, sizes: Sequence[int]) -> list[Any]:
    """The numbers of `jax.random.normal(k, (size,))` for each size and part `k` of a split key.

    A generator takes long to compile, so one draws all numbers, in rows; each size takes as many
    rows as it needs. Outside of `jax.jit`, a fixed number of rows is drawn at a time, so that it
    is compiled only once, and the rows are split on the host.
    """
    if not sizes:
        return []
    counts = [-(-size // _COLUMNS) for size in sizes]
    owners = np.repeat(np.arange(len(sizes)), counts).astype(np.uint32)
    first = np.concatenate([np.arange(n) * _COLUMNS for n in counts]).astype(np.uint32)
    if "threefry2x32" not in str(jax.random.key_impl(key)):
        flat = jax.random.normal(key, (len(owners) * _COLUMNS,), jnp.float32)
    elif isinstance(key, Tracer):
        flat = _draw_rows(jax.random.key_data(key), owners, first).reshape(-1)
    else:
        padding = (0, -len(owners) % _ROWS)
        pieces = zip(*(np.pad(x, padding).reshape(-1, _ROWS) for x in (owners, first)), strict=True)
        data = jax.random.key_data(key)
        flat = np.concatenate([_draw_rows(data, *piece) for piece in pieces]).reshape(-1)
    starts = np.cumsum([0, *counts[:-1]]) * _COLUMNS
    return [flat[start : start + size] for start, size in zip(starts, sizes, strict=True)]


@jax.jit
def _draw_rows(
    key: UInt32[Array, "2"], owners: UInt32[Any, " rows"], first: UInt32[Any, " rows"]
) -> Float[Array, "rows columns"]:
    """What `jax.random.normal` draws with part `owners` of a key, from number `first` on."""

    def draw_bits(owner: Array, start: Array) -> Array:
        part = threefry_2x32(key, jnp.stack([jnp.zeros_like(owner), owner]))
        count = start + jnp.arange(_COLUMNS, dtype=jnp.uint32)
        bits = threefry_2x32(part, jnp.concatenate([jnp.zeros_like(count), count]))
        return bits[:_COLUMNS] ^ bits[_COLUMNS:]

    bits = jax.vmap(draw_bits)(owners, first)
    uniform = jax.lax.bitcast_convert_type((bits >> 9) | np.uint32(0x3F800000), jnp.float32) - 1
    least = np.nextafter(np.float32(-1), np.float32(0))
    uniform = jnp.maximum(least, uniform * (np.float32(1) - least) + least)
    return np.float32(sqrt(2)) * jax.lax.erf_inv(uniform)


def _fan_in(plan: Plan) -> np.ndarray:
    """For each output block, the rows of all matrices that reach it, per channel."""
    fan_in = np.zeros(len(plan.out_space.blocks))
    for core in plan.cores:
        reaching = plan.widths(core)[0] @ plan.matchings_allowed(core)
        for target, rows in zip(core.targets, reaching, strict=True):
            fan_in[list(plan.out_stacks[target.stack].blocks)] += rows
    return np.maximum(fan_in, 1)


def pointwise_coefficients(
    plan: Plan, weight: Float[Array, "in_channels out_channels"]
) -> Coefficients:
    """The coefficients of y = xΛ at every entry: Λ for the terms E = X, zero for all others."""
    in_channels, out_channels = weight.shape
    shapes = coefficient_shapes(plan, in_channels, out_channels)
    coefficients = {name: jnp.zeros(shape, weight.dtype) for name, shape in shapes.items()}
    for term in terms(plan):
        if term.is_identity:
            rows, columns = term.slices(in_channels, out_channels)
            block = jnp.kron(jnp.eye(term.rows, dtype=weight.dtype), weight)
            coefficients[term.core] = coefficients[term.core].at[rows, columns].set(block)
    return coefficients


class UNFLinear(eqx.Module):
    """Every equivariant linear map between two weight spaces (eq. 27, 28 and 30).

    >>> import jax, unf
    >>> shapes = {"w": jax.ShapeDtypeStruct((8, 8), "float32")}
    >>> space = unf.WeightSpace.from_spec({"w": "n n"}, shapes)
    >>> layer = UNFLinear(space, 2, 3, key=jax.random.key(0))
    >>> layer({"w": jax.numpy.ones((8, 8, 2))})["w"].shape
    (8, 8, 3)
    >>> layer
    UNFLinear(2 -> 3 channels, 15 terms in 3 cores, 93 parameters)

    Attributes:
        coefficients: for each core, the matrix λ.
        bias: one number per output leaf and channel, or None.
    """

    coefficients: Coefficients
    bias: Float[Array, "leaves channels"] | None
    plan: Plan = eqx.field(static=True)
    in_channels: int = eqx.field(static=True)
    out_channels: int = eqx.field(static=True)

    def __init__(
        self,
        space: WeightSpace,
        in_channels: int,
        out_channels: int,
        *,
        key: PRNGKeyArray,
        out_space: WeightSpace | None = None,
        bias: bool = True,
        minimal: bool = False,
        dtype: Any = jnp.float32,
    ):
        """Initialize a layer with random coefficients and zero bias.

        Args:
            space: the weight space of the input.
            in_channels: channels of the input.
            out_channels: channels of the output.
            key: draws the coefficients.
            out_space: the weight space of the output, by default `space`.
            bias: whether to add a bias per output leaf and channel.
            minimal: leave out terms that small axes make linearly dependent.
            dtype: dtype of the coefficients and the bias.
        """
        self.plan = make_plan(space, out_space, minimal=minimal)
        for name, size in {"in_channels": in_channels, "out_channels": out_channels}.items():
            if size < 1:
                raise ValueError(f"{name} is {size}; expected at least 1")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.coefficients = init_coefficients(
            self.plan, in_channels, out_channels, key=key, dtype=dtype
        )
        leaves = len(self.plan.out_space.leaves)
        self.bias = jnp.zeros((leaves, out_channels), dtype) if bias else None

    @classmethod
    def from_coefficients(
        cls,
        plan: Plan,
        coefficients: Mapping[str, Float[Array, "rows columns"]],
        bias: Float[Array, "leaves channels"] | None = None,
    ) -> "UNFLinear":
        """The layer with given coefficients, whose shapes `coefficient_shapes` tells."""
        core, (rows, columns) = plan.cores[0], plan.matrix_shape(plan.cores[0], 1, 1)
        shape = coefficients[core.name].shape
        return replace_fields(
            object.__new__(cls),
            coefficients=dict(coefficients),
            bias=bias,
            plan=plan,
            in_channels=shape[0] // rows,
            out_channels=shape[1] // columns,
        )

    @property
    def space(self) -> WeightSpace:
        """The weight space of the input."""
        return self.plan.in_space

    def __call__(
        self,
        x: PyTree,
        *,
        key: PRNGKeyArray | None = None,
        mesh: Mesh | None = None,
        axis: str | None = None,
    ) -> PyTree:
        """Apply to features: a tree like the weights, each leaf with a trailing channel axis.

        Args:
            x: the features.
            key: not used; models with dropout take one, and a layer can be their backbone.
            mesh: devices to shard inputs and outputs across, as in `apply`.
            axis: the mesh axis to shard leaves along; by default all of its axes together.
        """
        return apply(self.plan, self.coefficients, x, self.bias, mesh=mesh, axis=axis)

    def on(self, space: WeightSpace, *, out_space: WeightSpace | None = None) -> "UNFLinear":
        """The layer with the same coefficients on another weight space.

        Coefficients do not depend on the sizes of permuted axes, so these may differ.

        >>> import jax, unf
        >>> shapes = {"w": jax.ShapeDtypeStruct((8, 8), "float32")}
        >>> space = unf.WeightSpace.from_spec({"w": "n n"}, shapes)
        >>> layer = UNFLinear(space, 2, 3, key=jax.random.key(0))
        >>> wide = layer.on(space.resize({"n": 64}))
        >>> wide({"w": jax.numpy.ones((64, 64, 2))})["w"].shape
        (64, 64, 3)

        Args:
            space: the weight space of the input.
            out_space: that of the output; by default today's, at the sizes of `space`.

        Raises:
            SpecError: naming the first leaf or fixed axis that differs; or if the layer is
                minimal, and another size makes other terms independent.
        """
        check_differs_in_sizes(space, self.plan.in_space)
        if out_space is None:
            out_space = resize_with(self.plan.out_space, self.plan.in_space, space)
        check_differs_in_sizes(out_space, self.plan.out_space)
        plan = make_plan(space, out_space, minimal=self.plan.minimal)
        if self.plan.minimal and _terms_of(plan) != _terms_of(self.plan):
            raise SpecError(
                "a minimal layer has other terms at these sizes",
                expected=f"{self.plan.num_terms:,} terms",
                got=f"{plan.num_terms:,} terms",
                remedy="make the layer with minimal=False",
            )
        return replace_fields(self, plan=plan)

    @property
    def num_parameters(self) -> int:
        """The number of coefficients of all terms, and of biases."""
        coefficients = sum(
            core_parameters(self.plan, core, self.in_channels, self.out_channels)
            for core in self.plan.cores
        )
        return coefficients + (0 if self.bias is None else self.bias.size)

    def cost(self, *, batch: int = 1, devices: int = 1) -> CostReport:
        """The cost of a forward pass on each device, per core, without biases."""
        channels = (self.in_channels, self.out_channels)
        return cost_report(self.plan, *channels, batch=batch, devices=devices)

    def __repr__(self) -> str:
        return (
            f"UNFLinear({self.in_channels} -> {self.out_channels} channels, "
            f"{self.plan.num_terms:,} terms in {len(self.plan.cores)} cores, "
            f"{self.num_parameters:,} parameters)"
        )

    __pdoc__ = in_brief
    _repr_html_ = repr_html


def _terms_of(plan: Plan) -> list[tuple]:
    """What the rows and columns of every core's matrix stand for."""
    return [(c.name, c.features, c.targets, c.matchings, c.allowed) for c in plan.cores]


def NFNLinear(
    space: WeightSpace,
    in_channels: int,
    out_channels: int,
    *,
    key: PRNGKeyArray,
    spatial: tuple[str | int, ...] = (),
    bias: bool = True,
    dtype: Any = jnp.float32,
) -> UNFLinear:
    """The layer of permutation equivariant neural functionals (Zhou et al. 2023, NFN-NP).

    It does not permute the spatial axes of filters: their entries are channels, and every pair of
    positions has its own coefficients. On the weight space of an MLP it is `UNFLinear`.

    Args:
        space: the weight space of the input and the output.
        in_channels: channels of the input.
        out_channels: channels of the output.
        key: draws the coefficients.
        spatial: names of spatial axes that `space` permutes, to be fixed here. Axes that are
            fixed in `space` need not be named.
        bias: whether to add a bias per leaf and channel.
        dtype: dtype of the coefficients and the bias.
    """
    fixed = space.fix(*spatial) if spatial else space
    return UNFLinear(fixed, in_channels, out_channels, key=key, bias=bias, dtype=dtype)
