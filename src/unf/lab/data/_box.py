"""Making images smaller by averaging areas."""

import numpy as np
from jaxtyping import Float32, UInt8

_AT_ONCE = 4096


def shrink(
    images: UInt8[np.ndarray, "*batch n n"], size: int
) -> UInt8[np.ndarray, "*batch size size"]:
    """Square images at another size: each new pixel is the mean of the area that it covers.

    >>> shrink(np.array([[0, 2], [4, 4]], np.uint8), 1)
    array([[3]], dtype=uint8)

    Args:
        images: the last two axes are height and width.
        size: the new height and width.
    """
    old = images.shape[-1]
    flat = images.reshape(-1, old, old)
    weights, area = overlaps(old, size), old * old
    new = np.empty((len(flat), size, size), np.uint8)
    for start in range(0, len(flat), _AT_ONCE):
        part = flat[start : start + _AT_ONCE].astype(np.float32)
        # Whole numbers far below 2²⁴, so the sums are exact; halves are rounded up.
        sums = (weights @ part @ weights.T).astype(np.int64)
        new[start : start + _AT_ONCE] = (2 * sums + area) // (2 * area)
    return new.reshape(*images.shape[:-2], size, size)


def overlaps(old: int, new: int) -> Float32[np.ndarray, "new old"]:
    """How much of each old pixel lies in each new one, in units in which a new one is `old`."""
    new_starts, old_starts = np.arange(new)[:, None] * old, np.arange(old)[None] * new
    ends = np.minimum(new_starts + old, old_starts + new)
    return np.maximum(ends - np.maximum(new_starts, old_starts), 0).astype(np.float32)
