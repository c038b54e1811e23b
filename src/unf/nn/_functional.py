"""Running a plan: reduce, mix, embed, as a plain function of coefficients and features.

    X_f = reductions of the input,  Y_t = Σ_f X_f K_ft per core,  output = Σ_t embedding of Y_t

This is eq. 30 summed over all pairs of leaves. Each reduction is computed once, each core is one
matrix product, and the output is the only array of its size.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, PyTree

from ..basis import Plan
from ..basis._plan import Core, Stack, views_used
from ..basis._views import Step, View, constant_view
from ..spec import SpecError, WeightSpace
from ._sharding import fold, unfold

Coefficients = dict[str, Float[Array, "rows columns"]]


def apply(
    plan: Plan,
    coefficients: Mapping[str, Float[Array, "rows columns"]],
    x: PyTree,
    bias: Float[Array, "leaves channels"] | None = None,
    *,
    mesh: Mesh | None = None,
    axis: str | None = None,
) -> PyTree:
    """Apply the equivariant linear map that `coefficients` select.

    Args:
        plan: from `unf.basis.make_plan`.
        coefficients: for each core, a matrix with a row for each matching, feature, block,
            fixed index and input channel, and a column for each target, block, fixed index
            and output channel (`coefficient_shapes`).
        x: features in the plan's input space, one trailing channel axis.
        bias: what to add to the channels of each output leaf.
        mesh: devices across which inputs and outputs are sharded as in `leaf_shardings`. No
            device then holds more of a leaf than its shard, however `x` was sharded.
        axis: the mesh axis to shard leaves along; by default all of its axes together.

    Returns:
        Features in the plan's output space.

    Raises:
        SpecError: if `x` or the coefficients do not fit the plan.
    """
    leaves = plan.in_space.flatten(x, channels=True)
    in_channels = _common_channels(plan.in_space, leaves)
    _check_coefficients(plan, coefficients, in_channels)
    out = _apply(plan, mesh, axis, dict(coefficients), leaves, bias)
    return plan.out_space.unflatten(out)


@partial(jax.jit, static_argnums=(0, 1, 2), inline=True)
def _apply(
    plan: Plan,
    mesh: Mesh | None,
    axis: str | None,
    coefficients: Coefficients,
    leaves: list[Array],
    bias: Array | None,
) -> list[Array]:
    """Reduce, mix, embed: compiled as one function, or inlined into one that is being traced."""
    features = _reduce(plan, fold(plan.in_space, leaves, mesh, axis))
    contributions = mix(plan, coefficients, features)
    blocks = embed(plan, contributions, bias)
    return unfold(plan.out_space, blocks, mesh, axis)


def coefficient_shapes(
    plan: Plan, in_channels: int, out_channels: int
) -> dict[str, tuple[int, int]]:
    """The shape of each core's matrix."""
    return {core.name: plan.matrix_shape(core, in_channels, out_channels) for core in plan.cores}


def _check_coefficients(plan: Plan, coefficients: Mapping[str, Any], in_channels: int) -> None:
    """Check the names and shapes of the matrices."""
    cores = {core.name for core in plan.cores}
    if set(coefficients) != cores:
        raise SpecError(
            "the coefficients belong to another plan",
            expected=sorted(cores),
            got=sorted(coefficients),
        )
    out_channels = 0
    for name, (rows, columns) in coefficient_shapes(plan, in_channels, 1).items():
        got = tuple(coefficients[name].shape)
        made_for, rest = divmod(got[0] * in_channels, rows)
        if not rest and made_for != in_channels:
            raise SpecError(
                "features with the wrong number of channels",
                expected=f"{made_for}, which the layer was made for",
                got=in_channels,
                remedy=f"make the layer with in_channels={in_channels}, or stack {made_for} trees: "
                "unf.nn.stack_channels(weights, gradients, ...)",
            )
        out_channels = out_channels or got[1] // columns
        if got != (rows, columns * out_channels):
            raise SpecError(
                f"coefficients of the wrong shape for core {name!r}",
                expected=f"{rows} rows for {in_channels} input channels, a multiple of {columns} "
                "columns, the same for all cores",
                got=got,
                remedy="make them with unf.nn.init_coefficients",
            )


