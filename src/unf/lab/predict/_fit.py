"""The predictors, and training several together, each from its own seed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ..._devices import connect, even_mesh, put, to_host
from ..._persistence import Checkpoints
from ...models import Invariant, InvariantDeepSet, InvariantUNF, StatNN
from ...nn import stack_channels
from ...spec import WeightSpace
from .._progress import Progress
from .._scores import kendall_tau

_STEPS_PER_CALL = 50


class PredictError(ValueError):
    """A predictor cannot be trained or used: what is wrong, where, and the remedy."""


@dataclass(frozen=True)
class Training:
    """How a predictor is trained; the defaults are the paper's (§4.1)."""

    epochs: int = 10
    """Passes over the training networks."""
    batch_size: int = 10
    """Networks in a batch."""
    learning_rate: float = 1e-3
    """Learning rate of Adam."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Keep the learning rate constant, or let it decay as a cosine after one epoch of warm-up."""
    weight_decay: float = 0.0
    """Decoupled weight decay."""
    clip: float = 0.0
    """Largest allowed norm of a gradient; 0 turns clipping off."""

    def __post_init__(self):
        if self.epochs < 1 or self.batch_size < 1:
            raise ValueError(
                f"epochs is {self.epochs} and batch_size {self.batch_size}; expected at least 1"
            )
        if self.schedule not in ("constant", "cosine"):
            raise ValueError(f"schedule is {self.schedule!r}; expected 'constant' or 'cosine'")
        if not self.learning_rate > 0 or min(self.weight_decay, self.clip) < 0:
            raise ValueError(
                f"learning_rate is {self.learning_rate}, weight_decay {self.weight_decay} and clip "
                f"{self.clip}; expected a positive learning rate and no negative numbers"
            )


@dataclass(frozen=True)
class Method:
    """A kind of predictor.

    Attributes:
        title: its name in tables.
        make: makes one from a weight space and a key.
        defaults: where its training differs from the paper's.
    """

    title: str
    make: Callable[[WeightSpace, PRNGKeyArray], Invariant]
    defaults: Mapping[str, Any] = field(default_factory=dict)


def _unf_plus(space: WeightSpace, key: PRNGKeyArray) -> Invariant:
    more: dict[str, Any] = {"statistics": ("mean", "std"), "raw_statistics": True}
    return InvariantUNF(space.relax(), 1, 1, key=key, products=16, **more)


METHODS: dict[str, Method] = {
    "deepset": Method("Deep Set", lambda space, key: InvariantDeepSet(space, 1, 1, key=key)),
    "statnn": Method("StatNN", lambda space, key: StatNN(space, 1, 1, key=key)),
    "unf": Method(
        "UNF, as in the paper", lambda space, key: InvariantUNF(space.relax(), 1, 1, key=key)
    ),
    "unf-plus": Method(
        "UNF, beyond the paper",
        _unf_plus,
        {"epochs": 12, "learning_rate": 3e-3, "schedule": "cosine", "clip": 1.0},
    ),
}
"""Predictors by name. Like the paper, `unf` permutes every axis. So does `unf-plus`, which also
multiplies weight matrices, pools more than means, reads the statistics of the weights themselves,
and trains a little longer with a learning-rate schedule."""


class Examples(NamedTuple):
    """Networks' weights, leaves stacked, and the success rates to predict."""

    weights: PyTree
    success: Any


class Fit(NamedTuple):
    """Trained predictors, stacked along a leading axis of seeds, and their history."""

    models: Any
    losses: Float[np.ndarray, "epochs seeds"]
    valid_tau: Float[np.ndarray, "epochs seeds"]


class _State(NamedTuple):
    """What training continues from: arrays with a leading axis of seeds."""

    models: Any
    states: Any
    best: Any


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
    """Train with binary cross entropy; keep each seed's epoch with the best validation τ.

    Batches are sharded across all devices of all processes.

    Args:
        make: makes a predictor from a key.
        train: the examples to train on.
        valid: the examples to choose the epoch by.
        training: the training settings.
        seeds: one predictor is trained for each.
        progress: counts steps.
        checkpoints: where to resume from, and where to save the state after each epoch.

    Raises:
        PredictError: if a predictor diverges in every epoch.
    """
    networks = len(train.success)
    size = min(training.batch_size, networks)
    steps = networks // size
    mesh = even_mesh(size, "batch")
    connect(mesh)
    replicated = NamedSharding(mesh, PartitionSpec())
    sharded = NamedSharding(mesh, PartitionSpec(None, None, "batch"))
    optimizer = _optimizer(training, steps)
    state, static = _start(make, optimizer, seeds)
    epochs, state, notes = (checkpoints and checkpoints.restore(state)) or (0, state, {})
    losses, taus = (
        list(np.array(notes.get(name, []), float).reshape(epochs, len(seeds)))
        for name in ("losses", "taus")
    )
    best_tau = np.fmax.reduce([np.full(len(seeds), -np.inf), *taus])
    true, seen = np.asarray(valid.success, float), jax.device_put(valid.weights)
    state, train = put(state, replicated), put(train, replicated)
    progress.advance(epochs * steps)
    for epoch in range(epochs, training.epochs):
        models, states, best = state
        order = put(_order(seeds, epoch, steps, size, networks), sharded)
        total = np.zeros(len(seeds))
        for first in range(0, steps, _STEPS_PER_CALL):
            count = min(_STEPS_PER_CALL, steps - first)
            span = jnp.array([first, first + count])
            models, states, loss = _advance(
                models, static, states, optimizer.update, train, order, span
            )
            total += np.asarray(loss, np.float64)
            progress.advance(count, f"epoch {epoch + 1} of {training.epochs}")
        losses.append(np.asarray(total / steps))
        predicted = predict(eqx.combine(models, static), seen)
        taus.append(np.array([kendall_tau(row, true) for row in predicted]))
        best = _choose(jnp.asarray(taus[-1] > best_tau), models, best)
        state, best_tau = _State(models, states, best), np.fmax(taus[-1], best_tau)
        progress.advance(0, f"validation τ {np.mean(best_tau):.4f}")
        if checkpoints is not None:  # numbers as text, since JSON has no NaN
            notes = {"losses": losses, "taus": taus}
            notes = {name: np.array(rows).astype(str).tolist() for name, rows in notes.items()}
            checkpoints.save(epoch + 1, state, notes)
    if not np.isfinite(best_tau).all():
        bad = [seed for seed, tau in zip(seeds, best_tau, strict=True) if not np.isfinite(tau)]
        raise PredictError(
            f"the predictors of seeds {bad} diverged in every epoch; choose a smaller "
            "learning_rate="
        )
    return Fit(eqx.combine(state.best, static), np.array(losses), np.array(taus))


