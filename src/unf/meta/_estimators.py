"""Estimators of meta-gradients, behind one small interface."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ._problem import Problem

OBJECTIVES = ("mean", "final")
"""The mean loss of all steps, or the loss of the last one."""
NOISES = ("persistent", "reused", "truncated")
"""How the noise of one window relates to that of the next."""


class Estimate(NamedTuple):
    """An estimate of the gradient of the objective with respect to θ.

    Attributes:
        gradient: a tree like θ.
        loss: the mean loss over finite steps; NaN if there are none.
        lost: the number of runs, or pairs of runs, that diverged and were restarted.
    """

    gradient: PyTree
    loss: Float[Array, ""]
    lost: Int[Array, ""]


class Estimator(eqx.Module):
    """Estimates meta-gradients from runs, which continue from one estimate to the next.

    `problem` is the `Problem` to unroll; for a `MeanEstimator`, a tuple of several.
    """

    @abstractmethod
    def init(self, problem: Any, theta: Any, *, key: PRNGKeyArray) -> PyTree:
        """Start the runs."""

    @abstractmethod
    def estimate(
        self, problem: Any, theta: Any, runs: PyTree, *, key: PRNGKeyArray
    ) -> tuple[Estimate, PyTree]:
        """Continue the runs, and estimate the gradient from them."""


class Pair(NamedTuple):
    """Two runs that differ in the sign of the noise added to θ.

    Attributes:
        states: the states of both runs, along the first axis.
        noise: A, the noise that counts: the sum of what was added to θ since the runs started, or
            what is added in every window.
        clock: the step that the runs have reached in the horizon.
        whole: whether the runs started at step 0.
    """

    states: PyTree
    noise: PyTree
    clock: Int[Array, ""]
    whole: Bool[Array, ""]


class EvolutionStrategies(Estimator):
    """Antithetic evolution strategies on windows of a long unroll.

    In each window, a pair of runs continues with θ + ξ and θ − ξ, ξ ~ N(0, σ²), on the same data.
    The estimate is the mean over pairs of

        (L⁺ − L⁻) A / (2σ²)

    where L is the window's loss, and `noise` says what ξ and A are. "persistent" (PES, Vicol et al.
    2021): every window has a new ξ, and A is the sum of all since the pair started. "reused" (Li
    et al. 2023): a pair keeps its ξ from start to end, A = ξ, which is as unbiased. "truncated":
    every window has a new ξ, A = ξ, which ignores the effect of θ in earlier windows. Pairs start
    at different steps of the horizon, so that together they always cover it; a pair that reaches
    the end starts over.

    Losses are clipped at `max_loss`, and losses that are not finite are replaced by it. A pair
    with a loss that is not finite, or with both runs beyond `max_loss` at the end of a window, is
    lost: it restarts from a new state at the same step of the horizon. Without `max_loss`, such
    pairs do not count in the estimate.

    Attributes:
        horizon: T, the number of steps of an unroll.
        window: the number of steps between estimates.
        pairs: the number of pairs.
        sigma: σ, the standard deviation of the noise.
        noise: "persistent", "reused" or "truncated".
        objective: "mean" or "final", the mean loss or the last one.
        max_norm: the largest norm of the estimate from one pair; larger ones are scaled to it, so
            that a few pairs whose runs part ways cannot outweigh all others.
        max_loss: the largest loss that counts.
    """

    horizon: int = eqx.field(static=True)
    window: int = eqx.field(static=True)
    pairs: int = eqx.field(static=True)
    sigma: Float[Array, ""]
    noise: str = eqx.field(static=True)
    objective: str = eqx.field(static=True)
    max_norm: float = eqx.field(static=True)
    max_loss: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def __init__(
        self,
        horizon: int,
        *,
        window: int = 50,
        pairs: int = 16,
        sigma: float = 0.01,
        noise: str = "persistent",
        objective: str = "mean",
        max_norm: float = inf,
        max_loss: Any = jnp.inf,
    ):
        """Initialize an estimator; the defaults are the paper's.

        Raises:
            ValueError: if the horizon is not a multiple of the window, or an argument is
                invalid.
        """
        _check_window(horizon, window)
        if pairs < 1 or not 0 < sigma < inf or not max_norm > 0:
            found = f"pairs is {pairs}, sigma {sigma} and max_norm {max_norm}"
            raise ValueError(f"{found}; expected positive numbers")
        _check_objective(objective)
        if noise not in NOISES:
            raise ValueError(f"noise is {noise!r}; expected one of {NOISES}")
        self.horizon, self.window, self.pairs = horizon, window, pairs
        self.sigma, self.noise, self.objective = jnp.asarray(sigma), noise, objective
        self.max_norm, self.max_loss = max_norm, max_loss

    def init(self, problem: Problem, theta: Any, *, key: PRNGKeyArray) -> Pair:
        """Start the pairs, at different steps of the horizon."""
        clock = _clocks(self.horizon, self.window, self.pairs)
        fresh = jax.vmap(lambda k: self._fresh(problem, theta, k))(
            jax.random.split(key, self.pairs)
        )
        return fresh._replace(clock=clock, whole=clock == 0)

    def estimate(
        self, problem: Problem, theta: Any, runs: Pair, *, key: PRNGKeyArray
    ) -> tuple[Estimate, Pair]:
        """Continue every pair by one window."""
        keys = jax.random.split(key, self.pairs)
        return _average(jax.vmap(lambda x, k: self._continue(problem, theta, x, k))(runs, keys))

    def _continue(
        self, problem: Problem, theta: Any, pair: Pair, key: PRNGKeyArray
    ) -> tuple[PyTree, Array, Array, Pair]:
        """Continue one pair: its part of the estimate, its loss or NaN, whether it is lost."""
        noise_key, step_key, fresh_key = jax.random.split(key, 3)
        reused = self.noise == "reused"
        added = pair.noise if reused else _normal_like(theta, noise_key, self.sigma)
        both = jax.tree.map(lambda t, x: jnp.stack([t + x, t - x]), theta, added)
        drawn = jax.vmap(lambda k: problem.draw(key=k))(jax.random.split(step_key, self.window))

        def run(moved: Any, state: PyTree) -> tuple[PyTree, Array]:
            ready = problem.prepare(moved)
            return jax.lax.scan(lambda s, d: problem.step(ready, s, d), state, drawn)

        states, losses = jax.vmap(run)(both, pair.states)
        limit = self.max_loss.astype(losses.dtype)
        finite = jnp.isfinite(losses)
        losses = jnp.where(finite, jnp.minimum(losses, limit), limit)
        lost = ~jnp.all(finite) | jnp.all(losses[:, -1] >= limit)
        clock = pair.clock + self.window
        at_end = clock >= self.horizon
        sums = self.noise == "persistent"
        noise = jax.tree.map(jnp.add, pair.noise, added) if sums else added
        counts = _window_loss(self, losses, at_end & pair.whole)
        slope = (counts[0] - counts[1]) / (2 * self.sigma.astype(counts.dtype) ** 2)
        usable = jnp.isfinite(slope) & jnp.all(jnp.isfinite(losses))
        slope = jnp.where(usable, slope, 0)
        size = (
            jnp.abs(slope) * jnp.linalg.norm(ravel_pytree(noise)[0]) if self.max_norm < inf else 0.0
        )
        slope = slope / jnp.maximum(1, size / self.max_norm)
        part = jax.tree.map(lambda n: slope.astype(n.dtype) * n, noise)
        fresh = self._fresh(problem, theta, fresh_key)
        fresh = fresh._replace(clock=jnp.where(at_end, 0, clock), whole=at_end)
        old = Pair(states, noise, clock, pair.whole)
        pair = jax.tree.map(lambda a, b: jnp.where(at_end | lost, a, b), fresh, old)
        return part, jnp.where(usable, jnp.mean(losses), jnp.nan), lost, pair

    def _fresh(self, problem: Problem, theta: Any, key: PRNGKeyArray) -> Pair:
        state = problem.init(problem.prepare(theta), key=key)
        states = jax.tree.map(lambda x: jnp.stack([x, x]), state)
        noise = jax.tree.map(jnp.zeros_like, theta)
        if self.noise == "reused":
            noise = _normal_like(theta, jax.random.fold_in(key, 1), self.sigma)
        return Pair(states, noise, jnp.zeros((), jnp.int32), jnp.ones((), bool))


class Run(NamedTuple):
    """A run that is differentiated window by window.

    Attributes:
        state: its state.
        clock: the step that it has reached in the horizon.
        whole: whether it started at step 0.
        fresh: whether it starts from a new state in the next window.
    """

    state: PyTree
    clock: Int[Array, ""]
    whole: Bool[Array, ""]
    fresh: Bool[Array, ""]


class Backpropagation(Estimator):
    """Differentiating through windows of an unroll, in reverse mode.

    If the window is the whole horizon, this is the exact gradient, but memory grows with the
    horizon, and over many steps the gradient may explode. Shorter windows are truncated
    backpropagation through time: a run continues from where it was, and the effect of θ in earlier
    windows is ignored. That is a bias toward what helps soon, but the estimate has much less noise
    than evolution strategies have, whose noise grows with the number of parameters.

    Runs start at different steps of the horizon, and a run that reaches the end starts over, as do
    runs with a loss that is not finite or that end a window beyond `max_loss`. Estimates that are
    not finite do not count, and losses beyond `max_loss` have no gradient.

    Attributes:
        horizon: T, the number of steps of an unroll.
        window: the number of steps to differentiate through.
        runs: the number of runs to average.
        objective: "mean" or "final", the mean loss or the last one.
        max_norm: the largest norm of the gradient of one run; larger ones are scaled to it.
        max_loss: the largest loss that counts.
    """

    horizon: int = eqx.field(static=True)
    window: int = eqx.field(static=True)
    runs: int = eqx.field(static=True)
    objective: str = eqx.field(static=True)
    max_norm: float = eqx.field(static=True)
    max_loss: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def __init__(
        self,
        horizon: int,
        *,
        window: int | None = None,
        runs: int = 1,
        objective: str = "mean",
        max_norm: float = inf,
        max_loss: Any = jnp.inf,
    ):
        """Initialize an estimator; without a window, it differentiates through whole unrolls.

        Raises:
            ValueError: if the horizon is not a multiple of the window, or an argument is
                invalid.
        """
        window = horizon if window is None else window
        _check_window(horizon, window)
        if runs < 1 or not max_norm > 0:
            raise ValueError(f"runs is {runs} and max_norm {max_norm}; expected positive numbers")
        _check_objective(objective)
        self.horizon, self.window, self.runs = horizon, window, runs
        self.objective, self.max_norm, self.max_loss = objective, max_norm, max_loss

    def init(self, problem: Problem, theta: Any, *, key: PRNGKeyArray) -> Run:
        """Start the runs, at different steps of the horizon."""
        clock, ready = _clocks(self.horizon, self.window, self.runs), problem.prepare(theta)
        keys = jax.random.split(key, self.runs)
        states = jax.vmap(lambda k: problem.init(ready, key=k))(keys)
        return Run(states, clock, clock == 0, jnp.ones(self.runs, bool))

    def estimate(
        self, problem: Problem, theta: Any, runs: Run, *, key: PRNGKeyArray
    ) -> tuple[Estimate, Run]:
        """Continue every run by one window, and differentiate."""
        keys = jax.random.split(key, self.runs)
        return _average(jax.vmap(lambda x, k: self._continue(problem, theta, x, k))(runs, keys))

    def _continue(
        self, problem: Problem, theta: Any, run: Run, key: PRNGKeyArray
    ) -> tuple[PyTree, Array, Array, Run]:
        """Continue one run: its gradient, its loss or NaN, whether it is lost."""
        fresh_key, step_key = jax.random.split(key)
        inputs = jax.random.split(step_key, self.window)
        if self.window < self.horizon:
            inputs = jax.vmap(lambda k: problem.draw(key=k))(inputs)
        clock = run.clock + self.window
        at_end = clock >= self.horizon

        def objective(theta: Any) -> tuple[Array, tuple[PyTree, Array]]:
            ready = problem.prepare(theta)
            fresh = problem.init(ready, key=fresh_key)
            state = jax.tree.map(lambda a, b: jnp.where(run.fresh, a, b), fresh, run.state)
            state, losses = jax.lax.scan(self._step_of(problem, ready), state, inputs)
            counts = jnp.minimum(losses, self.max_loss.astype(losses.dtype))
            return _window_loss(self, counts, at_end & run.whole), (state, losses)

        gradient, (state, losses) = jax.grad(objective, has_aux=True)(theta)
        norm = jnp.linalg.norm(ravel_pytree(gradient)[0])
        finite = jnp.all(jnp.isfinite(losses))
        usable = finite & jnp.isfinite(norm)
        factor = 1 / jnp.maximum(1, norm / self.max_norm)
        gradient = jax.tree.map(
            lambda g: jnp.where(usable, factor.astype(g.dtype) * g, 0), gradient
        )
        lost = ~finite | (losses[-1] >= self.max_loss)
        run = Run(state, jnp.where(at_end, 0, clock), at_end | (run.whole & ~lost), at_end | lost)
        return gradient, jnp.where(usable, jnp.mean(losses), jnp.nan), lost | ~usable, run

    def _step_of(self, problem: Problem, ready: Any) -> Callable:
        """A step of the loop; of a whole unroll, only states are kept, to save memory."""
        if self.window < self.horizon:
            return lambda state, drawn: problem.step(ready, state, drawn)
        return jax.checkpoint(lambda state, k: problem.step(ready, state, problem.draw(key=k)))


class MeanEstimator(Estimator):
    """The mean of the estimates on several problems, each with an estimator and runs of its own.

    Losses should be comparable, see `RelativeLoss`. A problem without a finite loss does not
    count.

    Attributes:
        estimators: one for each problem.
    """

    estimators: tuple[Estimator, ...]

    def __init__(self, estimators: Sequence[Estimator]):
        """Initialize an estimator; there must be at least one to average."""
        if not estimators:
            raise ValueError("there are no estimators; expected one for each problem")
        self.estimators = tuple(estimators)

    def init(self, problem: tuple[Problem, ...], theta: Any, *, key: PRNGKeyArray) -> tuple:
        """Start the runs of every problem."""
        parts = self.parts(problem, key)
        return tuple(one.init(each, theta, key=k) for one, each, k in parts)

    def parts(
        self, problem: tuple[Problem, ...], key: PRNGKeyArray
    ) -> list[tuple[Estimator, Problem, PRNGKeyArray]]:
        """The estimator, the problem and the key of each part."""
        if len(problem) != len(self.estimators):
            raise ValueError(
                f"{len(self.estimators)} estimators for {len(problem)} problems; expected one each"
            )
        keys = jax.random.split(key, len(self.estimators))
        return list(zip(self.estimators, problem, keys, strict=True))

    def estimate(
        self, problem: tuple[Problem, ...], theta: Any, runs: tuple, *, key: PRNGKeyArray
    ) -> tuple[Estimate, tuple]:
        """Continue the runs of every problem, and average."""
        parts = zip(self.parts(problem, key), runs, strict=True)
        estimates, runs = zip(
            *(one.estimate(each, theta, r, key=k) for (one, each, k), r in parts), strict=True
        )
        return self.average(estimates), runs

    def average(self, estimates: Sequence[Estimate]) -> Estimate:
        """The mean of the problems' estimates."""
        gradients, losses, lost = zip(*estimates, strict=True)
        loss, counted = _mean_of_finite(jnp.stack(losses))
        gradient = jax.tree.map(lambda *g: sum(g) / counted.astype(g[0].dtype), *gradients)
        return Estimate(gradient, loss, jnp.stack(lost).sum(dtype=jnp.int32))


