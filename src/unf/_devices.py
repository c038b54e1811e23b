"""Spreading work over the devices there are, of this process and of others.

Several processes are started by `jax.distributed`; each holds its part of a spread array, and
the whole of what is the same everywhere.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding


class UnevenError(ValueError):
    """Things that cannot be spread over all processes."""


def even_mesh(count: int, axis: str) -> Mesh:
    """As many devices as divide `count` things evenly, the same number of every process.

    Raises:
        UnevenError: if there are more processes than divide it.
    """
    processes, here = jax.process_count(), len(jax.local_devices())
    fitting = [n for n in range(1, here + 1) if count % (n * processes) == 0]
    if not fitting:
        raise UnevenError(
            f"{count} {axis} cannot be spread over {processes} processes evenly; "
            f"choose a multiple of {processes}"
        )
    by_process = [[d for d in jax.devices() if d.process_index == i] for i in range(processes)]
    return Mesh([d for devices in by_process for d in devices[: max(fitting)]], (axis,))


def local_mesh(count: int, axis: str) -> Mesh:
    """As many of this process's devices as divide `count` things evenly."""
    devices = jax.local_devices()
    used = max(n for n in range(1, len(devices) + 1) if count % n == 0)
    return Mesh(devices[:used], (axis,))


def put(tree: Any, sharding: Sharding) -> Any:
    """Place arrays; with several processes each of them has the whole and keeps its part."""
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)

    def place(x: Any) -> jax.Array:
        if isinstance(x, jax.Array) and not x.is_fully_addressable:
            return jax.device_put(x, sharding)
        whole = np.asarray(x)
        return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])

    return jax.tree.map(place, tree)


def taken_back(tree: Any) -> Any:
    """Arrays that are the same on all devices, as arrays of this process alone."""
    return jax.tree.map(
        lambda x: (
            x if not isinstance(x, jax.Array) or x.is_fully_addressable else x.addressable_data(0)
        ),
        tree,
    )


def out_of_memory(error: Exception) -> bool:
    """Whether a device had too little memory for what it was to do."""
    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)


def memory_reason(error: Exception) -> str:
    """The line of such an error that says how much was asked for."""
    lines = str(error).splitlines()
    return next((line for line in lines if "out of memory" in line.lower()), lines[0])


@contextmanager
def enough_memory(kind: type[Exception], what: str, remedy: str) -> Iterator[None]:
    """Raise an error of this kind, with the remedy, if the device has no memory for what is done.

    >>> with enough_memory(ValueError, "so much", "take less"):
    ...     raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")
    Traceback (most recent call last):
    ValueError: the device has no memory for so much; take less (RESOURCE_EXHAUSTED: Out of memory)
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not out_of_memory(error):
            raise
        reason = memory_reason(error)
        raise kind(f"the device has no memory for {what}; {remedy} ({reason})") from error


def is_first() -> bool:
    """Whether this process is the one that writes what all of them know."""
    return jax.process_index() == 0


def wait_for_all(where: str) -> None:
    """Go on when all processes are here.

    Raises:
        JaxRuntimeError: if one of them is lost.
    """
    if jax.process_count() > 1:
        try:
            multihost_utils.sync_global_devices(where)
        except ValueError as error:  # what a lost connection is here since JAX 0.11
            raise jax.errors.JaxRuntimeError(str(error)) from error


def connect(mesh: Mesh) -> None:
    """Let the devices of a mesh get to know each other while all processes are here.

    That must happen within seconds; once known, they wait for each other as long as it takes.
    """
    if jax.process_count() > 1:
        wait_for_all("to connect")
        spread = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
        jax.block_until_ready(jax.jit(jnp.sum)(put(np.zeros(mesh.size), spread)))
