"""The steps of all tensors: small ones together, large ones slab by slab.

The features of an entry are many times larger than its weight. Those of small tensors are computed
at once, which is faster. Of a large tensor, only the features of a slab exist at any time: one pass
reads weights, gradients and momenta, writes new momenta, and does with the features what f's last
layer needs.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil, log, prod
from types import MappingProxyType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from ..nn import Pointwise
from ..nn._linear import UNFLinear
from ..nn._slabs import (
    Part,
    Slabs,
    apply_to_parts,
    columns_of,
    gather,
    make_slabs,
    parts_from,
    take_diagonal,
)
from . import _kernel as kernel
from ._entries import (
    Entries,
    Whole,
    accumulate,
    describe,
    features,
    mean_squares,
    step_of,
    whole_from_squares,
)
from ._polar import matrix_axes, polar_factors
from ._rounding import as_bits, from_bits, is_rounded
from ._theta import Theta

TOGETHER = 2**20
"""The smallest tensors are updated together, with at most so many entries."""
SMALL = 2**11
"""Kernels update larger tensors one by one, which read and write much less memory; smaller ones
take less time together (measured on an H200)."""
SLAB = {"cpu": 2**13}
"""About how many entries a slab has on each backend: few on CPUs, so that it stays in caches."""
_SLAB = 2**18
_NEAR = 8
"""By which factor slabs may be longer or shorter than wanted, so that all are alike."""

Update = tuple[list[Array], list[Entries]]


def update_tensors(
    theta: Theta,
    step: Int[Array, ""],
    tensors: Sequence[Entries],
    units: Sequence[Any],
    factor: Array,
    *,
    sharded: Sequence[int | None],
    kernels: bool,
) -> Update:
    """The step of each tensor times a factor, and its next momenta and squares.

    Args:
        theta: the coefficients.
        step: the number of updates before this one.
        tensors: weights, gradients, and the momenta and squares so far.
        units: for adaptive steps, the units of weights; else None for each.
        factor: −αₜ, or that times something else.
        sharded: for each tensor, the axis along which it is sharded; slabs are cut along others.
        kernels: whether to use kernels where they are supported.
    """
    kernels = kernels and all(axis is None for axis in sharded)
    run = plain = partial(_update, sharded=sharded, kernels=False)
    if kernels and kernel.is_available() and kernel.supports(theta, tensors):
        run = _with_derivatives_of(plain, partial(_update, sharded=sharded, kernels=True))
    elif jax.default_backend() == "cpu" and any(is_rounded(x.momenta) for x in tensors):
        run = _with_derivatives_of(plain, partial(_update_in_bits, plain))
    return run(theta, step, list(tensors), list(units), factor)


def _with_derivatives_of(plain: Callable, fast: Callable) -> Callable:
    """The function `fast`, which has no derivatives, with those of `plain`."""
    made = jax.custom_jvp(fast)
    made.defjvp(lambda primals, tangents: jax.jvp(plain, primals, tangents))
    return made


def _update_in_bits(
    update: Callable,
    theta: Theta,
    step: Int[Array, ""],
    tensors: list[Entries],
    units: list,
    factor: Array,
) -> Update:
    """An update of momenta in bfloat16 that reads and writes their bits, as integers.

    To slice bfloat16, XLA converts it to float32 on CPUs: all momenta, for each slab of them.
    """
    tensors = [x._replace(momenta=as_bits(x.momenta)) for x in tensors]
    steps, new = update(theta, step, tensors, units, factor)
    return steps, [x._replace(momenta=from_bits(x.momenta)) for x in new]


def _update(
    theta: Theta,
    step: Int[Array, ""],
    tensors: list[Entries],
    units: list,
    factor: Array,
    *,
    sharded: Sequence[int | None],
    kernels: bool,
) -> Update:
    head = theta.head
    tensors = _with_polar_factors(theta, step, tensors)
    large = _large([x.weights.size for x in tensors], SMALL if kernels else TOGETHER)
    context = _Context(theta, step, factor, sharded, kernels)
    if head is None or not large:
        return _update_whole(context, tensors, units)
    if isinstance(head, eqx.nn.Linear):
        return _update_pointwise(context, tensors, units, large)
    assert isinstance(head, UNFLinear)
    return _update_equivariant(context, tensors, units, make_slabs(head.plan, large))


class _Context(NamedTuple):
    """What all tensors have in common: see `update_tensors`."""

    theta: Theta
    step: Int[Array, ""]
    factor: Array
    sharded: Sequence[int | None]
    kernels: bool


def _large(sizes: Sequence[int], most: int) -> frozenset[int]:
    """All tensors but the smallest ones, each with at most so many entries."""
    order = np.argsort(sizes, kind="stable")
    ordered = np.array(sizes)[order]
    return frozenset(order[(np.cumsum(ordered) > TOGETHER) | (ordered > most)].tolist())


def _update_whole(context: _Context, tensors: Sequence[Entries], units: Sequence[Any]) -> Update:
    """With the features of all tensors at once."""
    theta = context.theta
    tensors, wholes = _describe(context, tensors, units)
    outputs: list[Any] = [None] * len(tensors)
    if theta.head is not None:
        hidden = _hidden_together(context, tensors, wholes)
        head = _cast(theta.head, hidden[0].dtype)
        if isinstance(head, eqx.nn.Linear):
            outputs = _split_like(Pointwise(head)(_flat(hidden)), hidden)
        else:
            assert theta.space is not None and isinstance(head, UNFLinear)
            outputs = jax.tree.leaves(head(theta.space.unflatten(hidden)))
        outputs = [y.reshape(x.weights.shape) for x, y in zip(tensors, outputs, strict=True)]
    return _steps(context, tensors, wholes, outputs), tensors


def _update_pointwise(
    context: _Context, tensors: Sequence[Entries], units: Sequence[Any], large: frozenset[int]
) -> Update:
    """With a pointwise head: a slab has all that its steps need."""
    theta, step, factor, sharded, kernels = context
    small = [i for i in range(len(tensors)) if i not in large]
    steps, new = dict[int, Array](), dict[int, Entries]()
    if small:
        chosen = [tensors[i] for i in small], [units[i] for i in small]
        found = _update_whole(context, *chosen)
        steps, new = (
            dict(zip(small, found[0], strict=True)),
            dict(zip(small, found[1], strict=True)),
        )

    def at_entries(whole: Whole, x: Entries) -> tuple[Entries, list[Array]]:
        x = accumulate(theta, step, x)
        hidden = theta.hidden(features(theta, step, x, whole), step)
        output = Pointwise(_cast(theta.head, hidden.dtype))(hidden)[..., 0]
        return x, [step_of(theta, step, x, whole, output, factor)]

    for i in sorted(large):
        cut = _cut(_axes_of(tensors[i], sharded[i]), tensors[i].weights.shape)
        whole = _describe_one(context, tensors[i], units[i], cut)
        if kernels:
            new[i], steps[i] = kernel.steps(theta, step, tensors[i], whole, factor)
        else:
            body = partial(at_entries, whole)
            new[i], (steps[i],) = _in_slabs(body, tensors[i], cut, [cut.axis])
    return [steps[i] for i in range(len(tensors))], [new[i] for i in range(len(tensors))]


def _update_equivariant(
    context: _Context, tensors: Sequence[Entries], units: Sequence[Any], slabs: Slabs
) -> Update:
    """With an equivariant head: slabs are gathered for it, and steps follow in a second pass."""
    theta, step, _, sharded, kernels = context
    head, new, wholes = theta.head, dict[int, Entries](), dict[int, Whole]()
    assert isinstance(head, UNFLinear)
    gathered, diagonals = dict[Part, Array](), {}

    def at_entries(leaf: int, whole: Whole, x: Entries) -> tuple[Entries, list[Array]]:
        x = accumulate(theta, step, x)
        hidden = theta.hidden(features(theta, step, x, whole), step)
        return x, gather(slabs, head.coefficients, leaf, hidden)

    for i in slabs.leaves:
        axes = [pair for pair in slabs.cuts(i) if pair[0] != sharded[i]]
        cut, parts = _cut(axes, tensors[i].weights.shape), slabs.parts[i]
        wholes[i] = _describe_one(context, tensors[i], units[i], cut)
        windows = _windows(slabs, i) if kernels else None
        if windows is None:
            places = [slabs.axis(i, part, cut.axis) if cut.is_cut else None for part in parts]
            before = {n: gathered[part] for n, part in enumerate(parts) if part in gathered}
            body = partial(at_entries, i, wholes[i])
            new[i], arrays = _in_slabs(body, tensors[i], cut, places, before)
            gathered |= dict(zip(parts, arrays, strict=True))
        else:
            new[i], found = _gather_blocks(context, slabs, tensors[i], wholes[i], windows)
            for part, array in found:
                gathered[part] = gathered[part] + array if part in gathered else array
        for block, diagonal in slabs.diagonals(i):
            x = _on_diagonal(partial(take_diagonal, slabs, block, diagonal), new[i])
            hidden = theta.hidden(features(theta, step, x, wholes[i]), step)
            diagonals[block, diagonal] = hidden
    others, others_hidden = [i for i in range(len(tensors)) if i not in new], []
    if others:
        chosen = [tensors[i] for i in others], [units[i] for i in others]
        small, small_wholes = _describe(context, *chosen)
        others_hidden = _hidden_together(context, small, small_wholes)
        new |= dict(zip(others, small, strict=True))
        wholes |= dict(zip(others, small_wholes, strict=True))
    found = gathered, diagonals, dict(zip(others, others_hidden, strict=True))
    outputs = apply_to_parts(slabs, head.coefficients, head.bias, *found)
    in_order = [new[i] for i in range(len(tensors))]
    each = [wholes[i] for i in range(len(tensors))]
    return _steps(context, in_order, each, [y[..., 0] for y in outputs]), in_order


def _gather_blocks(
    context: _Context, slabs: Slabs, x: Entries, whole: Whole, windows: Mapping[int, kernel.Window]
) -> tuple[Entries, list[tuple[Part, Array]]]:
    """The next entries of a leaf, and what is gathered of it, block by block."""
    found, head = [], context.theta.head
    assert isinstance(head, UNFLinear)
    for block, window in windows.items():
        columns = columns_of(slabs, head.coefficients, block)
        args = context.theta, context.step, x, whole, window, jnp.concatenate(columns, axis=1)
        x, (mixed, *means) = kernel.gather(*args)
        by_axis = dict(zip((window.row, window.column), means, strict=True))
        widths = [matrix.shape[1] for matrix in columns]
        found += parts_from(slabs, block, mixed, by_axis, widths).items()
    return x, found


def _with_polar_factors(
    theta: Theta, step: Int[Array, ""], tensors: Sequence[Entries]
) -> list[Entries]:
    """The tensors, with the polar factors of the next momenta of matrices for adaptive steps."""
    tensors = list(tensors)
    if not theta.form.is_adaptive or theta.space is None:
        return tensors
    axes = {i: matrix_axes(roles) for i, roles in enumerate(theta.space.roles.values())}
    known = {i: each for i, each in axes.items() if each is not None}
    nominal = [accumulate(theta, step, Entries(*tensors[i][:3])).nominal for i in known]
    factors = polar_factors(nominal, list(known.values()))
    for i, factor in zip(known, factors, strict=True):
        tensors[i] = tensors[i]._replace(polar=factor)
    return tensors


def _describe(
    context: _Context, tensors: Sequence[Entries], units: Sequence[Any]
) -> tuple[list[Entries], list[Whole]]:
    """Each tensor after this update's gradient, and what every entry knows of it."""
    new = [accumulate(context.theta, context.step, x) for x in tensors]
    return new, describe(context.theta, context.step, new, units)