def _common_channels(space: WeightSpace, leaves: Sequence[Any]) -> int:
    channels = [leaf.shape[-1] for leaf in leaves]
    for leaf, found in zip(space.leaves, channels, strict=True):
        if found != channels[0]:
            raise SpecError(
                "leaves with different numbers of channels",
                path=leaf.path,
                expected=f"{channels[0]} channels, as at {space.leaves[0].path!r}",
                got=f"{found} channels",
            )
    return channels[0]


# --- reduce --------------------------------------------------------------------------------


def _reduce(plan: Plan, blocks: Sequence[Array]) -> dict[tuple[int, View], Array]:
    """Compute every feature of every stack."""
    features = {}
    for index, views in views_used(plan, "in").items():
        stack = plan.in_stacks[index]
        reduced = reduce_stack(stack, views, gather_stack(stack, blocks))
        features.update({(index, view): reduced[view] for view in views})
    return features


def reduce_stack(stack: Stack, views: set[View], whole: Array) -> dict[View, Array]:
    """Compute these views of a stack, and others on the way, each from the cheapest finer one."""
    arrays = {whole_view(stack): whole}
    for view, step in stack.steps(views):
        arrays[view] = _read(stack, step, arrays[step.source])
    return arrays


def whole_view(stack: Stack) -> View:
    """The view that is the tensor itself."""
    return View(tuple((i,) for i in range(len(stack.labels))), ())


def gather_stack(stack: Stack, blocks: Mapping[int, Array] | Sequence[Array]) -> Array:
    """Concatenate the stack's blocks along channels."""
    parts = []
    for block, order, _ in stack.members:
        parts.append(transpose(blocks[block], [order[i] for i in stack.axis_order]))
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1)


def transpose(array: Array, order: Sequence[int]) -> Array:
    """Transpose all axes but the channels."""
    if list(order) == list(range(len(order))):
        return array
    return jnp.transpose(array, (*order, len(order)))


def _read(stack: Stack, step: Step, source: Array) -> Array:
    axes = stack.axes(step.source)
    if step.mean is not None:
        return jnp.mean(source, axis=axes.index(step.mean))
    assert step.diagonal is not None
    return _take_diagonal(source, *sorted(axes.index(group) for group in step.diagonal))


# --- mix -----------------------------------------------------------------------------------


def mix(
    plan: Plan,
    coefficients: Mapping[str, Array],
    features: Mapping[tuple[int, View], Array],
    mixed_before: Mapping[tuple[int, View], Array] = MappingProxyType({}),
) -> dict[tuple[int, View], Array]:
    """Multiply once per core, and split the columns into targets.

    Features that were mixed before have a channel for each matching and column.
    """
    contributions = {}
    for core in plan.cores:
        matrix = masked(plan, core, coefficients[core.name])
        stacks = [plan.out_stacks[target.stack] for target in core.targets]
        out_channels = matrix.shape[1] // sum(stack.width for stack in stacks)
        held = plan.axis_order(core)
        mixed = _mix_core(plan, core, held, matrix, features, mixed_before)
        start = 0
        for target, stack in zip(core.targets, stacks, strict=True):
            stop = start + stack.width * out_channels
            part = jax.lax.slice_in_dim(mixed, start, stop, axis=-1)
            positions = [target.view.kept.index(group) for group in stack.axes(target.view)]
            contributions[target.stack, target.view] = transpose(
                part, [held.index(position) for position in positions]
            )
            start = stop
    return contributions