def predict(models: Any, weights: PyTree, *, batch_size: int = 32) -> Float[np.ndarray, "seeds n"]:
    """Predict success rates with each of several stacked predictors, in this process alone."""
    models = to_host(models)
    size = len(jax.tree.leaves(weights)[0])
    parts = []
    for first in range(0, size, batch_size):
        rows = np.minimum(np.arange(first, first + batch_size), size - 1)  # one size, one program
        parts.append(_predict(models, jax.tree.map(lambda x, i=rows: x[i], weights)))
    return np.concatenate([np.asarray(part, np.float64) for part in parts], axis=1)[:, :size]


def invariance_gap(models: Any, space: WeightSpace, weights: PyTree, *, seed: int) -> float:
    """The largest change of a prediction when each network's hidden neurons are reordered."""
    keys = jax.random.split(jax.random.key(seed), len(jax.tree.leaves(weights)[0]))
    moved = jax.vmap(lambda x, key: space.permute(x, space.sample_permutation(key)))(weights, keys)
    return float(np.max(np.abs(predict(models, weights) - predict(models, moved))))


def _start(
    make: Callable[[PRNGKeyArray], Any], optimizer: optax.GradientTransformation, seeds: list[int]
) -> tuple[_State, Any]:
    """The state before training, and the parts of the predictors that are not arrays."""
    keys = jnp.stack([jax.random.key(seed) for seed in seeds])
    models, static = eqx.partition(eqx.filter_vmap(make)(keys), eqx.is_array)
    jax.block_until_ready(models)  # fail here if memory is short, not later at each array
    states = jax.block_until_ready(jax.jit(jax.vmap(optimizer.init))(models))
    return _State(models, states, models), static


@lru_cache  # the same functions again, so that nothing is recompiled
def _optimizer(training: Training, steps: int) -> optax.GradientTransformation:
    rate: Any = training.learning_rate
    if training.schedule == "cosine":
        total = max(2, training.epochs * steps)
        rate = optax.warmup_cosine_decay_schedule(0.0, rate, min(steps, total // 2), total)
    adam = optax.adamw(rate, weight_decay=training.weight_decay)
    return optax.chain(optax.clip_by_global_norm(training.clip), adam) if training.clip else adam


def _order(
    seeds: list[int], epoch: int, steps: int, size: int, count: int
) -> Int[np.ndarray, "{steps} seeds {size}"]:
    """The examples of every batch of an epoch, in each seed's own random order."""
    orders = [np.random.default_rng([seed, epoch]).permutation(count) for seed in seeds]
    batches = np.stack(orders)[:, : steps * size].reshape(len(seeds), steps, size)
    return np.ascontiguousarray(batches.swapaxes(0, 1), np.int32)


@eqx.filter_jit
def _advance(
    models: Any,
    static: Any,
    states: Any,
    update: Callable,
    examples: Examples,
    order: Int[Array, "steps seeds batch"],
    span: Int[Array, "2"],
) -> tuple[Any, Any, Float[Array, " seeds"]]:
    """Train on the batches from one step to another; the loss is summed over them."""

    def loss(model: Any, batch: Examples) -> Array:
        logits = jax.vmap(eqx.combine(model, static))(stack_channels(batch.weights))[:, 0]
        return jnp.mean(optax.sigmoid_binary_cross_entropy(logits, batch.success))

    def step(model: Any, state: Any, rows: Int[Array, " batch"]) -> tuple[Any, Any, Array]:
        batch = jax.tree.map(lambda x: x[rows], examples)
        value, gradient = jax.value_and_grad(loss)(model, batch)
        updates, state = update(gradient, state, model)
        return optax.apply_updates(model, updates), state, value

    def body(i: Array, carry: Any) -> Any:
        models, states, total = carry
        models, states, values = jax.vmap(step)(models, states, order[i])
        return models, states, total + values

    total = jnp.zeros(order.shape[1])
    return jax.lax.fori_loop(span[0], span[1], body, (models, states, total))


@eqx.filter_jit
def _predict(models: Any, weights: PyTree) -> Array:
    each = eqx.filter_vmap(lambda m, x: m(x)[0], in_axes=(None, 0))
    every = eqx.filter_vmap(each, in_axes=(eqx.if_array(0), None))
    return jax.nn.sigmoid(every(models, stack_channels(weights)))


@jax.jit
def _choose(better: Array, new: Any, old: Any) -> Any:
    """For each seed, one of two predictors."""
    return jax.tree.map(
        lambda a, b: jnp.where(better.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, old
    )
