"""Stochastic rounding of momenta to bfloat16.

With the decay 0.9999, an update changes a momentum by about a ten-thousandth of it, and neighbors
in bfloat16 are up to 2⁻⁷ of it apart: rounded to the nearest one, it would never change. Rounded up
or down at random, it is right in expectation.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, BFloat16, Float, Float32, Int, UInt16, UInt32

from ._theta import DECAYS

_EXPONENT = np.uint32(0x7F800000)
_UPPER_HALF = np.uint32(0xFFFF0000)


def is_rounded(momenta: Any) -> bool:
    """Whether these are stored in bfloat16, or as its bits."""
    return momenta is not None and momenta.dtype in (jnp.bfloat16, jnp.uint16)


def as_bits(x: Any) -> Any:
    """Integers with the bits of bfloat16; other arrays as they are."""
    if x is None or x.dtype != jnp.bfloat16:
        return x
    return jax.lax.bitcast_convert_type(x, jnp.uint16)


def from_bits(x: Any) -> Any:
    """What `as_bits` was called with."""
    if x is None or x.dtype != jnp.uint16:
        return x
    return jax.lax.bitcast_convert_type(x, jnp.bfloat16)


def salts(step: Int[Array, ""]) -> UInt32[Array, " momenta"]:
    """A random number for each momentum in this update."""
    channels = np.arange(len(DECAYS), dtype=np.uint32)
    return _mix(step.astype(jnp.uint32) * np.uint32(len(DECAYS)) + channels)


def round_momenta(
    new: Float[Array, "*entries channels"],
    old: BFloat16[Array, "*entries channels"] | UInt16[Array, "*entries channels"],
    gradient: Float[Array, "*entries 1"],
    salts: UInt32[Array, "*ones channels"],
) -> BFloat16[Array, "*entries channels"] | UInt16[Array, "*entries channels"]:
    """The new momenta, rounded at random to bfloat16 or its bits, whichever the old ones are."""
    # Hashing what is read needs neither a key nor positions, and slabs, shards and kernels read the
    # same bits; the last bits of `new` depend on the compiler. Entries with the same gradient and
    # momentum are rounded alike, which is still right in expectation.
    noise = _mix(_bits(gradient) ^ _bits(from_bits(old)) ^ salts)
    found = round_at_random(new.astype(jnp.float32), noise)
    return as_bits(found) if old.dtype == jnp.uint16 else found


@jax.custom_jvp
def round_at_random(
    x: Float32[Array, "*shape"], noise: UInt32[Array, "*shape"]
) -> BFloat16[Array, "*shape"]:
    """One of the two neighbors a ≤ |x| < b in bfloat16, with the sign of x.

    It is b with the probability (|x| − a)/(b − a), for uniform noise. Its derivative is that of x.
    """
    bits = _bits(x)
    rounded = (bits + (noise >> np.uint32(16))) & _UPPER_HALF
    is_finite = (bits & _EXPONENT) != _EXPONENT
    rounded = jax.lax.bitcast_convert_type(rounded, jnp.float32)
    return jnp.where(is_finite, rounded, x).astype(jnp.bfloat16)


@round_at_random.defjvp
def _straight_through(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    return round_at_random(*primals), tangents[0].astype(jnp.bfloat16)


def _bits(x: Array) -> UInt32[Array, "..."]:
    return jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32)


def _mix(x: UInt32[Array, "*shape"]) -> UInt32[Array, "*shape"]:
    """A hash: the last steps of MurmurHash3."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    return x ^ (x >> np.uint32(16))