def _mix_core(
    plan: Plan,
    core: Core,
    held: tuple[int, ...],
    matrix: Array,
    features: Mapping[tuple[int, View], Array],
    mixed_before: Mapping[tuple[int, View], Array],
) -> Array:
    """Multiply the core's features by its matrix; axes are in the order `held`."""
    arrays, before, rows, row = [], [], [], 0
    channels = matrix.shape[0] // plan.matrix_shape(core, 1, 1)[0]
    for feature in core.features:
        stack = plan.in_stacks[feature.stack]
        axes = stack.axes(feature.view)
        order = [axes.index(feature.view.kept[i]) for i in held]
        port, start = (feature.stack, feature.view), row
        row += channels * stack.width
        if port in mixed_before:
            before.append(transpose(mixed_before[port], order))
        else:
            arrays.append(transpose(features[port], order))
            rows.append(slice(start, row))
    orders = [[held.index(matching[i]) for i in held] for matching in core.matchings]
    done = [
        transpose(part, order)
        for array in before
        for part, order in zip(jnp.split(array, len(orders), axis=-1), orders, strict=True)
    ]
    if arrays:
        joined = arrays[0] if len(arrays) == 1 else jnp.concatenate(arrays, axis=-1)
        if before:
            parts = matrix.reshape(len(orders), -1, matrix.shape[1])
            parts = jnp.concatenate([parts[:, part] for part in rows], axis=1)
            matrix = parts.reshape(-1, matrix.shape[1])
        done.append(_multiply(joined, matrix, orders))
    return sum(done[1:], start=done[0])


def _multiply(joined: Array, matrix: Array, orders: list[list[int]]) -> Array:
    """Multiply features, with their axes in each of the orders, by the rows of that order."""
    rows, columns = joined.shape[-1], matrix.shape[1]
    if len(orders) == 1:
        return joined @ matrix
    matrices = matrix.reshape(len(orders), rows, columns)
    if jax.default_backend() == "cpu":  # wide arrays cost more than more products
        mixed = [transpose(joined, order) @ matrices[i] for i, order in enumerate(orders)]
        return sum(mixed[1:], start=mixed[0])
    if rows < columns:  # one product; transpose whichever side is smaller
        turned = [transpose(joined, order) for order in orders]
        return jnp.concatenate(turned, axis=-1) @ matrix
    side_by_side = jnp.moveaxis(matrices, 0, 1).reshape(rows, -1)
    mixed = jnp.split(joined @ side_by_side, len(orders), axis=-1)
    turned = [transpose(part, order) for part, order in zip(mixed, orders, strict=True)]
    return sum(turned[1:], start=turned[0])


def masked(plan: Plan, core: Core, matrix: Array) -> Array:
    """A core's matrix, with zeros where there are no terms."""
    if core.allowed is None:
        return matrix
    return matrix * jnp.asarray(_mask(plan, core, matrix.shape), matrix.dtype)


def _mask(plan: Plan, core: Core, shape: tuple[int, ...]) -> np.ndarray:
    """A mask of the entries of a core's matrix that are terms."""
    allowed = np.array(core.allowed)
    in_widths, out_widths = plan.widths(core)
    in_channels = shape[0] // (len(core.matchings) * in_widths.sum())
    out_channels = shape[1] // out_widths.sum()
    mask = np.repeat(allowed, in_widths * in_channels, axis=1)
    return np.repeat(mask, out_widths * out_channels, axis=2).reshape(shape)


# --- embed ---------------------------------------------------------------------------------


def embed(
    plan: Plan, contributions: Mapping[tuple[int, View], Array], bias: Array | None
) -> list[Array]:
    """Add up all targets, coarse ones into finer ones, to the blocks of the output."""
    blocks: dict[int, Array] = {}
    biases = None if bias is None else _stack_biases(plan, bias)
    for index, views in views_used(plan, "out").items():
        stack = plan.out_stacks[index]
        arrays = {v: contributions[index, v] for v in views if (index, v) in contributions}
        if biases is not None:
            _add(arrays, constant_view(stack.labels), biases[index])
        for view, step in reversed(stack.steps(views)):
            if view in arrays:
                _add(arrays, step.source, _write(stack, step, arrays[view]))
        blocks.update(_scatter(stack, arrays[whole_view(stack)]))
    return [block for _, block in sorted(blocks.items())]


def _add(arrays: dict[View, Array], view: View, value: Array) -> None:
    arrays[view] = arrays[view] + value if view in arrays else value