def _describe_one(context: _Context, x: Entries, unit: Any, cut: "_Cut") -> Whole:
    """What every entry of a large tensor knows of it."""
    theta, step = context.theta, context.step
    if context.kernels:
        return kernel.describe(theta, step, x, unit)
    squares = _mean_over_slabs(
        lambda x: mean_squares(theta, step, [accumulate(theta, step, x)])[0], x, cut
    )
    return whole_from_squares(theta, squares, x, unit)


def _hidden_together(
    context: _Context, tensors: Sequence[Entries], wholes: Sequence[Whole]
) -> list[Array]:
    """What the trunk computes at the entries of several tensors, at once."""
    theta, step = context.theta, context.step
    pairs = zip(tensors, wholes, strict=True)
    found = [features(theta, step, x, whole) for x, whole in pairs]
    together = kernel.hidden if context.kernels else Theta.hidden
    return _split_like(together(theta, _flat(found), step), found)


def _flat(arrays: Sequence[Array]) -> Array:
    """Entries of several tensors, one after another, with their channels."""
    dtype = jnp.result_type(*arrays)
    return jnp.concatenate([x.reshape(-1, x.shape[-1]).astype(dtype) for x in arrays])


def _split_like(flat: Array, arrays: Sequence[Array]) -> list[Array]:
    shapes = [x.shape[:-1] for x in arrays]
    parts = jnp.split(flat, np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1])
    return [part.reshape(*shape, -1) for part, shape in zip(parts, shapes, strict=True)]


