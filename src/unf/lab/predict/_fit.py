"""Training several predictors together, each from its own seed and in its own order."""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ..._devices import connect, even_mesh, put, to_host
from ...nn import stack_channels
from .._checkpoint import CheckpointError, Checkpoints
from .._progress import Progress
from .._scores import kendall_tau
from ._batches import Examples, labels, slabs
from ._methods import PredictError, Training


class Fit(NamedTuple):
    """Trained predictors, stacked along a leading axis of seeds, and how they came about."""

    models: Any
    losses: Float[np.ndarray, "epochs seeds"]
    valid_tau: Float[np.ndarray, "epochs seeds"]


def fit(
    make: Callable[[PRNGKeyArray], Any],
    train: Examples,
    valid: Examples,
    training: Training,
    *,
    seeds: list[int],
    progress: Progress,
    checkpoints: Checkpoints | None = None,
) -> Fit:
    """Train by binary cross entropy; of each seed, keep the epoch with the best validation tau.

    Batches are spread over all devices of all processes.

    Args:
        make: makes a predictor from a key.
        train: what to train on.
        valid: what to choose the epoch by.
        training: how.
        seeds: one predictor each.
        progress: counts steps.
        checkpoints: where to go on from, and to write the state after each epoch.
    """
    keys = jnp.stack([jax.random.key(seed) for seed in seeds])
    size = min(training.batch_size, len(train.success))
    mesh = even_mesh(size, "batch")
    connect(mesh)
    everywhere = NamedSharding(mesh, PartitionSpec())
    models, static = eqx.partition(eqx.filter_vmap(make)(keys), eqx.is_array)
    jax.block_until_ready(models)  # without memory for them, not one more wait for each array
    steps = len(train.success) // size
    optimizer = _optimizer(training, steps)
    states = jax.block_until_ready(jax.jit(jax.vmap(optimizer.init))(models))
    now = _State(models, states, models)
    epochs, now, notes = (checkpoints and checkpoints.restore(now)) or (0, now, {})
    losses, taus = (_rows(notes, name, epochs, len(seeds)) for name in ("losses", "taus"))
    best_tau = np.max([np.full(len(seeds), -np.inf), *map(_or_worst, taus)], axis=0)
    models, states, best = put(now, everywhere)
    models, best = (eqx.combine(each, static) for each in (models, best))
    progress.advance(epochs * steps)
    for epoch in range(epochs, training.epochs):
        order = np.stack([_order(seed, epoch, len(train.success)) for seed in seeds])
        order = order[:, : steps * size].reshape(len(seeds), steps, size)
        sums = np.zeros(len(seeds))
        for slab, count in slabs(train, order, mesh):
            models, states, loss = _advance(models, states, optimizer.update, slab)
            sums += np.asarray(loss, np.float64)
            progress.advance(count, f"epoch {epoch + 1} of {training.epochs}")
        losses.append(sums / steps)
        predicted = predict(models, valid.weights)
        taus.append(np.array([kendall_tau(row, labels(valid)) for row in predicted]))
        better = taus[-1] > best_tau
        best_tau = np.where(better, taus[-1], best_tau)
        best = _choose(jnp.asarray(better), models, best)
        progress.advance(0, f"validation τ {np.mean(best_tau):.4f}")
        if checkpoints is not None:
            found = {"losses": _texts(losses), "taus": _texts(taus)}
            checkpoints.save(epoch + 1, _State(*_arrays(models, states, best)), found)
    if not np.isfinite(best_tau).all():
        bad = [seed for seed, tau in zip(seeds, best_tau, strict=True) if not np.isfinite(tau)]
        raise PredictError(
            f"the predictors of seeds {bad} diverged in every epoch; lower --learning-rate"
        )
    return Fit(best, np.array(losses), np.array(taus))


class _State(NamedTuple):
    """What training goes on from."""

    models: Any
    states: Any
    best: Any


