"""3×3 convolutions of many networks at once: as products of rows, or by kernels on GPUs.

Kernels compute two bilinear maps: results from images and weights, and weights from images and
results. The derivatives of both are made of the same two maps, so reverse mode needs no others, to
any order. A program takes a tile of places and reads what the window sees there straight from the
images, shift by shift: no array of windows is ever written.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...optim import _kernel
from ...optim._kernel import WARPS, load, padded_size

_PLACES, _STAGES = 128, 1
"""Places of a tile, and stages of its loop over shifts."""
_SUM_PLACES, _SUM_TILES, _SUM_STAGES = 128, 8, 2
"""Places of a tile, tiles of a program, and stages of its loop over them, for sums over places."""
_MOST_SUMS = 2**13
"""The most sums that a program holds."""
_TOGETHER = 64
"""The nine shifts are one product if they have at most so many channels together."""
_MOST_CHANNELS = 64
"""Tiles with more channels would not fit into registers."""
_arange = partial(jnp.arange, dtype=jnp.int32)

Images = Float[Array, "batch _ _ _"]
Kernel = Float[Array, "3 3 _ _"]


def convolve(
    x: Float[Array, "batch height width source"],
    kernel: Float[Array, "3 3 source target"],
    stride: int,
) -> Float[Array, "batch _ _ target"]:
    """A 3×3 convolution with a border of zeros.

    On one NVIDIA GPU, kernels compute it if the numbers are in half precision and there are at most
    64 channels. Otherwise it is three matrix products, one for each row of the window. For many
    networks at once, XLA's convolution would become a grouped one, which is 20 times slower on CPUs
    and twice as slow on GPUs. Products with whole windows instead of rows write so much more memory
    that GPUs take 1.7 times as long.
    """
    height, width = x.shape[1:3]
    if _is_supported(x, kernel):
        return _convolve(x, kernel, _Walk((-(-height // stride), -(-width // stride)), stride))
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    rows = jnp.concatenate([x[:, :, j : j + width : stride] for j in range(3)], axis=-1)
    parts = [
        rows[:, i : i + height : stride] @ kernel[i].reshape(-1, kernel.shape[-1]) for i in range(3)
    ]
    return sum(parts[1:], start=parts[0])


def _is_supported(x: Images, kernel: Kernel) -> bool:
    """Whether kernels can compute this; XLA cannot shard them across devices."""
    channels = max(kernel.shape[2:])
    is_half = x.dtype == kernel.dtype and x.dtype in (jnp.bfloat16, jnp.float16)
    is_small = channels <= _MOST_CHANNELS and prod(x.shape[:3]) * channels < 2**31
    return is_half and is_small and jax.device_count() == 1 and _kernel.is_available()


# --- two maps and their derivatives ----------------------------------------------------------


class _Walk(NamedTuple):
    """How the window walks over images.

    At place r, shift i of the window sees the pixel (r·stride + i − 1) / spread, if there is one.

    Attributes:
        size: how many places there are, in height and width.
        stride: how far apart places are.
        spread: how far apart pixels are.
    """

    size: tuple[int, ...]
    stride: int
    spread: int = 1

    def back(self, x: Images) -> "_Walk":
        """The walk over results whose places are the pixels of x."""
        return _Walk(x.shape[1:3], self.spread, self.stride)

    def see(self, place: Array, shift: Any, size: int) -> tuple[Array, Array]:
        """The pixels that places see along an axis, and whether there are such."""
        pixel = place * self.stride + shift - 1
        inside = (pixel >= 0) & (pixel < size * self.spread)
        pixel, rest = _divide(pixel, self.spread)
        return pixel, inside & (rest == 0)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _convolve(x: Images, kernel: Kernel, walk: _Walk) -> Images:
    """What the window sees at each place, times its weights."""
    source, target = kernel.shape[2:]
    (groups, lanes), columns = _group(source), padded_size(target)
    total = len(x) * prod(walk.size)
    programs = -(-total // _PLACES)
    weights = kernel.reshape(groups, -1, target)
    padding = [(0, 0), (0, lanes - weights.shape[1]), (0, columns - target)]

    def run(x_ref: Any, weights_ref: Any, y_ref: Any) -> None:
        from jax.experimental import pallas as pl

        place = pl.program_id(0) * _PLACES + _arange(_PLACES)

        def add(i: Any, y: Array) -> Array:
            seen = _seen(x_ref, x.shape, walk, place, i)
            return y + jnp.dot(seen, weights_ref[i], preferred_element_type=jnp.float32)

        y = jax.lax.fori_loop(0, groups, add, jnp.zeros((_PLACES, columns), jnp.float32))
        y_ref[...] = y.astype(y_ref.dtype)

    shape = jax.ShapeDtypeStruct((programs * _PLACES, columns), x.dtype)
    block = (_PLACES, columns), lambda i: (i, 0)
    operands = [x.reshape(-1), jnp.pad(weights, padding)]
    y = _call(run, shape, block, (programs,), operands, _STAGES)
    return y[:total, :target].reshape(len(x), *walk.size, target)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _correlate(x: Images, y: Images, walk: _Walk) -> Kernel:
    """What the window sees at each place, times y, summed over all places."""
    source, target = x.shape[-1], y.shape[-1]
    (groups, lanes), columns = _group(source), padded_size(target)
    total = y.size // target
    programs = -(-total // (_SUM_PLACES * _SUM_TILES))
    fitting = [n for n in (9, 3) if groups % n == 0 and n * lanes * columns <= _MOST_SUMS]
    held = max(fitting, default=1)

    def run(x_ref: Any, y_ref: Any, sums_ref: Any) -> None:
        from jax.experimental import pallas as pl

        first, program = pl.program_id(0) * held, pl.program_id(1)

        def tile(i: Any, sums: tuple[Array, ...]) -> tuple[Array, ...]:
            place = (program * _SUM_TILES + i) * _SUM_PLACES + _arange(_SUM_PLACES)
            lane = _arange(columns)[None, :]
            mask = (place < total)[:, None] & (lane < target)
            y = load(y_ref, place[:, None] * target + lane, mask)
            seen = (_seen(x_ref, x.shape, walk, place, first + j) for j in range(held))
            return tuple(s + _sum_over_rows(t, y) for s, t in zip(sums, seen, strict=True))

        zeros = (jnp.zeros((lanes, columns), jnp.float32),) * held
        for j, found in enumerate(jax.lax.fori_loop(0, _SUM_TILES, tile, zeros)):
            sums_ref[j] = found

    shape = jax.ShapeDtypeStruct((programs, groups, lanes, columns), jnp.float32)
    block = (None, held, lanes, columns), lambda part, program: (program, part, 0, 0)
    grid = groups // held, programs
    sums = _call(run, shape, block, grid, [x.reshape(-1), y.reshape(-1)], _SUM_STAGES)
    weights = jnp.sum(sums, axis=0)[:, : 9 // groups * source, :target]
    return weights.reshape(3, 3, source, target).astype(x.dtype)


def _turn(kernel: Kernel) -> Kernel:
    """The weights with which gradients walk back."""
    return kernel[::-1, ::-1].swapaxes(2, 3)


def _convolve_back(walk: _Walk, kept: tuple[Images, Kernel], given: Images):
    x, kernel = kept
    return _convolve(given, _turn(kernel), walk.back(x)), _correlate(x, given, walk)


def _correlate_back(walk: _Walk, kept: tuple[Images, Images], given: Kernel):
    x, y = kept
    return _convolve(y, _turn(given), walk.back(x)), _convolve(x, given, walk)


_convolve.defvjp(lambda x, kernel, walk: (_convolve(x, kernel, walk), (x, kernel)), _convolve_back)
_correlate.defvjp(lambda x, y, walk: (_correlate(x, y, walk), (x, y)), _correlate_back)


# --- in a program ----------------------------------------------------------------------------


def _group(channels: int) -> tuple[int, int]:
    """How many groups the nine shifts are multiplied in, and the lanes of each."""
    groups = 1 if 9 * channels <= _TOGETHER else 9
    return groups, padded_size(9 // groups * channels)


def _seen(
    x_ref: Any, shape: tuple[int, ...], walk: _Walk, place: Array, group: Any
) -> Float[Array, "places lanes"]:
    """What the window sees at places in a group of shifts: zeros beyond the images."""
    batch, height, width, channels = shape
    rows, columns = walk.size
    groups, lanes = _group(channels)
    lane, place = _arange(lanes)[None, :], place[:, None]
    # Where a group is one shift, its rows and columns do not depend on the lane.
    shift, channel = _divide(lane, channels) if groups == 1 else (group, lane)
    (shift_row, shift_column), (image, place) = _divide(shift, 3), _divide(place, rows * columns)
    row, column = _divide(place, columns)
    row, in_rows = walk.see(row, shift_row, height)
    column, in_columns = walk.see(column, shift_column, width)
    mask = (image < batch) & in_rows & in_columns & (lane < 9 // groups * channels)
    return load(x_ref, ((image * height + row) * width + column) * channels + channel, mask)


def _divide(a: Array, b: int) -> tuple[Array, Array]:
    """Quotient and remainder, without the steps that make them right for negative numbers."""
    b = a.dtype.type(b)
    return jax.lax.div(a, b), jax.lax.rem(a, b)


def _sum_over_rows(a: Float[Array, "rows m"], b: Float[Array, "rows n"]) -> Float[Array, "m n"]:
    return jax.lax.dot_general(a, b, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32)


def _call(
    run: Callable,
    shape: jax.ShapeDtypeStruct,
    block: tuple,
    grid: tuple[int, ...],
    operands: Sequence[Array],
    stages: int,
) -> Array:
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    return pl.pallas_call(
        run,
        out_shape=shape,
        out_specs=pl.BlockSpec(*block),
        grid=grid,
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=stages),
        interpret=_kernel.INTERPRET,
        name="unf_convolution",
    )(*operands)
