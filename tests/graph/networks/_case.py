"""What a network in the table is: a function, shapes, and the specification expected."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import unf


@dataclass(frozen=True)
class Network:
    """A network and the symmetries it has.

    Attributes:
        make: builds `(fn, params, *inputs)`, all arrays as shapes.
        expected: for each leaf's path the specification expected, up to the choice of names.
        sizes: sizes that the shapes do not determine.
        narrow: whether it insists on float32.
        dead: leaves that do not change the outputs, though they are used.
        hidden: axes, as `path axis i`, that may permute alone though their name stands
            elsewhere too, or though they are fixed: symmetries known not to be found.
    """

    make: Callable[[], tuple]
    expected: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    narrow: bool = False
    dead: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


NETWORKS: dict[str, Network] = {}


@cache
def inferred(name: str) -> tuple[Callable, Any, list, unf.WeightSpace]:
    """The function, the shapes of parameters and inputs, and what `infer` finds, once."""
    fn, params, *inputs = NETWORKS[name].make()
    return fn, params, inputs, unf.infer(fn, params, *inputs)


def network(expected: dict[str, str] | None = None, **kwargs: Any):
    """Add the decorated builder to the table, under its name."""

    def register(make: Callable[[], tuple]) -> Callable[[], tuple]:
        assert make.__name__ not in NETWORKS
        NETWORKS[make.__name__] = Network(make, expected or {}, **kwargs)
        return make

    return register


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    """The shape of a float32 array."""
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def i32(*shape: int) -> jax.ShapeDtypeStruct:
    """The shape of an int32 array."""
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def linen(module: Any, *inputs: Any, **kwargs: Any) -> tuple:
    """A Flax Linen module as `(fn, params, *inputs)`."""
    concrete = [jnp.zeros(x.shape, x.dtype) for x in inputs]
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), *concrete, **kwargs))
    return (lambda variables, *xs: module.apply(variables, *xs, **kwargs)), shapes, *inputs


def fill(shapes: Any, seed: int = 0) -> Any:
    """Random arrays of these shapes; variances are positive, integers zero."""
    rng = np.random.default_rng(seed)

    def draw(path: Any, leaf: Any) -> np.ndarray:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return np.asarray(rng.integers(0, 3, leaf.shape), leaf.dtype)
        if path and "var" in str(path[-1]):
            return np.asarray(rng.uniform(0.5, 1.5, leaf.shape), leaf.dtype)
        return np.asarray(rng.normal(size=leaf.shape), leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, shapes)
