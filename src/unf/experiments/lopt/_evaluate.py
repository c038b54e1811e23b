"""Training fresh networks with learned optimizers, and with Adam and SGD tuned by grid."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree

from ...tasks import Data, Task

Keys = Key[Array, " networks"]
POINTS = 100
"""Curves are means over this many equal parts of the horizon."""
_HELDOUT_BATCHES = 8
_TUNING = 1_000_000  # seeds of tuning runs begin here, so that no evaluated network is tuned on


class Curves(NamedTuple):
    """Losses along training, of several networks; held-out ones at the end of each part."""

    train: Float[np.ndarray, "seeds points"]
    heldout: Float[np.ndarray, "seeds points"]

    @property
    def last(self) -> Float[np.ndarray, " seeds"]:
        """The training loss over the last tenth of the horizon."""
        return self.train[:, -max(1, self.train.shape[1] // 10) :].mean(axis=1)


def adam(options: Mapping[str, Array]) -> optax.GradientTransformation:
    """Adam."""
    return optax.adam(options["learning_rate"])


def sgdm(options: Mapping[str, Array]) -> optax.GradientTransformation:
    """SGD with momentum, m ← γm + g."""
    return optax.sgd(options["learning_rate"], momentum=options["momentum"])


def _grid(**values: Any) -> dict[str, Float[np.ndarray, " options"]]:
    table = np.meshgrid(*values.values(), indexing="ij")
    columns = [column.reshape(-1).astype(np.float32) for column in table]
    return dict(zip(values, columns, strict=True))


GRIDS: dict[str, tuple[Callable, dict[str, Float[np.ndarray, " options"]]]] = {
    "adam": (adam, _grid(learning_rate=np.geomspace(1e-4, 1e-1, 13))),
    "sgdm-tuned": (
        sgdm,
        _grid(learning_rate=np.geomspace(1e-3, 1, 13), momentum=(0.5, 0.9, 0.95, 0.99)),
    ),
}
"""Hand-made optimizers by name, and the options that are tried."""


def evaluate(
    task: Task, data: Data, make: Callable, options: Any, *, seeds: Sequence[int], horizon: int
) -> Curves:
    """Train a fresh network for each seed.

    Args:
        task: what to train.
        data: its data.
        make: makes an Optax optimizer from `options`, such as `unf.optim.learned_optimizer`
            from a θ.
        options: arrays, or a tree of them.
        seeds: one network each.
        horizon: steps of training.
    """
    options = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), options)
    return _as_curves(_curves(task, data, make, options, _keys(seeds), horizon))


def tune(task: Task, data: Data, name: str, *, horizon: int, runs: int = 3) -> dict[str, float]:
    """The best options of a grid, by training loss over the last tenth of the horizon.

    Args:
        task: what to train.
        data: its data.
        name: one of `GRIDS`.
        horizon: steps of each training.
        runs: networks for each point of the grid, none of them evaluated later.
    """
    make, grid = GRIDS[name]
    points = {key: jnp.asarray(values) for key, values in grid.items()}
    seeds = range(_TUNING, _TUNING + runs)
    curves = _grid_curves(task, data, make, points, _keys(seeds), horizon)
    scores = np.array([_as_curves((x, y)).last.mean() for x, y in zip(*curves, strict=True)])
    best = int(np.argmin(np.nan_to_num(scores, nan=np.inf, posinf=np.inf)))
    return {key: float(values[best]) for key, values in grid.items()}


def _keys(seeds: Sequence[int]) -> Keys:
    return jnp.stack([jax.random.key(seed) for seed in seeds])


def _as_curves(arrays: tuple[Array, Array]) -> Curves:
    return Curves(*(np.asarray(x, np.float64) for x in arrays))


@eqx.filter_jit
def _grid_curves(
    task: Task, data: Data, make: Callable, options: PyTree, keys: Keys, horizon: int
) -> tuple[Array, Array]:
    """Train one network for each point of a grid and each key."""
    return jax.vmap(lambda point: _curves(task, data, make, point, keys, horizon))(options)


@eqx.filter_jit
def _curves(
    task: Task, data: Data, make: Callable, options: PyTree, keys: Keys, horizon: int
) -> tuple[Array, Array]:
    """Train one network for each key."""
    points = min(POINTS, horizon)
    each = horizon // points
    optimizer = make(options)

    def step(state: PyTree, key: PRNGKeyArray) -> tuple[PyTree, Array]:
        params, memory = state
        loss, gradients = jax.value_and_grad(task.loss)(params, task.batch(data.train, key=key))
        updates, memory = optimizer.update(gradients, memory, params)
        return (optax.apply_updates(params, updates), memory), loss

    def part(state: PyTree, key: PRNGKeyArray) -> tuple[PyTree, tuple[Array, Array]]:
        train_key, heldout_key = jax.random.split(key)
        state, losses = jax.lax.scan(step, state, jax.random.split(train_key, each))
        heldout = jax.lax.map(
            lambda k: task.loss(state[0], task.batch(data.heldout, key=k)),
            jax.random.split(heldout_key, _HELDOUT_BATCHES),
        )
        return state, (jnp.mean(losses), jnp.mean(heldout))

    def one(key: PRNGKeyArray) -> tuple[Array, Array]:
        init_key, key = jax.random.split(key)
        params = task.init(key=init_key)
        state = (params, optimizer.init(params))
        return jax.lax.scan(part, state, jax.random.split(key, points))[1]

    return jax.vmap(one)(keys)
