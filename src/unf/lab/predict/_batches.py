"""Examples for training: the zoo in memory, and batches that are ready before they are needed."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float, Int, PyTree

from ..._devices import put
from ...zoo import Zoo, ZooError

T = TypeVar("T")
_SLAB_BYTES = 2**28
_DEVICE_SHARE = 0.4


class Examples(NamedTuple):
    """Weights, leaves stacked, and the success rates to predict."""

    weights: PyTree
    success: Any

    @property
    def bytes_each(self) -> int:
        """The size of one example."""
        return sum(leaf.nbytes // len(leaf) for leaf in jax.tree.leaves(self.weights))


class Split(NamedTuple):
    """Numbers of the models to train on, to choose by, and to test on once."""

    train: Int[np.ndarray, " train"]
    valid: Int[np.ndarray, " valid"]
    test: Int[np.ndarray, " test"]


def split_models(
    zoo: Zoo, sizes: tuple[int, ...] | None = None, *, seed: int = 0, diverged: bool = False
) -> Split:
    """Divide a zoo's finished models at random.

    Args:
        zoo: the zoo.
        sizes: how many to train on, to validate with and to test on; by default 8:1:1.
        seed: of the division.
        diverged: also use models whose weights are not finite, with zeros in their place.

    Raises:
        ZooError: if there are too few models.
    """
    models = np.flatnonzero(zoo.status != 0) if diverged else zoo.trained
    if sizes is None:
        tenth = len(models) // 10
        sizes = (len(models) - 2 * tenth, tenth, tenth)
    if len(sizes) != 3 or min(sizes) < 2 or sum(sizes) > len(models):
        raise ZooError(
            f"{zoo.path}: {len(models)} usable models cannot be divided into {sizes} for training, "
            "validation and test; build more models or choose smaller numbers with --split"
        )
    order = np.random.default_rng(seed).permutation(models)
    parts = [order[a:b] for a, b in pairwise(np.cumsum([0, *sizes]))]
    return Split(*parts)


def load_examples(zoo: Zoo, rows: Int[np.ndarray, " rows"]) -> Examples:
    """The weights of some models and their success rates, by the first measurement."""
    weights = zoo.weights(rows)
    if zoo.diverged[rows].any():
        weights = jax.tree.map(lambda x: np.nan_to_num(x, posinf=0.0, neginf=0.0), weights)
    return Examples(weights, zoo.success[rows, 0].astype(np.float32))


def slabs(
    examples: Examples, order: Int[np.ndarray, "seeds steps batch"], mesh: Mesh
) -> Iterator[tuple[Examples, int]]:
    """Batches in this order, several steps at a time: leaves [steps, seeds, batch, ...].

    Examples that are on the device are gathered there. Others are gathered and sent by another
    thread while the batches before them are trained on. Batches are spread over all devices.
    """
    seeds, steps, batch = order.shape
    room = max(1, _SLAB_BYTES // max(1, seeds * batch * examples.bytes_each))
    each = -(-steps // -(-steps // room))
    cuts = [*range(0, steps, each), steps]
    pieces = [np.ascontiguousarray(order[:, a:b].swapaxes(0, 1)) for a, b in pairwise(cuts)]
    take = _take_on_device if isinstance(examples.success, jax.Array) else _take_on_host
    spread = NamedSharding(mesh, PartitionSpec(None, None, "batch"))
    yield from ahead(lambda index: (take(examples, index, spread), len(index)), pieces)


def ahead(make: Callable[[Any], T], items: list[Any]) -> Iterator[T]:
    """Make things in another thread, one ahead of what is being used."""
    with ThreadPoolExecutor(1) as thread:
        coming = [thread.submit(make, item) for item in items[:1]]
        for item in items[1:]:
            coming.append(thread.submit(make, item))
            yield coming.pop(0).result()
        for last in coming:
            yield last.result()


def to_device(examples: Examples) -> Examples:
    """Put examples on the device if they fit there with room to spare."""
    stats = jax.local_devices()[0].memory_stats() or {}
    room = stats.get("bytes_limit", 2**34) * _DEVICE_SHARE
    fits = examples.bytes_each * len(examples.success) < room
    return jax.device_put(examples) if fits else examples


def _take_on_host(examples: Examples, index: np.ndarray, spread: NamedSharding) -> Examples:
    return put(jax.tree.map(lambda x: x[index], examples), spread)


def _take_on_device(examples: Examples, index: np.ndarray, spread: NamedSharding) -> Examples:
    return put(_gather(examples, jnp.asarray(index)), spread)


@jax.jit
def _gather(examples: Examples, index: Int[jax.Array, "steps seeds batch"]) -> Examples:
    return jax.tree.map(lambda x: x[index], examples)


def labels(examples: Examples) -> Float[np.ndarray, " n"]:
    """The success rates as NumPy has them."""
    return np.asarray(examples.success, np.float64)
