"""What a learned optimizer computes at every entry of a tensor by itself.

Momenta, features and steps of an entry depend on others only through a few numbers, `Whole`. So
these functions also apply to some entries of a tensor: a slab, or a diagonal.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ._rounding import from_bits, is_rounded, round_momenta, salts
from ._theta import DECAYS, TINY, Form, Theta, gain, size_factor

LARGEST_FEATURE = 3.0


class Entries(NamedTuple):
    """Entries of one tensor, in arrays of one shape; `momenta` has a trailing axis.

    Attributes:
        weights: W.
        gradient: g.
        nominal: the momentum with the learned decay γ₀.
        momenta: those with the decays γᵢ, perhaps in bfloat16 or as its bits; None for "sgdm".
        squares: for adaptive steps, the mean of g²; else None.
        polar: for adaptive steps of a matrix, the polar factor of `nominal`; else None.
    """

    weights: Array
    gradient: Array
    nominal: Array
    momenta: Any = None
    squares: Any = None
    polar: Any = None


class Whole(NamedTuple):
    """What every entry knows of its tensor.

    Attributes:
        scales: what the features w, g and {mᵢ} are divided by; None if they are not.
        root: for adaptive steps, the root mean square of √v; else None.
        size: that of m/√v.
        unit: that of the initial weights.
        length: how long a step with a root mean square of 1 is: the unit times the size factor.
        is_matrix: whether the tensor's rank is at least 2.
    """

    scales: Any
    root: Any
    size: Any
    unit: Any
    length: Any
    is_matrix: bool


def accumulate(theta: Theta, step: Int[Array, ""], x: Entries) -> Entries:
    """The next momenta and squares, as they are stored."""
    form, dtype = theta.form, x.nominal.dtype
    nominal = form.accumulate(x.nominal, x.gradient, theta.gamma.astype(dtype))
    momenta, squares = x.momenta, x.squares
    if momenta is not None:
        decays = _for_channels(jnp.asarray(np.array(DECAYS), dtype), momenta)
        gradient = x.gradient[..., None]
        new = form.accumulate(from_bits(momenta).astype(dtype), gradient, decays)
        if is_rounded(momenta):
            new = round_momenta(new, momenta, gradient, _for_channels(salts(step), momenta))
        momenta = new
    if squares is not None:
        decay = theta.gamma_squares.astype(squares.dtype)
        squares = decay * squares + (1 - decay) * jnp.square(x.gradient)
    return x._replace(nominal=nominal, momenta=momenta, squares=squares)


def describe(
    theta: Theta, step: Int[Array, ""], tensors: Sequence[Entries], units: Sequence[Any]
) -> list[Whole]:
    """What every entry of each tensor knows, from all entries after `accumulate`."""
    each = zip(mean_squares(theta, step, tensors), tensors, units, strict=True)
    return [whole_from_squares(theta, squares, x, unit) for squares, x, unit in each]


def mean_squares(theta: Theta, step: Int[Array, ""], tensors: Sequence[Entries]) -> list[Any]:
    """Mean squares of what is measured of each tensor, or None; those of one shape at once."""
    form, squares = theta.form, dict[int, Any]()
    by_shape: dict[tuple[int, ...], list[int]] = {}
    if form.is_adaptive or (theta.reads_momenta and form.normalize != "none"):
        for i, x in enumerate(tensors):
            by_shape.setdefault(x.weights.shape, []).append(i)
    for shape, same in by_shape.items():
        each = zip(*(_channels(theta, step, tensors[i]) for i in same), strict=True)
        joined = [jnp.stack(arrays) if len(same) > 1 else arrays[0][None] for arrays in each]
        axes = tuple(range(1, 1 + len(shape)))
        means = [jnp.mean(jnp.square(_clipped(form, array)), axis=axes) for array in joined]
        found = jnp.concatenate([mean.reshape(len(same), -1) for mean in means], axis=1)
        squares |= dict(zip(same, found, strict=True))
    return [squares.get(i) for i in range(len(tensors))]


def _channels(theta: Theta, step: Int[Array, ""], x: Entries) -> list[Array]:
    """What is squared: √v and m/√v, or w, g and each mᵢ."""
    if theta.form.is_adaptive:
        root = _root(theta, step, x)
        return [root, x.nominal / root]
    dtype = x.nominal.dtype
    return [x.weights.astype(dtype), x.gradient, from_bits(x.momenta).astype(dtype)]


def whole_from_squares(theta: Theta, squares: Any, x: Entries, unit: Any) -> Whole:
    """What every entry knows, from mean squares: of √v and m/√v, or of w, g and each mᵢ."""
    is_matrix = x.weights.ndim > 1
    roots = None if squares is None else jnp.sqrt(squares + TINY)  # with a derivative at zero
    if roots is None or not theta.form.is_adaptive:
        scales = None if roots is None else roots[: theta.form.channels]  # all zeros stay zeros
        return Whole(scales, None, None, None, None, is_matrix)
    length = unit if x.polar is not None else unit * size_factor(x.weights)
    return Whole(None, roots[0], roots[1], unit, length, is_matrix)


def features(
    theta: Theta, step: Int[Array, ""], x: Entries, whole: Whole
) -> Float[Array, "*entries channels"]:
    """What f reads of each entry, after `accumulate`."""
    dtype = x.nominal.dtype
    rows = [
        x.weights.astype(dtype)[..., None],
        x.gradient[..., None],
        from_bits(x.momenta).astype(dtype),
    ]
    if not theta.form.is_adaptive:
        found = _clipped(theta.form, jnp.concatenate(rows, axis=-1))
        if whole.scales is None:
            return found
        return found * jnp.broadcast_to(1 / whole.scales, found.shape)
    gamma = jnp.asarray(np.array(DECAYS), dtype)
    unbiased = 1 / (1 - gamma ** (step + 1).astype(dtype))
    root = _root(theta, step, x)[..., None]
    factors = _for_channels(jnp.concatenate([jnp.ones(1, dtype), unbiased]), root) / root
    relative = jnp.log(root / whole.root)
    is_matrix = jnp.full_like(relative, whole.is_matrix)
    moving = jnp.concatenate(rows[1:], axis=-1) * factors
    direction = _direction(theta, step, x, whole)[..., None]
    found = [rows[0] / whole.unit, direction, moving, relative, is_matrix]
    return jnp.clip(jnp.concatenate(found, axis=-1), -LARGEST_FEATURE, LARGEST_FEATURE)


def step_of(
    theta: Theta, step: Int[Array, ""], x: Entries, whole: Whole, output: Any, factor: Array
) -> Array:
    """The step m + βf, or u eˢ n, times a factor; `output` is f, s, or None."""
    m = x.nominal
    if theta.form.is_adaptive:
        n = whole.length * _direction(theta, step, x, whole)
        found = n if output is None else gain(output) * n
    else:
        found = m if output is None else m + theta.beta.astype(m.dtype) * output
    return factor.astype(m.dtype) * found


def _for_channels(vector: Array, x: Array) -> Array:
    """A vector of channels, with as many axes as x."""
    return vector.reshape(*[1] * (x.ndim - 1), -1)


def _clipped(form: Form, channels: Array) -> Array:
    clips = form.normalize == "clip-rms" and not form.is_adaptive
    return jnp.clip(channels, -1, 1) if clips else channels


def _root(theta: Theta, step: Int[Array, ""], x: Entries) -> Array:
    """√v, without its bias to zero."""
    share = 1 - theta.gamma_squares ** (step + 1)
    return jnp.sqrt(x.squares / share.astype(x.squares.dtype) + TINY)


def _direction(theta: Theta, step: Int[Array, ""], x: Entries, whole: Whole) -> Array:
    """The direction n, with a root mean square of at most 1 (about, of matrices)."""
    if x.polar is not None:
        return jnp.minimum(1, whole.size) * x.polar
    return x.nominal / _root(theta, step, x) / jnp.maximum(1, whole.size)
