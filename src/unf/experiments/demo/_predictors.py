"""Predicting a network's accuracy from its weights, with `InvariantUNF` and with `StatNN`."""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ...models import InvariantUNF, StatNN
from ...nn import stack_channels
from ...spec import WeightSpace
from ._networks import Config
from ._progress import Reporter

BATCH, RATE = 32, 3e-3


class Score(NamedTuple):
    """How well a kind of predictor did on the test networks, once for each repeat."""

    tau: Float[np.ndarray, " repeats"]
    r2: Float[np.ndarray, " repeats"]
    predictions: Float[np.ndarray, "repeats test"]


class Split(NamedTuple):
    """Weights as features, with a channel axis, and the accuracies to predict."""

    features: PyTree
    accuracies: Float[Array, " networks"]


def make_splits(params: PyTree, accuracies: Float[np.ndarray, " networks"]) -> list[Split]:
    """Three fifths for training, one for validation, one for testing; leaves standardised.

    A leaf's mean and deviation are two numbers from the training networks, so standardising
    respects every permutation.
    """
    cuts = [0, 3 * len(accuracies) // 5, 4 * len(accuracies) // 5, len(accuracies)]
    params = jax.tree.map(lambda x: (x - x[: cuts[1]].mean()) / x[: cuts[1]].std(), params)
    features = stack_channels(params)
    return [
        Split(jax.tree.map(lambda x, a=a, b=b: x[a:b], features), jnp.asarray(accuracies[a:b]))
        for a, b in pairwise(cuts)
    ]


@eqx.filter_jit
def predict(model: Callable, features: PyTree) -> Float[Array, " networks"]:
    """The predicted accuracy of each network."""
    return jax.nn.sigmoid(jax.vmap(model)(features)[:, 0])


def fit(
    model: Any, train: Split, valid: Split, epochs: int, *, key: PRNGKeyArray
) -> Iterator[tuple[Any, float]]:
    """Train by cross entropy; after each epoch, yield the model and its validation tau."""
    size = len(train.accuracies)
    batches = max(size // BATCH, 1)
    adam = _adam(batches, max(epochs, 2) * batches)
    state = adam.init(eqx.filter(model, eqx.is_array))
    for epoch in range(epochs):
        order = jax.random.permutation(jax.random.fold_in(key, epoch), size)
        batch_indices = order[: batches * BATCH].reshape(batches, -1)
        model, state = _epoch(model, state, adam.update, train, batch_indices)
        predicted = np.asarray(predict(model, valid.features))
        yield model, kendall_tau(predicted, np.asarray(valid.accuracies))


@lru_cache  # the same functions again, so that nothing is compiled again
def _adam(warmup: int, steps: int) -> optax.GradientTransformation:
    return optax.adam(optax.warmup_cosine_decay_schedule(0.0, RATE, warmup, steps))


@eqx.filter_jit
def _epoch(model: Any, state: Any, update: Callable, train: Split, batch_indices: Array) -> Any:
    dynamic, static = eqx.partition(model, eqx.is_array)

    def loss(dynamic: Any, batch: Split) -> Array:
        logits = jax.vmap(eqx.combine(dynamic, static))(batch.features)[:, 0]
        return jnp.mean(optax.sigmoid_binary_cross_entropy(logits, batch.accuracies))

    def step(carry: Any, index: Array) -> tuple[Any, None]:
        dynamic, state = carry
        gradient = jax.grad(loss)(dynamic, jax.tree.map(lambda x: x[index], train))
        updates, state = update(gradient, state)
        return (optax.apply_updates(dynamic, updates), state), None

    (dynamic, state), _ = jax.lax.scan(step, (dynamic, state), batch_indices)
    return eqx.combine(dynamic, static), state


def kendall_tau(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> float:
    """Kendall's rank correlation, tau-b; 0 if either is constant."""
    dx, dy = (np.sign(v[:, None] - v[None, :]) for v in (x, y))
    return float(np.sum(dx * dy) / max(np.linalg.norm(dx) * np.linalg.norm(dy), 1.0))


def r_squared(predicted: Float[np.ndarray, " n"], true: Float[np.ndarray, " n"]) -> float:
    """The fraction of the truth's variance that is predicted."""
    return float(1 - np.mean((predicted - true) ** 2) / np.var(true))


def score_predictors(
    space: WeightSpace,
    splits: list[Split],
    config: Config,
    *,
    report: Reporter,
    key: PRNGKeyArray,
) -> tuple[dict[str, Score], Any]:
    """Train each kind of predictor `repeats` times; the scores, and the first UNF.

    Of each run, the epoch with the best validation tau is kept. Only that model, once, sees
    the test networks. Rate and sizes were chosen on validation networks; the paper's StatNN,
    600 wide with 6 layers, is as good there and slower.
    """
    train, valid, test = splits
    true = np.asarray(test.accuracies)
    kinds = {
        "UNF": partial(InvariantUNF, space, 1, 1, mlp_width=128),
        "StatNN": partial(StatNN, space, 1, 1, mlp_width=128, mlp_layers=3),
    }
    scores, models = {}, {}
    for name, make in kinds.items():
        predictions = []
        for repeat in range(config.repeats):
            model_key, fit_key = jax.random.split(jax.random.fold_in(key, repeat))
            history = fit(make(key=model_key), train, valid, config.epochs, key=fit_key)
            label = f"training {name}, {repeat + 1} of {config.repeats}"
            best, _ = max(report.track(label, history, config.epochs), key=lambda entry: entry[1])
            predictions.append(np.asarray(predict(best, test.features)))
            models.setdefault(name, best)
        tau = np.array([kendall_tau(p, true) for p in predictions])
        r2 = np.array([r_squared(p, true) for p in predictions])
        scores[name] = Score(tau, r2, np.stack(predictions))
    return scores, models["UNF"]


def invariance_gap(model: Any, space: WeightSpace, features: PyTree, *, key: PRNGKeyArray) -> float:
    """How much predictions change when each network's hidden neurons are reordered."""
    keys = jax.random.split(key, len(jax.tree.leaves(features)[0]))
    reorder = jax.vmap(lambda x, key: space.permute(x, space.sample_permutation(key)))
    change = predict(model, features) - predict(model, reorder(features, keys))
    return float(jnp.max(jnp.abs(change)))