def _steps(context: _Context, tensors: Any, wholes: Any, outputs: Any) -> list[Array]:
    theta, step, factor = context.theta, context.step, context.factor
    each = zip(tensors, wholes, outputs, strict=True)
    return [step_of(theta, step, x, whole, output, factor) for x, whole, output in each]


def _cast(module: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda p: p.astype(dtype) if eqx.is_array(p) else p, module)


def _windows(slabs: Slabs, leaf: int) -> dict[int, kernel.Window] | None:
    """The blocks of a leaf as a kernel reads them; None if it cannot."""
    space, found = slabs.plan.in_space, {}
    windows = space.layouts[leaf].windows(space.leaves[leaf].shape)
    for b, (offset, strides) in zip(slabs.blocks_of(leaf), windows, strict=True):
        axes, block = slabs.large_axes(b), space.blocks[b]
        if block.fixed or len(axes) < 2:
            return None
        sizes = tuple(label.size for label in block.labels)
        found[b] = kernel.Window(offset, sizes, strides, *axes)
    return found if all(window.is_supported for window in found.values()) else None


def _on_diagonal(take: Callable[[Array], Array], x: Entries) -> Entries:
    taken = {
        name: take(value) if name == "momenta" else take(value[..., None])[..., 0]
        for name, value in x._asdict().items()
        if value is not None
    }
    return x._replace(**taken)


