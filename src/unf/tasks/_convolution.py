"""Small convolutions that stay fast when many networks are trained at once."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def convolve(x: Array, kernel: Float[Array, "3 3 source target"], stride: int) -> Array:
    """A 3×3 convolution as nine matrix products.

    Many networks at once make of a convolution a grouped one, which CPUs run a hundred times
    slower than products.
    """
    height, width = x.shape[1:3]
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [
        x[:, i : i + height : stride, j : j + width : stride] @ kernel[i, j]
        for i in range(3)
        for j in range(3)
    ]
    return sum(shifted[1:], start=shifted[0])
