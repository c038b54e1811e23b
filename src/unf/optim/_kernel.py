"""Passes over tensors as GPU kernels.

A program reads a tile of entries, writes their next momenta, and keeps their features in registers:
it ends with the steps, or with what an equivariant last layer reads of the features: means over
rows and columns, and products with its coefficients. Factors of products have the ten bits of half
precision, as many as those of TF32, in which XLA multiplies on GPUs by default.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ._entries import LARGEST_FEATURE, Entries, Whole, whole_from_squares
from ._rounding import round_momenta, salts
from ._theta import DECAYS, TINY, Theta, gain

INTERPRET = False
"""Whether to run kernels in JAX's interpreter, on any backend."""
WARPS = 4
LANES = 16
"""Matrix units multiply at least so many rows and columns."""
_TILE, _TILES = 128, 16
"""Entries of a tile, and tiles of a program."""
_COLUMNS, _ROWS_AT_ONCE = 64, 32
"""Most columns of a tile, and rows of a program, for means over rows and columns."""
_LEAST_CAPABILITY = 8.0
_LEAST = 16
"""Tensors with fewer rows or columns have no such tiles."""
_PROGRAMS = 2048
"""The most programs that add up squares."""
_DOWN = 1 / 64
"""Activations are multiplied by this, so that large ones are in the range of half precision too."""
_LARGEST = 60000.0
_zeros = partial(jnp.zeros, dtype=jnp.float32)  # also where JAX's default is double precision
_arange = partial(jnp.arange, dtype=jnp.int32)


def is_available() -> bool:
    """Whether kernels can be compiled here: on NVIDIA GPUs, from Ampere on."""
    if INTERPRET:
        return True
    if jax.default_backend() != "gpu":
        return False
    try:
        from jax.experimental.pallas import triton  # noqa: F401
    except ImportError:
        return False
    capability = str(getattr(jax.devices()[0], "compute_capability", ""))
    return capability.replace(".", "").isdigit() and float(capability) >= _LEAST_CAPABILITY


def supports(theta: Theta, tensors: Sequence[Entries]) -> bool:
    """Whether kernels can update these tensors: features are bounded, and all arrays are float32.

    Only momenta may be in bfloat16.
    """
    arrays = [each for x in tensors for each in x._asdict().items() if each[1] is not None]
    half = ("momenta", jnp.bfloat16)
    is_single = all(a.dtype == jnp.float32 or (name, a.dtype) == half for name, a in arrays)
    is_small = all(array.size < 2**31 for _, array in arrays)  # indices have 32 bits
    is_bounded = theta.form.is_adaptive or theta.form.normalize != "none"
    return theta.reads_momenta and is_single and is_small and is_bounded


@dataclass(frozen=True)
class Window:
    """A block of a leaf as tiles of rows and columns.

    Attributes:
        offset: where the block begins in the flat leaf.
        sizes: its axes.
        strides: how far entries along each axis are apart.
        row: the axis of rows.
        column: that of columns, whose entries are adjacent.
    """

    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    row: int
    column: int

    @property
    def is_supported(self) -> bool:
        """Whether the block has tiles."""
        least = min(self.sizes[self.row], self.sizes[self.column])
        return self.row < self.column and self.strides[self.column] == 1 and least >= _LEAST

    @property
    def batch(self) -> list[int]:
        """All other axes."""
        return [i for i in range(len(self.sizes)) if i not in (self.row, self.column)]


# --- what is called --------------------------------------------------------------------------
# Each is traced and lowered once for all tensors of a shape, which would take long one by one.