# --- slabs ---------------------------------------------------------------------------------


class _Cut(NamedTuple):
    """How a tensor is cut into slabs: `length` indices at a time of the first factor of an axis."""

    axis: int
    size: int
    length: int

    @property
    def is_cut(self) -> bool:
        return self.length < self.size


def _axes_of(x: Entries, sharded: int | None) -> list[tuple[int, int]]:
    return [(i, n) for i, n in enumerate(x.weights.shape) if i != sharded]


def _cut(axes: Sequence[tuple[int, int]], shape: tuple[int, ...]) -> _Cut:
    """Slabs of about the wanted size, all alike if possible, along the largest axis if possible."""
    wanted = SLAB.get(jax.default_backend(), _SLAB)
    found = []
    for axis, size in axes:
        length = max(1.0, min(size, wanted * size / prod(shape)))
        near = range(max(1, ceil(length / _NEAR)), min(size, int(length * _NEAR)) + 1)
        divisors = [n for n in near if size % n == 0]
        best = min(divisors, key=lambda n, length=length: abs(log(n / length)), default=None)
        found.append((best is not None, size, -axis, best or int(length)))
    _, size, axis, length = max(found, default=(True, 1, 0, 1))
    return _Cut(-axis, size, length)


def _slab_of(arrays: PyTree, cut: _Cut, unit: int, start: Any, length: int) -> PyTree:
    take = partial(jax.lax.dynamic_slice_in_dim, start_index=start * unit, axis=cut.axis)
    return jax.tree.map(lambda array: take(array, slice_size=length * unit), arrays)