def _mean_of_finite(losses: Float[Array, " runs"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The mean of the finite losses, NaN if there are none; and their number, at least 1."""
    finite = jnp.isfinite(losses)
    counted = jnp.maximum(jnp.sum(finite), 1).astype(losses.dtype)
    mean = jnp.sum(jnp.where(finite, losses, 0)) / counted
    return jnp.where(jnp.any(finite), mean, jnp.nan), counted


def _average(each: tuple[PyTree, Array, Array, Any]) -> tuple[Estimate, Any]:
    """The estimate from all runs: their parts, their losses or NaN, which are lost, and they."""
    parts, losses, lost, runs = each
    loss, counted = _mean_of_finite(losses)
    gradient = jax.tree.map(lambda g: jnp.sum(g, axis=0) / counted.astype(g.dtype), parts)
    return Estimate(gradient, loss, jnp.sum(lost).astype(jnp.int32)), runs


def _window_loss(
    estimator: EvolutionStrategies | Backpropagation,
    losses: Float[Array, "*runs window"],
    at_end: Bool[Array, ""],
) -> Float[Array, "*runs"]:
    """The contribution of a window to the objective, times the number of windows."""
    if estimator.objective == "mean":
        return jnp.mean(losses, axis=-1)
    return jnp.where(at_end, losses[..., -1] * (estimator.horizon // estimator.window), 0)


def _clocks(horizon: int, window: int, runs: int) -> Int[Array, " runs"]:
    """Where in the horizon runs start, so that together they cover it."""
    return (jnp.arange(runs) * (horizon // window) // runs * window).astype(jnp.int32)


def _check_window(horizon: int, window: int) -> None:
    if window < 1 or horizon < 1 or horizon % window:
        raise ValueError(
            f"horizon is {horizon} and window {window}; expected a multiple of the window, "
            f"such as {max(1, round(horizon / max(window, 1))) * max(window, 1)}"
        )


def _check_objective(objective: str) -> None:
    if objective not in OBJECTIVES:
        raise ValueError(f"objective is {objective!r}; expected one of {OBJECTIVES}")


def _normal_like(tree: Any, key: PRNGKeyArray, deviation: Float[Array, ""]) -> Any:
    """Draw a tree of normal numbers at once, because a generator takes long to compile."""
    flat, unflatten = ravel_pytree(tree)
    return unflatten(deviation.astype(flat.dtype) * jax.random.normal(key, flat.shape, flat.dtype))
