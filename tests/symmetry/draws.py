"""Random weights and group elements in NumPy, which compile nothing, and whole groups."""

from itertools import permutations, product
from math import sqrt

import jax
import numpy as np

from unf import WeightSpace


def draw(space: WeightSpace, seed: int, *channels: int, dtype=np.float32):
    """Normal weights."""
    rng = np.random.default_rng(seed)
    return space.unflatten(
        [rng.normal(size=(*leaf.shape, *channels)).astype(dtype) for leaf in space.leaves]
    )


def draw_element(space: WeightSpace, seed: int):
    """A random group element."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1)
        for name, shape in space.index_shapes.items()
    }


def whole_group(space: WeightSpace):
    """Every group element."""
    by_name = []
    for name, shape in space.index_shapes.items():
        rows = product(permutations(range(shape[-1])), repeat=int(np.prod(shape[:-1])))
        by_name.append([(name, np.reshape(indices, shape)) for indices in rows])
    return [dict(element) for element in product(*by_name)]


def plain_distance(a, b) -> float:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return sqrt(sum(float(np.sum(np.square(x - y.astype(np.float64)))) for x, y in pairs))


def assert_same_bits(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
