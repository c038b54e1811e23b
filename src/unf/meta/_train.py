"""Meta-training: many estimates and meta-updates in one call of a compiled function."""

from math import gcd
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree, UInt32

from .._devices import UnevenError, connect, even_mesh, put
from ._estimators import Backpropagation, Estimator, EvolutionStrategies, MeanEstimator


class MetaState(NamedTuple):
    """The state of meta-training; with the seed, all that is needed to continue.

    Several meta-trainings at once have an additional first axis, in all arrays.

    Attributes:
        theta: the meta-learned parameters, a tree of arrays.
        memory: the state of the meta-optimizer.
        runs: the state of the estimator.
        step: the number of meta-updates so far.
    """

    theta: Any
    memory: PyTree
    runs: PyTree
    step: Int[Array, "*copies"]


class Metrics(NamedTuple):
    """For each meta-step: the inner training loss, the gradient's norm, the number of lost runs."""

    loss: Float[Array, "*copies steps"]
    gradient_norm: Float[Array, "*copies steps"]
    lost: Int[Array, "*copies steps"]


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
    """Shard runs, or pairs of them, across all devices of all processes, and replicate everything else.

    Raises:
        UnevenError: if the runs cannot be sharded evenly across the processes.
    """
    if not (runs := _runs(estimator)):
        if jax.process_count() > 1:
            name = type(estimator).__name__
            raise UnevenError(f"{name} runs in one process; choose another estimator")
        return state, problem
    connect(even_mesh(runs, "runs"))
    replicated, sharded = _shardings(runs, state)
    data, rest = eqx.partition(problem, eqx.is_array)
    placed = put(state._replace(runs=None), replicated)
    problem = eqx.combine(put(data, replicated), rest)
    return placed._replace(runs=put(state.runs, sharded)), problem


def _runs(estimator: Estimator) -> int:
    """How many parts the runs can be sharded into; 0 if that is unknown."""
    if isinstance(estimator, MeanEstimator):
        counts = [_runs(one) for one in estimator.estimators]
        return gcd(*counts) if all(counts) else 0
    if isinstance(estimator, Backpropagation):
        return estimator.runs
    return estimator.pairs if isinstance(estimator, EvolutionStrategies) else 0


def _shardings(runs: int, state: MetaState) -> tuple[NamedSharding, NamedSharding]:
    """The shardings of replicated arrays, and of arrays sharded by runs."""
    mesh, copies = even_mesh(runs, "runs"), [None] * state.step.ndim
    by_runs = NamedSharding(mesh, PartitionSpec(*copies, "runs"))
    return NamedSharding(mesh, PartitionSpec()), by_runs


def _keep_sharded(
    state: MetaState, metrics: Metrics, estimator: Estimator
) -> tuple[MetaState, Metrics]:
    """Keep the shardings of `shard`, so that every process can read replicated arrays."""
    if not (runs := _runs(estimator)):
        return state, metrics
    keep = jax.lax.with_sharding_constraint
    replicated, sharded = _shardings(runs, state)
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
    key: Key[Array, "*copies"] | UInt32[Array, "*copies 2"],
    at_most: int,
) -> tuple[MetaState, Metrics]:
    """Make `count` meta-steps in one call; estimates that are not finite change nothing.

    Several meta-trainings on one problem run in one call if their estimators, states and keys are
    stacked: `jax.tree.map(lambda *x: jnp.stack(x), *several)`.

    Args:
        problem: the problem to unroll, or a tuple of them for a `MeanEstimator`.
        estimator: estimates gradients.
        update: the update function of the meta-optimizer.
        state: the state to continue from.
        count: the number of meta-steps.
        key: the same in every call; each step folds its number into it.
        at_most: the largest `count` to compile for, and the length of the metrics.
    """

    def one(estimator: Estimator, state: MetaState, key: PRNGKeyArray) -> tuple:
        return _advance(problem, estimator, update, state, count, key, at_most)

    run: Any = eqx.filter_vmap(one) if state.step.ndim else one
    state, metrics = run(estimator, state, key)
    return _keep_sharded(state, metrics, estimator)


def _advance(
    problem: Any,
    estimator: Estimator,
    update: Any,
    state: MetaState,
    count: Int[Array, ""],
    key: PRNGKeyArray,
    at_most: int,
) -> tuple[MetaState, Metrics]:
    """Make meta-steps of one meta-training."""
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

    return jax.lax.fori_loop(0, count, body, (state, empty))