@eqx.filter_jit
def describe(theta: Theta, step: Int[Array, ""], x: Entries, unit: Any) -> Whole:
    """What every entry knows of its tensor, from all entries before `accumulate`."""
    size = x.weights.size
    programs = min(_PROGRAMS, -(-size // _TILE))
    loops = -(-size // (programs * _TILE))
    other = "squares" if theta.form.is_adaptive else "momenta"
    names, arrays = _flat(x, step, ("weights", "gradient", "nominal", other))
    task = _Task.of(theta, names, False)

    def run(*refs: Any) -> None:
        from jax.experimental import pallas as pl

        ins, numbers, _ = _refs(names, refs, 2)
        program = pl.program_id(0)

        def tile(i: Any, sums: tuple[Array, ...]) -> tuple[Array, ...]:
            place = (program * loops + i) * _TILE + _arange(_TILE)
            inside = place < size
            old = task.load(ins, place, inside)
            found = task.accumulate(old, {}, numbers, place, inside)
            if task.is_adaptive:
                root = _root(found, numbers, inside)
                channels = [jnp.where(inside, root, 0.0), found.nominal / root]
            else:
                momenta = task.momenta(ins, old, {}, found, place, inside)
                channels = [task.clipped(c) for c in (found.weights, found.gradient, momenta)]
            return tuple(s + x * x for s, x in zip(sums, channels, strict=True))

        zeros = [_zeros(_TILE)] * 2
        if not task.is_adaptive:
            zeros.append(_zeros((_TILE, LANES)))
        sums = jax.lax.fori_loop(0, loops, tile, tuple(zeros))
        out, lane = _zeros(LANES), _arange(LANES)
        if not task.is_adaptive:
            out = jnp.sum(sums[2], axis=0)
        out = jnp.where(lane == LANES - 2, jnp.sum(sums[0]), out)
        out = jnp.where(lane == LANES - 1, jnp.sum(sums[1]), out)
        refs[-1][program, :] = out

    operands = [*arrays, *_constants(theta, step, None)]
    shape = jax.ShapeDtypeStruct((programs, LANES), jnp.float32)
    (sums,) = _call(run, [shape], operands, programs, {})
    sums = jnp.sum(sums, axis=0) / size
    count = 0 if task.is_adaptive else len(DECAYS)
    return whole_from_squares(theta, jnp.concatenate([sums[-2:], sums[:count]]), x, unit)


@eqx.filter_jit
def steps(
    theta: Theta, step: Int[Array, ""], x: Entries, whole: Whole, factor: Array
) -> tuple[Entries, Array]:
    """The next entries of a tensor, and its steps times a factor, with a pointwise last layer."""
    head: Any = theta.head
    size, hidden = x.weights.size, padded_size(theta.trunk[-1].weight.shape[0])
    last = _padded(head.weight[0], (hidden,))
    bias = 0.0 if head.bias is None else head.bias[0]
    names, arrays = _flat(x, step, Entries._fields)
    task = _Task.of(theta, names, whole.is_matrix)

    def run(*refs: Any) -> None:
        from jax.experimental import pallas as pl

        ins, numbers, scales, *layers, last = _refs(names, refs, 9)
        outs = dict(zip(task.kept, refs[-1 - len(task.kept) :], strict=False))
        weights, scales = [layer[...] for layer in layers], scales[...]
        last, program = last[...], pl.program_id(0)

        def at(i: Any) -> tuple[Array, Array]:
            place = (program * _TILES + i) * _TILE + _arange(_TILE)
            return place, (place < size) & (i < _TILES)

        def tile(i: Any, old: Mapping) -> Mapping:
            (place, inside), following = at(i), task.load(ins, *at(i + 1))
            found = task.accumulate(old, outs, numbers, place, inside)
            x, n = task.features(ins, old, outs, found, numbers, scales, place, inside)
            output = jnp.sum(_trunk(x, weights) * last[None, :], axis=1) + numbers[2]
            if task.is_adaptive:
                value = numbers[3] * numbers[4] * gain(output) * n
            else:
                value = numbers[3] * (found.nominal + numbers[4] * output)
            _store(refs[-1], place, value, inside)
            return following

        jax.lax.fori_loop(0, _TILES, tile, task.load(ins, *at(0)))

    operands = [*arrays, *_constants(theta, step, whole, bias, factor)]
    operands += [*_layers(theta, step, hidden, _lane_order(theta)), last]
    programs = -(-size // (_TILE * _TILES))
    new, (out,) = _call_in_place(run, x, task, names, operands, programs, [size])
    return new, out.reshape(x.weights.shape)


@eqx.filter_jit
def gather(
    theta: Theta,
    step: Int[Array, ""],
    x: Entries,
    whole: Whole,
    window: Window,
    columns: Float[Array, "channels columns"],
) -> tuple[Entries, tuple[Array, Array, Array]]:
    """The next entries of a tensor at one of its blocks, and three arrays made of its features.

    Returns:
        The next entries; and features times `columns` at every entry, means over rows, and means
        over columns.
    """
    (channels, count), hidden = columns.shape, padded_size(columns.shape[0])
    last = _padded(columns, (hidden, padded_size(count)))
    names, arrays = _flat(x, step, Entries._fields)
    task = _Task.of(theta, names, whole.is_matrix)
    sizes, strides = window.sizes, window.strides
    rows, cols = sizes[window.row], sizes[window.column]
    wide = min(_COLUMNS, padded_size(cols))
    tall = _TILE // wide
    batch = prod(sizes[i] for i in window.batch)
    row_tiles, column_tiles = -(-rows // _ROWS_AT_ONCE), -(-cols // wide)
    dense = [prod(sizes[i + 1 :]) for i in range(len(sizes))]

    def run(*refs: Any) -> None:
        from jax.experimental import pallas as pl

        ins, numbers, scales, *layers, last = _refs(names, refs, 9)
        mixed, over_columns, over_rows = refs[-3:]
        outs = dict(zip(task.kept, refs[-3 - len(task.kept) :], strict=False))
        weights, scales = [layer[...] for layer in layers], scales[...]
        last, channel = last[...], _arange(hidden)
        program = pl.program_id(0)
        column_tile = program % column_tiles
        row_tile = program // column_tiles % row_tiles
        index = rest = program // (column_tiles * row_tiles)
        start, dense_start = window.offset, 0
        for axis in reversed(window.batch):
            i, rest = rest % sizes[axis], rest // sizes[axis]
            start, dense_start = start + i * strides[axis], dense_start + i * dense[axis]

        tiles = _ROWS_AT_ONCE // tall

        def at(i: Any) -> tuple[Array, Array, Array, Array]:
            entry = _arange(tall * wide)
            row = row_tile * _ROWS_AT_ONCE + i * tall + entry // wide
            column = column_tile * wide + entry % wide
            inside = (row < rows) & (column < cols) & (i < tiles)
            return start + row * strides[window.row] + column, inside, row, column

        def tile(i: Any, carry: tuple[Mapping, Array]) -> tuple[Mapping, Array]:
            old, sums = carry
            (place, inside, row, column), following = at(i), task.load(ins, *at(i + 1)[:2])
            found = task.accumulate(old, outs, numbers, place, inside)
            x, _ = task.features(ins, old, outs, found, numbers, scales, place, inside)
            h = _trunk(x, weights)
            y, lane = _product(h, last), _arange(last.shape[1])
            spot = dense_start + row * dense[window.row] + column * dense[window.column]
            mask = inside[:, None] & (lane < count)[None, :]
            _store(mixed, spot[:, None] * count + lane[None, :], y, mask)
            h = jnp.where(inside[:, None], h, 0.0).reshape(tall, wide, hidden)
            row = row_tile * _ROWS_AT_ONCE + i * tall + _arange(tall)
            spot = ((index * column_tiles + column_tile) * rows + row) * hidden
            mask = jnp.broadcast_to((row < rows)[:, None], (tall, hidden))
            _store(over_columns, spot[:, None] + channel[None, :], jnp.sum(h, axis=1), mask)
            return following, sums + jnp.sum(h, axis=0)

        first = task.load(ins, *at(0)[:2]), _zeros((wide, hidden))
        _, sums = jax.lax.fori_loop(0, tiles, tile, first)
        column = column_tile * wide + _arange(wide)
        spot = ((index * row_tiles + row_tile) * cols + column) * hidden
        mask = jnp.broadcast_to((column < cols)[:, None], sums.shape)
        _store(over_rows, spot[:, None] + channel[None, :], sums, mask)

    operands = [*arrays, *_constants(theta, step, whole)]
    operands += [*_layers(theta, step, hidden, _lane_order(theta)), last]
    lengths = [prod(sizes) * count, batch * column_tiles * rows * hidden]
    lengths.append(batch * row_tiles * cols * hidden)
    programs = batch * row_tiles * column_tiles
    new, found = _call_in_place(run, x, task, names, operands, programs, lengths)
    mixed, over_columns, over_rows = found

    def mean(partial_sums: Array, tiles: int, axis: int, size: int) -> Array:
        """Means over one axis of tiles, with the other one, `axis`, in its place."""
        found = partial_sums.reshape(batch, tiles, sizes[axis], hidden)
        found = jnp.sum(found, axis=1)[..., :channels] / size
        found = found.reshape(*(sizes[i] for i in window.batch), sizes[axis], channels)
        return jnp.moveaxis(found, len(window.batch), sum(i < axis for i in window.batch))

    over_rows = mean(over_rows, row_tiles, window.column, rows)
    over_columns = mean(over_columns, column_tiles, window.row, cols)
    return new, (mixed.reshape(*sizes, count), over_rows, over_columns)


def hidden(
    theta: Theta, features: Float[Array, "entries channels"], step: Int[Array, ""]
) -> Float[Array, "entries hidden"]:
    """What the trunk computes of features."""
    (size, channels), width = features.shape, theta.trunk[-1].weight.shape[0]
    lanes = padded_size(width)

    def run(features: Any, *refs: Any) -> None:
        from jax.experimental import pallas as pl

        weights, lane = [ref[...] for ref in refs[:-1]], _arange(LANES)
        place = pl.program_id(0) * _TILE + _arange(_TILE)
        mask = (place < size)[:, None] & (lane < channels)[None, :]
        x = load(features, place[:, None] * channels + lane[None, :], mask)
        lane = _arange(lanes)
        mask = (place < size)[:, None] & (lane < width)[None, :]
        _store(refs[-1], place[:, None] * width + lane[None, :], _trunk(x, weights), mask)

    shape = jax.ShapeDtypeStruct((size * width,), jnp.float32)
    operands = [features.reshape(-1), *_layers(theta, step, lanes)]
    (found,) = _call(run, [shape], operands, -(-size // _TILE), {})
    return found.reshape(size, width)


# --- operands --------------------------------------------------------------------------------


def _flat(x: Entries, step: Int[Array, ""], names: Sequence[str]) -> tuple[list[str], list[Array]]:
    """The arrays that there are, with their names, and "salts" if momenta are rounded."""
    found = [name for name in names if getattr(x, name) is not None]
    arrays = [getattr(x, name).reshape(-1) for name in found]
    if "momenta" in found and x.momenta.dtype == jnp.bfloat16:
        found.append("salts")
        arrays.append(jnp.pad(salts(step), (0, LANES - len(DECAYS))))
    return found, arrays


def _refs(names: Sequence[str], refs: Sequence[Any], others: int) -> list[Any]:
    """The arrays of a tensor by name, and the operands after them."""
    count = len(names)
    return [dict(zip(names, refs, strict=False)), *refs[count : count + others]]


def padded_size(channels: int) -> int:
    """The next power of two that matrix units can multiply."""
    return max(LANES, 1 << (channels - 1).bit_length())


def _padded(x: Any, shape: tuple[int, ...]) -> Array:
    """An array at the beginning of a larger one of zeros."""
    x = jnp.asarray(x, jnp.float32)
    return jnp.pad(x, [(0, n - m) for n, m in zip(shape, x.shape, strict=True)])


def _constants(
    theta: Theta, step: Int[Array, ""], whole: Whole | None, bias: Any = 0.0, factor: Any = 1.0
) -> tuple[Array, Array]:
    """Numbers that the tiles of a tensor read, and those that multiply each channel."""
    form, gamma = theta.form, theta.gamma
    numbers = [gamma, 1 - gamma if form.momentum == "mean" else 1.0, bias, factor]
    scales = jnp.ones(LANES, jnp.float32)
    if form.is_adaptive:
        squares = theta.gamma_squares
        share = 1 / (1 - squares ** (step + 1))
        root, size, unit, length = (1.0, 1.0, 1.0, 1.0) if whole is None else whole[1:5]
        numbers += [length, squares, share, 1 / unit, jnp.log(root)]
        numbers += [jnp.minimum(1, size), 1 / jnp.maximum(1, size)]
        decays = jnp.asarray(np.array(DECAYS), jnp.float32)
        unbiased = 1 / (1 - decays ** (step + 1).astype(jnp.float32))
        scales = scales.at[: len(DECAYS)].set(unbiased)
    else:
        numbers.append(theta.beta)
        if whole is not None and whole.scales is not None:
            scales = _padded((1 / whole.scales)[np.array(_lane_order(theta))], (LANES,))
    numbers = jnp.stack([jnp.asarray(number, jnp.float32) for number in numbers])
    return numbers, scales


def _layers(
    theta: Theta, step: Int[Array, ""], hidden: int, order: Sequence[int] | None = None
) -> list[Array]:
    """The trunk's weights and biases, with time in the first bias, padded with zeros."""
    first, *rest = jax.tree.map(lambda p: p.astype(jnp.float32), theta.trunk)
    on_entries, on_time = jnp.split(first.weight, [theta.form.channels], axis=1)
    now = on_time @ theta.form.time_features(step, jnp.dtype(jnp.float32)) + first.bias
    first_rows = on_entries.T if order is None else on_entries.T[np.array(order)]
    out = [_padded(first_rows, (LANES, hidden)), _padded(now, (hidden,))]
    for layer in rest:
        weight, bias = layer.weight.T, layer.bias
        out += [_padded(weight, (hidden, hidden)), _padded(bias, (hidden,))]
    return out


def _call_in_place(
    run: Callable,
    x: Entries,
    task: "_Task",
    names: Sequence[str],
    operands: Sequence[Array],
    programs: int,
    lengths: Sequence[int],
) -> tuple[Entries, Sequence[Array]]:
    """Entries whose momenta and squares a kernel replaced, and vectors that it made."""
    kept = [getattr(x, name) for name in task.kept]
    shapes = [jax.ShapeDtypeStruct((array.size,), array.dtype) for array in kept]
    shapes += [jax.ShapeDtypeStruct((length,), jnp.float32) for length in lengths]
    aliases = {names.index(name): i for i, name in enumerate(task.kept)}
    found = _call(run, shapes, operands, programs, aliases)
    pairs = zip(task.kept, found, strict=False)
    new = x._replace(**{name: a.reshape(getattr(x, name).shape) for name, a in pairs})
    return new, found[len(task.kept) :]


def _call(
    run: Callable, shapes: list[Any], operands: Sequence[Array], programs: int, aliases: dict
) -> Sequence[Array]:
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    return pl.pallas_call(
        run,
        out_shape=shapes,
        grid=(programs,),
        input_output_aliases=aliases,
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=2),
        interpret=INTERPRET,
        name="unf_update",
    )(*operands)


# --- in a program ----------------------------------------------------------------------------


class _Found(NamedTuple):
    """A tile's entries after `accumulate`."""

    weights: Array
    gradient: Array
    nominal: Array
    squares: Any


@dataclass(frozen=True)
class _Task:
    """What the programs of a kernel have in common: see `Form` and `Whole`.

    A tile of features has a lane for each channel: first the momenta, then the others.
    """

    kept: tuple[str, ...]
    is_adaptive: bool
    clips: bool
    is_mean: bool
    is_matrix: bool

    @classmethod
    def of(cls, theta: Theta, names: Sequence[str], is_matrix: bool) -> "_Task":
        """The task of updating a tensor with these arrays."""
        kept = tuple(name for name in ("nominal", "momenta", "squares") if name in names)
        form = theta.form
        clips, is_mean = form.normalize == "clip-rms", form.momentum == "mean"
        return cls(kept, form.is_adaptive, clips and not form.is_adaptive, is_mean, is_matrix)

    def load(self, ins: Mapping, place: Array, inside: Array) -> dict[str, Array]:
        """A tile's entries before this update.

        Loops load those of the next tile before they use these: else they would wait for memory.
        """
        found = {}
        for name, ref in ins.items():
            if name == "momenta":
                found[name] = load(ref, *self.spots(place, inside))
            elif name != "salts":
                found[name] = load(ref, place, inside)
        return found

    def spots(self, place: Array, inside: Array) -> tuple[Array, Array]:
        """Where the momenta of entries are, and which lanes of a tile have any."""
        lane = _arange(LANES)[None, :]
        return place[:, None] * len(DECAYS) + lane, (lane < len(DECAYS)) & inside[:, None]

    def accumulate(
        self, old: Mapping, outs: Mapping, numbers: Any, place: Array, inside: Array
    ) -> _Found:
        """The next nominal momenta and squares, stored where there is an output."""
        w, g, m = old["weights"], old["gradient"], old["nominal"]
        v: Any = None
        m = numbers[0] * m + numbers[1] * g
        if self.is_adaptive:
            v = numbers[5] * old["squares"] + (1 - numbers[5]) * g * g
        if outs:
            _store(outs["nominal"], place, m, inside)
            if self.is_adaptive:
                _store(outs["squares"], place, v, inside)
        return _Found(w, g, m, v)

    def momenta(
        self,
        ins: Mapping,
        old: Mapping,
        outs: Mapping,
        found: _Found,
        place: Array,
        inside: Array,
    ) -> Float[Array, "entries lanes"]:
        """The next momenta, stored where there is an output; zeros in other lanes."""
        lane = _arange(LANES)[None, :]
        decays, shares = _zeros((1, LANES)), _zeros((1, LANES))
        for i, decay in enumerate(DECAYS):
            share = float(1 - np.float32(decay))  # rounded as in `Form.accumulate`
            decays = jnp.where(lane == i, decay, decays)
            shares = jnp.where(lane == i, share if self.is_mean else 1.0, shares)
        before, gradient = old["momenta"], found.gradient[:, None]
        new = decays * before.astype(jnp.float32) + shares * gradient
        if "salts" in ins:
            new = round_momenta(new, before, gradient, ins["salts"][...][None, :])
        if outs:
            spot, mask = self.spots(place, inside)
            _store(outs["momenta"], spot, new, mask)
        return new.astype(jnp.float32)

    def clipped(self, x: Array) -> Array:
        """Values as they are, or clipped to [−1, 1]."""
        return jnp.clip(x, -1.0, 1.0) if self.clips else x

    def features(
        self,
        ins: Mapping,
        old: Mapping,
        outs: Mapping,
        found: _Found,
        numbers: Any,
        scales: Array,
        place: Array,
        inside: Array,
    ) -> tuple[Array, Any]:
        """What f reads of a tile's entries, and for adaptive steps their directions."""
        x, first = self.momenta(ins, old, outs, found, place, inside), len(DECAYS)
        if not self.is_adaptive:
            x = _with_lanes(x, [found.weights, found.gradient])
            return self.clipped(x) * scales[None, :], None
        inverse = 1 / _root(found, numbers, inside)
        if "polar" in old:
            n = numbers[9] * old["polar"]
        else:
            n = numbers[10] * found.nominal * inverse
        relative = -jnp.log(inverse) - numbers[8]
        others = [found.weights * numbers[7], n, found.gradient * inverse, relative]
        x = _with_lanes(x * scales[None, :] * inverse[:, None], others)
        lane = _arange(LANES)[None, :]
        x = jnp.where(lane == first + len(others), float(self.is_matrix), x)
        return jnp.clip(x, -LARGEST_FEATURE, LARGEST_FEATURE), n


def _root(found: _Found, numbers: Any, inside: Array) -> Array:
    return jnp.sqrt(jnp.where(inside, found.squares, 1.0) * numbers[6] + TINY)


def _with_lanes(x: Array, values: Sequence[Array]) -> Array:
    """A tile with these values in the lanes after the momenta."""
    lane = _arange(LANES)[None, :]
    for i, value in enumerate(values):
        x = jnp.where(lane == len(DECAYS) + i, value[:, None], x)
    return x


def _lane_order(theta: Theta) -> list[int]:
    """For each lane, the channel of `features` that it holds."""
    first = 3 if theta.form.is_adaptive else 2
    momenta = list(range(first, first + len(DECAYS)))
    return [*momenta, *(i for i in range(theta.form.channels) if i not in momenta)]


def _trunk(x: Array, weights: Sequence[Array]) -> Array:
    """Three layers; a tile of features becomes one of activations."""
    half = partial(jnp.asarray, dtype=jnp.float16)
    x = half(jnp.clip(x, -_LARGEST, _LARGEST))
    for i in range(0, len(weights), 2):
        weight = half(weights[i] if i == 0 else weights[i] / _DOWN)
        x = jnp.dot(x, weight, preferred_element_type=jnp.float32) + weights[i + 1][None, :]
        x = jnp.clip(x, 0.0, _LARGEST / _DOWN)
        if i + 2 < len(weights):
            x = half(x * _DOWN)
    return x


def _product(h: Array, columns: Array) -> Array:
    """Activations times coefficients."""
    left, right = (h * _DOWN).astype(jnp.float16), (columns / _DOWN).astype(jnp.float16)
    return jnp.dot(left, right, preferred_element_type=jnp.float32)


def load(ref: Any, index: Array, mask: Array) -> Array:
    from jax.experimental.pallas import triton

    return triton.load(ref.at[index], mask=mask, other=0.0)


def _store(ref: Any, index: Array, value: Array, mask: Array) -> None:
    from jax.experimental.pallas import triton

    if INTERPRET:  # which ignores masks; on GPUs, a computed index would keep stores scalar
        index = jnp.where(mask, index, ref.shape[0])
    triton.store(ref.at[index], value, mask=mask)
