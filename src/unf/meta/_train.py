"""Meta-training: many estimates and meta-updates in one call of a compiled function."""

from math import gcd
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from .._devices import UnevenError, connect, even_mesh, put
from ._estimators import Estimator, EvolutionStrategies, MeanEstimator


class MetaState(NamedTuple):
    """The state of meta-training; with the seed, all that is needed to continue.

    Attributes:
        theta: the meta-learned parameters, a tree of arrays.
        memory: the state of the meta-optimizer.
        runs: the state of the estimator.
        step: the number of meta-updates so far.
    """

    theta: Any
    memory: PyTree
    runs: PyTree
    step: Int[Array, ""]


class Metrics(NamedTuple):
    """For each meta-step: the inner training loss, the gradient's norm, the number of lost runs."""

    loss: Float[Array, " steps"]
    gradient_norm: Float[Array, " steps"]
    lost: Int[Array, " steps"]


def begin(
    problem: Any,
    estimator: Estimator,
    optimizer: optax.GradientTransformation,
    theta: Any,
    *,
    key: PRNGKeyArray,
) -> MetaState:
    """The state before the first meta-step.

    The key draws the initial states of the runs; `advance` needs another one. The problem is
    what the estimator takes: a `Problem`, or a tuple of them for a `MeanEstimator`.
    """
    runs = eqx.filter_jit(estimator.init)(problem, theta, key=key)
    return MetaState(theta, optimizer.init(theta), runs, jnp.zeros((), jnp.int32))


def shard(state: MetaState, problem: Any, estimator: Estimator) -> tuple[MetaState, Any]:
    """Shard pairs of runs across all devices of all processes, and replicate everything else.

    Raises:
        UnevenError: if the pairs cannot be sharded evenly across the processes.
    """
    if not (pairs := _pairs(estimator)):
        if jax.process_count() > 1:
            raise UnevenError("full unrolls run in one process; choose another estimator")
        return state, problem
    connect(even_mesh(pairs, "pairs"))
    replicated, sharded = _shardings(pairs)
    data, rest = eqx.partition(problem, eqx.is_array)
    placed = put(state._replace(runs=None), replicated)
    problem = eqx.combine(put(data, replicated), rest)
    return placed._replace(runs=put(state.runs, sharded)), problem


def _pairs(estimator: Estimator) -> int:
    """How many parts runs can be sharded into; 0 if they are not pairs."""
    if isinstance(estimator, MeanEstimator):
        counts = [_pairs(one) for one in estimator.estimators]
        return gcd(*counts) if all(counts) else 0
    return estimator.pairs if isinstance(estimator, EvolutionStrategies) else 0


def _shardings(pairs: int) -> tuple[NamedSharding, NamedSharding]:
    """The shardings of replicated arrays, and of arrays sharded by pairs."""
    mesh = even_mesh(pairs, "pairs")
    return NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("pairs"))


def _keep_sharded(
    state: MetaState, metrics: Metrics, estimator: Estimator
) -> tuple[MetaState, Metrics]:
    """Keep the shardings of `shard`, so that every process can read replicated arrays."""
    if not (pairs := _pairs(estimator)):
        return state, metrics
    keep = jax.lax.with_sharding_constraint
    replicated, sharded = _shardings(pairs)
    same, metrics = keep((state._replace(runs=None), metrics), replicated)
    return same._replace(runs=keep(state.runs, sharded)), metrics


@eqx.filter_jit
def advance(
    problem: Any,
    estimator: Estimator,
    update: Any,
    state: MetaState,
    count: Int[Array, ""],
    *,
    key: PRNGKeyArray,
    at_most: int,
) -> tuple[MetaState, Metrics]:
    """Make `count` meta-steps in one call; estimates that are not finite change nothing.

    Args:
        problem: the problem to unroll, or a tuple of them for a `MeanEstimator`.
        estimator: estimates gradients.
        update: the update function of the meta-optimizer.
        state: the state to continue from.
        count: the number of meta-steps.
        key: the same in every call; each step folds its number into it.
        at_most: the largest `count` to compile for, and the length of the metrics.
    """
    empty = Metrics(*(jnp.zeros(at_most, dtype) for dtype in (jnp.float32, jnp.float32, jnp.int32)))

    def body(i: Array, carry: tuple[MetaState, Metrics]) -> tuple[MetaState, Metrics]:
        state, metrics = carry
        estimate, runs = estimator.estimate(
            problem, state.theta, state.runs, key=jax.random.fold_in(key, state.step)
        )
        updates, memory = update(estimate.gradient, state.memory, state.theta)
        learned = optax.apply_updates(state.theta, updates), memory
        squares = [jnp.sum(jnp.square(g)) for g in jax.tree.leaves(estimate.gradient)]
        norm = jnp.sqrt(jnp.sum(jnp.stack(squares)))
        found = Metrics(estimate.loss, norm, estimate.lost)
        metrics = jax.tree.map(
            lambda all, one: all.at[i].set(one.astype(all.dtype)), metrics, found
        )
        theta, memory = jax.tree.map(
            lambda new, old: jnp.where(jnp.isfinite(norm), new, old),
            learned,
            (state.theta, state.memory),
        )
        return MetaState(theta, memory, runs, state.step + 1), metrics

    state, metrics = jax.lax.fori_loop(0, count, body, (state, empty))
    return _keep_sharded(state, metrics, estimator)
