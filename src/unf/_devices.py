"""Spreading work over the devices there are."""

import jax
from jax.sharding import Mesh


def even_mesh(count: int, axis: str) -> Mesh:
    """As many of this process's devices as divide `count` things evenly, along one named axis."""
    devices = jax.local_devices()
    used = max(n for n in range(1, len(devices) + 1) if count % n == 0)
    return Mesh(devices[:used], (axis,))