def _arrays(*trees: Any) -> list[Any]:
    return [eqx.filter(tree, eqx.is_array) for tree in trees]


def _texts(rows: list[np.ndarray]) -> list[list[str]]:
    """Numbers as JSON can hold them, NaN too, without loss."""
    return [[repr(float(x)) for x in row] for row in rows]


def _rows(notes: Mapping[str, Any], name: str, epochs: int, seeds: int) -> list[np.ndarray]:
    try:
        return list(np.array(notes.get(name, []), float).reshape(epochs, seeds))
    except (ValueError, TypeError) as error:
        raise CheckpointError(
            f"the {name} in the last checkpoint are damaged ({error}); begin again without --resume"
        ) from error


def _or_worst(taus: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(taus), taus, -np.inf)


def predict(models: Any, weights: PyTree, *, batch_size: int = 32) -> Float[np.ndarray, "seeds n"]:
    """Predicted success rates, by each of several stacked predictors, in this process alone."""
    models = to_host(models)
    size = len(jax.tree.leaves(weights)[0])
    parts = []
    for first in range(0, size, batch_size):
        rows = np.minimum(np.arange(first, first + batch_size), size - 1)  # always as many
        parts.append(_predict(models, jax.tree.map(lambda x, i=rows: x[i], weights)))
    return np.concatenate([np.asarray(part, np.float64) for part in parts], axis=1)[:, :size]


@eqx.filter_jit
def _predict(models: Any, weights: PyTree) -> Array:
    each = eqx.filter_vmap(lambda m, x: m(x)[0], in_axes=(None, 0))
    every = eqx.filter_vmap(each, in_axes=(eqx.if_array(0), None))
    return jax.nn.sigmoid(every(models, stack_channels(weights)))


@partial(eqx.filter_jit, donate="all-except-first")
def _advance(models: Any, states: Any, update: Callable, slab: Examples) -> tuple[Any, Any, Array]:
    dynamic, static = eqx.partition(models, eqx.is_array)

    def loss(dynamic: Any, batch: Examples) -> Array:
        logits = jax.vmap(eqx.combine(dynamic, static))(stack_channels(batch.weights))[:, 0]
        return jnp.mean(optax.sigmoid_binary_cross_entropy(logits, batch.success))

    def step(dynamic: Any, state: Any, batch: Examples) -> tuple[Any, Any, Array]:
        value, gradient = jax.value_and_grad(loss)(dynamic, batch)
        updates, state = update(gradient, state, dynamic)
        return optax.apply_updates(dynamic, updates), state, value

    def body(carry: Any, batch: Examples) -> tuple[Any, Array]:
        dynamic, states = carry
        dynamic, states, values = jax.vmap(step)(dynamic, states, batch)
        return (dynamic, states), values

    (dynamic, states), values = jax.lax.scan(body, (dynamic, states), slab)
    return eqx.combine(dynamic, static), states, jnp.sum(values, axis=0)


@lru_cache  # the same functions again, so that nothing is compiled again
def _optimizer(training: Training, steps: int) -> optax.GradientTransformation:
    rate: Any = training.learning_rate
    if training.schedule == "cosine":
        total = max(2, training.epochs * steps)
        rate = optax.warmup_cosine_decay_schedule(0.0, rate, min(steps, total // 2), total)
    adam = optax.adamw(rate, weight_decay=training.weight_decay)
    return optax.chain(optax.clip_by_global_norm(training.clip), adam) if training.clip else adam


def _order(seed: int, epoch: int, size: int) -> Int[np.ndarray, " {size}"]:
    return np.random.default_rng([seed, epoch]).permutation(size)


@eqx.filter_jit
def _choose(better: Array, new: Any, old: Any) -> Any:
    """For each seed, one of two predictors."""

    def pick(a: Any, b: Any) -> Any:
        if not eqx.is_array(a):
            return a
        return jnp.where(better.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, new, old)