def _mean_over_slabs(function: Callable[[Entries], Any], x: Entries, cut: _Cut) -> Any:
    """The mean of a function over all slabs of a tensor, each with the weight of its entries."""
    if not cut.is_cut:
        return function(x)
    unit = x.weights.shape[cut.axis] // cut.size
    count, rest = divmod(cut.size, cut.length)

    def weighted(start: Any, length: int) -> Any:
        found = function(_slab_of(x, cut, unit, start, length))
        return jax.tree.map(lambda mean: mean * (length / cut.size), found)

    def add(i: Array, total: Any) -> Any:
        return jax.tree.map(jnp.add, total, weighted(i * cut.length, cut.length))

    total = jax.lax.fori_loop(1, count, add, weighted(0, cut.length))
    if rest:
        total = jax.tree.map(jnp.add, total, weighted(count * cut.length, rest))
    return total


def _in_slabs(
    body: Callable[[Entries], tuple[Entries, list[Array]]],
    x: Entries,
    cut: _Cut,
    places: Sequence[int | None],
    initial: Mapping[int, Array] = MappingProxyType({}),
) -> tuple[Entries, list[Array]]:
    """Apply `body` to each slab of a tensor, which gives new entries and other arrays.

    New momenta and squares replace the old ones in place. Other arrays follow each other along the
    axes `places`; or, where these are None, their mean over all slabs is found. They are added to
    `initial`, where it has an array.
    """
    if not cut.is_cut:
        new, arrays = body(x)
        return new, [a + initial[i] if i in initial else a for i, a in enumerate(arrays)]
    unit = x.weights.shape[cut.axis] // cut.size
    read = {name: x._asdict()[name] for name in ("weights", "gradient", "polar")}
    kept = {name: x._asdict()[name] for name in ("nominal", "momenta", "squares")}
    added = {i: place for i, place in enumerate(places) if i in initial and place is not None}

    at = lambda start, length, arrays: _slab_of(arrays, cut, unit, start, length)  # noqa: E731

    def old(start: Any, length: int, kept: PyTree, found: list[Array]) -> PyTree:
        """What a slab reads of arrays that are replaced."""
        sums = []
        for i, place in added.items():
            per, take = found[i].shape[place] // cut.size, jax.lax.dynamic_slice_in_dim
            sums.append(take(found[i], start * per, length * per, place))
        return at(start, length, kept), sums

    def one(start: Any, length: int, before: PyTree, kept: PyTree, found: list[Array]) -> Any:
        slab, sums = before
        new, arrays = body(Entries(**at(start, length, read), **slab))
        put = jax.lax.dynamic_update_slice_in_dim
        kept = {
            name: None if old is None else put(old, new._asdict()[name], start * unit, cut.axis)
            for name, old in kept.items()
        }
        for i, before in zip(added, sums, strict=True):
            arrays[i] = arrays[i] + before
        for i, (array, place) in enumerate(zip(arrays, places, strict=True)):
            if place is None:
                found[i] = found[i] + array * (length / cut.size)
            else:
                found[i] = put(found[i], array, start * (array.shape[place] // length), place)
        return kept, found

    first = {**at(0, cut.length, read), **at(0, cut.length, kept)}
    found = []
    for i, array in enumerate(jax.eval_shape(lambda: body(Entries(**first)))[1]):
        shape, place = list(array.shape), places[i]
        if place is not None:
            shape[place] = shape[place] // cut.length * cut.size
        found.append(initial[i] if i in initial else jnp.zeros(shape, array.dtype))
    count, rest = divmod(cut.size, cut.length)

    def each(i: Array, carry: Any) -> Any:
        carry = one(i * cut.length, cut.length, *carry)
        return old((i + 1) * cut.length, cut.length, *carry), *carry

    # The loop carries what it reads of arrays that it replaces. So nothing else reads them, and
    # the compiler need not copy them.
    carry = (old(0, cut.length, kept, found), kept, found)
    _, *carry = jax.lax.fori_loop(0, count, each, carry)
    if rest:
        start = count * cut.length
        carry = one(start, rest, old(start, rest, *carry), *carry)
    kept, found = carry
    return x._replace(**kept), found
