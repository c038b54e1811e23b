"""Meta-training: estimates and meta-updates, many to one call of one compiled function."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from .._devices import UnevenError, connect, even_mesh, put
from ._estimators import Estimator, EvolutionStrategies
from ._problem import Problem


class MetaState(NamedTuple):
    """Where meta-training is; with the seed, all that is needed to go on.

    Attributes:
        theta: what is learned, a tree of arrays.
        memory: of the meta-optimizer.
        runs: of the estimator.
        step: meta-updates so far.
    """

    theta: Any
    memory: PyTree
    runs: PyTree
    step: Int[Array, ""]


class Metrics(NamedTuple):
    """Of each meta-step: the inner training loss, the gradient's norm, runs that were lost."""

    loss: Float[Array, " steps"]
    gradient_norm: Float[Array, " steps"]
    lost: Int[Array, " steps"]


def begin(
    problem: Problem,
    estimator: Estimator,
    optimizer: optax.GradientTransformation,
    theta: Any,
    *,
    key: PRNGKeyArray,
) -> MetaState:
    """The state before the first meta-step.

    The key is for the runs' first states, and not the one that `advance` is given.
    """
    runs = eqx.filter_jit(estimator.init)(problem, theta, key=key)
    return MetaState(theta, optimizer.init(theta), runs, jnp.zeros((), jnp.int32))


def spread(state: MetaState, problem: Problem, estimator: Estimator) -> tuple[MetaState, Problem]:
    """Put pairs of runs on all devices of all processes, evenly, and everything else on each.

    Raises:
        UnevenError: if there are more processes than pairs can be spread over.
    """
    if not isinstance(estimator, EvolutionStrategies):
        if jax.process_count() > 1:
            raise UnevenError("unrolls run in one process; choose another estimator")
        return state, problem
    connect(even_mesh(estimator.pairs, "pairs"))
    everywhere, pairs = _shardings(estimator)
    data, rest = eqx.partition(problem, eqx.is_array)
    placed = put(state._replace(runs=None), everywhere)
    problem = eqx.combine(put(data, everywhere), rest)
    return placed._replace(runs=put(state.runs, pairs)), problem


def _shardings(estimator: EvolutionStrategies) -> tuple[NamedSharding, NamedSharding]:
    """The same on all devices, and cut by pairs."""
    mesh = even_mesh(estimator.pairs, "pairs")
    return NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("pairs"))


def _kept(state: MetaState, metrics: Metrics, estimator: Estimator) -> tuple[MetaState, Metrics]:
    """As `spread` left it, so that every process can read what is the same everywhere."""
    if not isinstance(estimator, EvolutionStrategies):
        return state, metrics
    keep = jax.lax.with_sharding_constraint
    everywhere, pairs = _shardings(estimator)
    same, metrics = keep((state._replace(runs=None), metrics), everywhere)
    return same._replace(runs=keep(state.runs, pairs)), metrics


@eqx.filter_jit
def advance(
    problem: Problem,
    estimator: Estimator,
    update: Any,
    state: MetaState,
    count: Int[Array, ""],
    *,
    key: PRNGKeyArray,
    at_most: int,
) -> tuple[MetaState, Metrics]:
    """Make `count` meta-steps, in one go; estimates that are not finite change nothing.

    Args:
        problem: what is unrolled.
        estimator: how gradients are estimated.
        update: of the meta-optimizer.
        state: where to go on from.
        count: how many meta-steps.
        key: the seed's; each step draws from it by its number.
        at_most: the largest `count` this is compiled for, and the length of the metrics.
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
    return _kept(state, metrics, estimator)
