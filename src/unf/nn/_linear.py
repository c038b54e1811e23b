"""The equivariant linear layer of the paper, and its special case for filters."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._html import in_brief, repr_html
from ..basis import CostReport, Plan, cost_report, make_plan, terms
from ..basis._cost import core_parameters
from ..spec import WeightSpace
from ._functional import Coefficients, apply, coefficient_shapes


def init_coefficients(
    plan: Plan,
    in_channels: int,
    out_channels: int,
    *,
    key: PRNGKeyArray,
    dtype: Any = jnp.float32,
) -> Coefficients:
    """Random coefficients, N(0, 1/fan-in): one per term into that output and number it reads.

    A term reads the input's channels, at each index of its fixed axes.
    """
    fan_in = _fan_in(plan) * in_channels
    shapes = coefficient_shapes(plan, in_channels, out_channels)
    keys = jax.random.split(key, max(len(shapes), 1))
    coefficients = {}
    for core, subkey in zip(plan.cores, keys, strict=False):
        scale = np.concatenate(
            [
                np.repeat(
                    1 / np.sqrt(fan_in[list(stack.blocks)]), np.array(stack.widths) * out_channels
                )
                for stack in (plan.out_stacks[target.stack] for target in core.targets)
            ]
        )
        shape = shapes[core.name]
        values = jax.random.normal(subkey, shape, dtype)
        coefficients[core.name] = values * jnp.broadcast_to(jnp.asarray(scale, dtype), shape)
    return coefficients


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


def _fan_in(plan: Plan) -> np.ndarray:
    """For each output block, the rows of all matrices that reach it, per channel."""
    fan_in = np.zeros(len(plan.out_space.blocks))
    for core in plan.cores:
        sources = np.array([plan.in_stacks[f.stack].width for f in core.features])
        reaching = sources @ plan.matchings_allowed(core)
        for target, rows in zip(core.targets, reaching, strict=True):
            fan_in[list(plan.out_stacks[target.stack].blocks)] += rows
    return np.maximum(fan_in, 1)


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
        """Make a layer with random coefficients and zero bias.

        Args:
            space: the weight space of the input.
            in_channels: channels of the input.
            out_channels: channels of the output.
            key: draws the coefficients.
            out_space: the weight space of the output, by default `space`.
            bias: whether to add a bias per output leaf and channel.
            minimal: leave out terms that small axes make linearly dependent.
            dtype: of coefficients and bias.
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

    def __call__(self, x: PyTree, *, mesh: Mesh | None = None, axis: str | None = None) -> PyTree:
        """Apply to features: a tree like the weights, each leaf with a trailing channel axis.

        Args:
            x: the features.
            mesh: devices to spread inputs and outputs over, as in `apply`.
            axis: the mesh's axis to spread leaves over; by default all of its axes together.
        """
        return apply(self.plan, self.coefficients, x, self.bias, mesh=mesh, axis=axis)

    @property
    def num_parameters(self) -> int:
        """Coefficients of all terms, and biases."""
        coefficients = sum(
            core_parameters(self.plan, core, self.in_channels, self.out_channels)
            for core in self.plan.cores
        )
        return coefficients + (0 if self.bias is None else self.bias.size)

    def cost(self, *, batch: int = 1, devices: int = 1) -> CostReport:
        """What a forward pass costs each device, per core; biases are not counted."""
        channels = (self.in_channels, self.out_channels)
        return cost_report(self.plan, *channels, batch=batch, devices=devices)

    def __repr__(self) -> str:
        return (
            f"UNFLinear({self.in_channels} -> {self.out_channels} channels, "
            f"{self.plan.num_terms:,} terms in {len(self.plan.cores)} cores, "
            f"{self.num_parameters:,} parameters)"
        )

    def __pdoc__(self, **_: Any) -> Any:
        return in_brief(self)

    def _repr_html_(self) -> str:
        return repr_html(self)


class NFNLinear(eqx.Module):
    """The layer of permutation equivariant neural functionals (Zhou et al. 2023, NFN-NP).

    It differs from `UNFLinear` in that the spatial axes of filters are not permuted: their
    entries are channels, and every pair of positions has coefficients of its own. On the
    weight space of an MLP the two are the same.
    """

    linear: UNFLinear

    def __init__(
        self,
        space: WeightSpace,
        in_channels: int,
        out_channels: int,
        *,
        key: PRNGKeyArray,
        spatial: tuple[str | int, ...] = (),
        bias: bool = True,
        dtype: Any = jnp.float32,
    ):
        """Make a layer.

        Args:
            space: the weight space of input and output.
            in_channels: channels of the input.
            out_channels: channels of the output.
            key: draws the coefficients.
            spatial: names of spatial axes that `space` permutes, to be fixed here. Axes
                that are fixed in `space` already need not be named.
            bias: whether to add a bias per leaf and channel.
            dtype: of coefficients and bias.
        """
        fixed = space.fix(*spatial) if spatial else space
        self.linear = UNFLinear(fixed, in_channels, out_channels, key=key, bias=bias, dtype=dtype)

    def __call__(self, x: PyTree) -> PyTree:
        """Apply to features: a tree like the weights, each leaf with a trailing channel axis."""
        return self.linear(x)

    @property
    def num_parameters(self) -> int:
        """Coefficients of all terms, and biases."""
        return self.linear.num_parameters