def _write(stack: Stack, step: Step, coarse: Array) -> Array:
    """The transpose of `_read`, up to the mean's scale: broadcast, or place on a diagonal."""
    axes = stack.axes(step.source)
    if step.mean is not None:
        axis = axes.index(step.mean)
        size = stack.labels[step.mean[0]].size
        shape = (*coarse.shape[:axis], size, *coarse.shape[axis:])
        return jnp.broadcast_to(jnp.expand_dims(coarse, axis), shape)
    assert step.diagonal is not None
    return _place_diagonal(coarse, *sorted(axes.index(group) for group in step.diagonal))


def _stack_biases(plan: Plan, bias: Array) -> list[Array]:
    """For each stack, the bias of its channels."""
    leaves = [
        np.repeat([plan.out_space.blocks[i].leaf for i in stack.blocks], stack.widths)
        for stack in plan.out_stacks
    ]
    cuts = np.cumsum([len(part) for part in leaves])[:-1]
    # Gradients are added up in float32: GPUs cannot do so in bfloat16 but entry by entry.
    wide = bias.astype(jnp.promote_types(bias.dtype, jnp.float32))
    rows = wide[np.concatenate(leaves)].astype(bias.dtype)
    return [part.reshape(-1) for part in jnp.split(rows, cuts)]


def _scatter(stack: Stack, whole: Array) -> dict[int, Array]:
    """The inverse of `gather_stack`."""
    blocks, start, channels = {}, 0, whole.shape[-1] // stack.width
    for block, order, width in stack.members:
        stop = start + width * channels
        part = jax.lax.slice_in_dim(whole, start, stop, axis=-1)
        held = [order[i] for i in stack.axis_order]
        blocks[block] = transpose(part, [held.index(i) for i in range(len(held))])
        start = stop
    return blocks


# --- diagonals -----------------------------------------------------------------------------
#
# There are two ways to read a diagonal and two ways to write one. Values are computed the first
# way and tangents the second way: the result is the same, and the transpose of the second way,
# which computes gradients, is the first way of the opposite operation. Without this, a gradient
# would read or store arrays of full size.


def _with_tangent(value: Callable, tangent: Callable) -> Callable:
    """The linear function `value`, differentiated as `tangent`, another way to compute it."""
    function = jax.custom_jvp(value, nondiff_argnums=(1, 2))
    function.defjvp(lambda i, j, x, t: (value(x[0], i, j), tangent(t[0], i, j)))
    return function


def _strided_diagonal(square: Array, first: int, second: int) -> Array:
    """x[i] = square[i, i]: every (size + 1)-th entry of the two axes flattened."""
    size = square.shape[first]
    adjacent = jnp.moveaxis(square, second, first + 1)
    flat = adjacent.reshape(*adjacent.shape[:first], size * size, *adjacent.shape[first + 2 :])
    return jax.lax.slice_in_dim(flat, 0, size * size, stride=size + 1, axis=first)


def _masked_diagonal(square: Array, first: int, second: int) -> Array:
    return jnp.sum(_where_equal(square, first, second), axis=second)


def _masked_square(line: Array, first: int, second: int) -> Array:
    """square[i, j] = x[i] if i = j, else 0: a comparison, computed where the result is used."""
    shape = (*line.shape[:second], line.shape[first], *line.shape[second:])
    return _where_equal(jnp.broadcast_to(jnp.expand_dims(line, second), shape), first, second)


def _padded_square(line: Array, first: int, second: int) -> Array:
    size = line.shape[first]
    padding = [(0, 0, size if axis == first else 0) for axis in range(line.ndim)]
    flat = jax.lax.pad(line, jnp.zeros((), line.dtype), padding)
    square = flat.reshape(*flat.shape[:first], size, size, *flat.shape[first + 1 :])
    return jnp.moveaxis(square, first + 1, second)


def _where_equal(square: Array, first: int, second: int) -> Array:
    rows, columns = (
        jax.lax.broadcasted_iota(jnp.int32, square.shape, axis) for axis in (first, second)
    )
    return jnp.where(rows == columns, square, jnp.zeros((), square.dtype))


_take_diagonal = _with_tangent(_strided_diagonal, _masked_diagonal)
_place_diagonal = _with_tangent(_masked_square, _padded_square)
