"""Meta-training: estimates and meta-updates, many of them in one call."""

from collections.abc import Callable, Sequence
from itertools import repeat
from math import gcd
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree, UInt32

from .._devices import UnevenError, connect, even_mesh, in_threads, put
from ._estimators import (
    Backpropagation,
    Estimate,
    Estimator,
    EvolutionStrategies,
    MeanEstimator,
)


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
    if isinstance(estimator, MeanEstimator):
        parts = zip(*estimator.parts(problem, key), strict=True)
        runs: Any = tuple(in_threads(_started, *parts, repeat(theta)))
    else:
        runs = _started(estimator, problem, key, theta)
    return MetaState(theta, optimizer.init(theta), runs, jnp.zeros((), jnp.int32))


@eqx.filter_jit
def _started(estimator: Estimator, problem: Any, key: PRNGKeyArray, theta: Any) -> PyTree:
    return estimator.init(problem, theta, key=key)


def shard(state: MetaState, problem: Any, estimator: Estimator) -> tuple[MetaState, Any]:
    """Shard runs, or pairs of them, across all devices, and replicate everything else.

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


def _keep_sharded(state: MetaState, found: Any, estimator: Estimator) -> tuple[MetaState, Any]:
    """Keep the shardings of `shard`, so that every process can read replicated arrays."""
    if not (runs := _runs(estimator)):
        return state, found
    keep = jax.lax.with_sharding_constraint
    replicated, sharded = _shardings(runs, state)
    same, found = keep((state._replace(runs=None), found), replicated)
    return same._replace(runs=keep(state.runs, sharded)), found


def advance(
    problem: Any,
    estimator: Estimator,
    update: Any,
    state: MetaState,
    count: Int[Array, ""] | int,
    *,
    key: Key[Array, "*copies"] | UInt32[Array, "*copies 2"],
    at_most: int,
) -> tuple[MetaState, Metrics]:
    """Make `count` meta-steps; estimates that are not finite change nothing.

    Several meta-trainings on one problem run at once if their estimators, states and keys are
    stacked: `jax.tree.map(lambda *x: jnp.stack(x), *several)`.

    Args:
        problem: the problem to unroll, or a tuple of them for a `MeanEstimator`.
        estimator: estimates gradients.
        update: the update function of the meta-optimizer. Its arrays, if it is a module that has
            some, differ between several meta-trainings.
        state: the state to continue from.
        count: the number of meta-steps.
        key: the same in every call; each step folds its number into it.
        at_most: the largest `count` to compile for, and the length of the metrics.
    """
    if isinstance(estimator, MeanEstimator):
        return _advance_together(problem, estimator, update, state, int(count), key, at_most)
    return _advance(problem, estimator, update, state, jnp.asarray(count), key, at_most)


@eqx.filter_jit
def _advance(
    problem: Any,
    estimator: Estimator,
    update: Any,
    state: MetaState,
    count: Int[Array, ""],
    key: Any,
    at_most: int,
) -> tuple[MetaState, Metrics]:
    """Make meta-steps on one problem, all in one program."""

    def one(estimator: Estimator, update: Any, state: MetaState, key: PRNGKeyArray) -> tuple:
        def body(i: Array, carry: tuple[MetaState, Metrics]) -> tuple[MetaState, Metrics]:
            state, metrics = carry
            estimate, runs = estimator.estimate(
                problem, state.theta, state.runs, key=jax.random.fold_in(key, state.step)
            )
            state, found = _updated(update, state, estimate)
            metrics = jax.tree.map(lambda all, one: all.at[i].set(one), metrics, found)
            return state._replace(runs=runs), metrics

        dtypes = (jnp.float32, jnp.float32, jnp.int32)
        empty = Metrics(*(jnp.zeros(at_most, dtype) for dtype in dtypes))
        return jax.lax.fori_loop(0, count, body, (state, empty))

    state, metrics = _each(one, state)(estimator, update, state, key)
    return _keep_sharded(state, metrics, estimator)


def _each(function: Callable, state: MetaState) -> Callable:
    """A function of one meta-training, for all that run at once."""
    return eqx.filter_vmap(function) if state.step.ndim else function


def _updated(update: Any, state: MetaState, estimate: Estimate) -> tuple[MetaState, Metrics]:
    """The state after a meta-update, with the same runs; and the metrics of the step."""
    updates, memory = update(estimate.gradient, state.memory, state.theta)
    learned = optax.apply_updates(state.theta, updates), memory
    squares = [jnp.sum(jnp.square(g)) for g in jax.tree.leaves(estimate.gradient)]
    norm = jnp.sqrt(jnp.sum(jnp.stack(squares)))
    theta, memory = jax.tree.map(
        lambda new, old: jnp.where(jnp.isfinite(norm), new, old),
        learned,
        (state.theta, state.memory),
    )
    loss, norm = estimate.loss.astype(jnp.float32), norm.astype(jnp.float32)
    found = Metrics(loss, norm, estimate.lost.astype(jnp.int32))
    return MetaState(theta, memory, state.runs, state.step + 1), found


def _advance_together(
    problems: tuple,
    estimator: MeanEstimator,
    update: Any,
    state: MetaState,
    count: int,
    key: Any,
    at_most: int,
) -> tuple[MetaState, Metrics]:
    """Make meta-steps on several problems, with a program for each: they compile side by side."""
    found = []
    for i in range(count):
        keys, bare = _problem_keys(state, key, len(problems)), state._replace(runs=None)
        each: Callable = map if i else in_threads  # only the first step compiles
        parts = each(_estimated, problems, estimator.estimators, state.runs, keys, repeat(bare))
        estimates, runs = zip(*parts, strict=True)
        state, metrics = _updated_together(estimator, update, bare, estimates)
        state = state._replace(runs=runs)
        found.append(metrics)
    return state, _stacked(found, at_most)


@eqx.filter_jit
def _problem_keys(state: MetaState, key: Any, count: int) -> list[Any]:
    def one(step: Array, key: PRNGKeyArray) -> list[PRNGKeyArray]:
        return list(jax.random.split(jax.random.fold_in(key, step), count))

    return _each(one, state)(state.step, key)


@eqx.filter_jit
def _estimated(
    problem: Any, estimator: Estimator, runs: PyTree, key: Any, state: MetaState
) -> tuple[Estimate, PyTree]:
    def one(estimator: Estimator, theta: Any, runs: PyTree, key: PRNGKeyArray) -> tuple:
        return estimator.estimate(problem, theta, runs, key=key)

    estimate, runs = _each(one, state)(estimator, state.theta, runs, key)
    state, estimate = _keep_sharded(state._replace(runs=runs), estimate, estimator)
    return estimate, state.runs


@eqx.filter_jit
def _updated_together(
    estimator: MeanEstimator, update: Any, state: MetaState, estimates: Sequence[Estimate]
) -> tuple[MetaState, Metrics]:
    def one(
        update: Any, state: MetaState, estimates: Sequence[Estimate]
    ) -> tuple[MetaState, Metrics]:
        return _updated(update, state, estimator.average(estimates))

    return _each(one, state)(update, state, estimates)


@eqx.filter_jit
def _stacked(found: list[Metrics], at_most: int) -> Metrics:
    """The metrics of all steps along the last axis, and zeros up to its full length."""

    def stack(*values: Array) -> Array:
        stacked = jnp.stack(values, axis=-1)
        before = [(0, 0)] * (stacked.ndim - 1)
        return jnp.pad(stacked, [*before, (0, at_most - len(values))])

    return jax.tree.map(stack, *found)
