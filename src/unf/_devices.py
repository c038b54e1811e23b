"""Sharding work across devices, of this process and of others.

With several processes (`jax.distributed`), each holds its shards of sharded arrays and a copy of
replicated ones.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding


class UnevenError(ValueError):
    """Work that cannot be sharded evenly across all processes."""


def even_mesh(count: int, axis: str) -> Mesh:
    """A mesh of as many devices as divide `count` evenly, the same number of every process.

    Raises:
        UnevenError: if the number of processes does not divide `count`.
    """
    processes, here = jax.process_count(), len(jax.local_devices())
    fitting = [n for n in range(1, here + 1) if count % (n * processes) == 0]
    if not fitting:
        raise UnevenError(
            f"{count} {axis} cannot be sharded evenly across {processes} processes; "
            f"choose a multiple of {processes}"
        )
    by_process = [[d for d in jax.devices() if d.process_index == i] for i in range(processes)]
    return Mesh([d for devices in by_process for d in devices[: max(fitting)]], (axis,))


def local_mesh(count: int, axis: str) -> Mesh:
    """A mesh of as many of this process's devices as divide `count` evenly."""
    devices = jax.local_devices()
    used = max(n for n in range(1, len(devices) + 1) if count % n == 0)
    return Mesh(devices[:used], (axis,))


def put(tree: Any, sharding: Sharding) -> Any:
    """Place arrays; with several processes, each passes whole arrays and keeps its shards."""
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)

    def place(x: Any) -> jax.Array:
        if isinstance(x, jax.Array) and not x.is_fully_addressable:
            return jax.device_put(x, sharding)
        whole = np.asarray(x)
        return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])

    return jax.tree.map(place, tree)


def to_host(tree: Any) -> Any:
    """Replace replicated arrays by this host's copies, which no other process shares."""
    return jax.tree.map(
        lambda x: (
            x if not isinstance(x, jax.Array) or x.is_fully_addressable else x.addressable_data(0)
        ),
        tree,
    )


def out_of_memory(error: Exception) -> bool:
    """Whether an error means that a device ran out of memory."""
    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)


def memory_reason(error: Exception) -> str:
    """The line of such an error that says how much memory was requested."""
    lines = str(error).splitlines()
    return next((line for line in lines if "out of memory" in line.lower()), lines[0])


@contextmanager
def enough_memory(kind: type[Exception], what: str, remedy: str) -> Iterator[None]:
    """Raise an error of this kind, with a remedy, if a device runs out of memory inside.

    >>> with enough_memory(ValueError, "9 pairs", "use fewer"):
    ...     raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")
    Traceback (most recent call last):
    ValueError: the device has no memory for 9 pairs; use fewer (RESOURCE_EXHAUSTED: Out of memory)
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not out_of_memory(error):
            raise
        reason = memory_reason(error)
        raise kind(f"the device has no memory for {what}; {remedy} ({reason})") from error


def in_threads(function: Callable, *inputs: Iterable[Any]) -> list[Any]:
    """Map a function that compiles, which XLA does outside Python's lock.

    Several processes must start programs in the same order, so they map one by one.
    """
    if jax.process_count() > 1:
        return list(map(function, *inputs))
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(function, *inputs))


def is_first() -> bool:
    """Whether this is the process that writes results which all processes have."""
    return jax.process_index() == 0


def wait_for_all(where: str) -> None:
    """Wait until all processes have reached this point.

    Raises:
        JaxRuntimeError: if a process is lost.
    """
    if jax.process_count() > 1:
        try:
            multihost_utils.sync_global_devices(where)
        except ValueError as error:  # a lost connection, since JAX 0.11
            raise jax.errors.JaxRuntimeError(str(error)) from error


def connect(mesh: Mesh) -> None:
    """Connect the devices of a mesh while all processes are at the same point.

    Connecting has a timeout of seconds; once connected, devices wait for each other without one.
    """
    if jax.process_count() > 1:
        wait_for_all("to connect")
        sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
        jax.block_until_ready(jax.jit(jnp.sum)(put(np.zeros(mesh.size), sharding)))
