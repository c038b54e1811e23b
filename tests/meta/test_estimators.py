"""Estimates of meta-gradients against exact ones."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unf.meta import Backpropagation, EvolutionStrategies, MeanEstimator, Problem

KEY = jax.random.key(0)


class Quadratic(Problem):
    """Gradient descent with learning rate e^θ on a noisy quadratic."""

    def init(self, theta, *, key):
        return 1 + 0.1 * jax.random.normal(key, (3,))

    def step(self, theta, state, key):
        curvature = jnp.array([1.0, 0.3, 0.1])
        gradient = curvature * state + 0.05 * jax.random.normal(key, (3,))
        state = state - jnp.exp(theta["rate"]) * gradient
        return state, 0.5 * jnp.sum(curvature * state**2) + 0.1 * theta["shift"] ** 2


class InfluenceBalancing(Problem):
    """A chain in which θ acts at first one way and in the long run the other (Vicol et al. 2021).

    x ← A x + (θ, …, θ, −θ, …, −θ) with ½ on A's diagonal and above it; the loss is ½ (x₁ − 1)².
    """

    size: int
    positive: int

    def init(self, theta, *, key):
        return jnp.ones(self.size)

    def step(self, theta, state, key):
        signs = jnp.where(jnp.arange(self.size) < self.positive, 1.0, -1.0)
        state = 0.5 * state + 0.5 * jnp.append(state[1:], 0.0) + signs * theta
        return state, 0.5 * (state[0] - 1) ** 2


def exact(problem, theta, horizon, objective, runs=2000):
    """The gradient by differentiating through many unrolls, and its standard error."""
    estimator = Backpropagation(horizon, objective=objective)

    def one(key):
        new = estimator.init(problem, theta, key=key)
        return estimator.estimate(problem, theta, new, key=key)[0].gradient

    one = jax.jit(jax.vmap(one))
    return mean_and_error(one(jax.random.split(jax.random.key(9), runs)))


def estimated(problem, theta, estimator, *, repeats, key=KEY):
    """The mean over one whole horizon, after all pairs began anew, of many repetitions."""
    windows = estimator.horizon // estimator.window

    def once(key):
        def body(runs, k):
            found, runs = estimator.estimate(problem, theta, runs, key=k)
            return runs, found.gradient

        runs = estimator.init(problem, theta, key=key)
        _, gradients = jax.lax.scan(body, runs, jax.random.split(key, 2 * windows))
        return jax.tree.map(lambda g: jnp.mean(g[windows:], axis=0), gradients)

    return mean_and_error(jax.jit(jax.vmap(once))(jax.random.split(key, repeats)))


@eqx.filter_jit
def estimate(estimator, problem, theta, runs, key):
    return estimator.estimate(problem, theta, runs, key=key)


def mean_and_error(samples):
    return jax.tree.map(
        lambda x: (float(jnp.mean(x)), float(jnp.std(x) / np.sqrt(len(x)))), samples
    )


THETA = {"rate": jnp.array(-2.0), "shift": jnp.array(2.0)}


@pytest.mark.parametrize("objective", ["mean", "final"])
def test_persistent_and_reused_are_unbiased_and_truncated_is_not(objective):
    true, error = exact(Quadratic(), THETA, 20, objective)["rate"]
    for noise in ("persistent", "reused"):
        es = EvolutionStrategies(20, window=5, pairs=4, objective=objective, noise=noise)
        both = estimated(Quadratic(), THETA, es, repeats=4000)
        (found, deviation), shift = both["rate"], both["shift"]
        assert abs(found - true) < 4 * np.hypot(deviation, error)
        assert abs(shift[0] - 0.4) < 4 * shift[1]
        assert deviation < 0.25 * abs(true)
    es = EvolutionStrategies(20, window=5, pairs=4, objective=objective, noise="truncated")
    biased, deviation = estimated(Quadratic(), THETA, es, repeats=4000)["rate"]
    assert abs(biased - true) > 6 * np.hypot(deviation, error)


@pytest.mark.nightly
def test_influence_balancing_separates_them():
    """Truncated to one step, the estimate has the wrong sign; the persistent one has the right."""
    problem, theta = InfluenceBalancing(11, 3), jnp.array(0.1)
    true, _ = exact(problem, theta, 60, "mean", runs=1)
    pes = EvolutionStrategies(60, window=1, pairs=20, sigma=0.1)
    es = EvolutionStrategies(60, window=1, pairs=20, sigma=0.1, noise="truncated")
    found, deviation = estimated(problem, theta, pes, repeats=500)
    assert abs(found - true) < 4 * deviation and abs(found) > 4 * deviation
    short, deviation = estimated(problem, theta, es, repeats=500)
    assert np.sign(short) == -np.sign(true) and abs(short) > 4 * deviation


@pytest.mark.parametrize("make", [EvolutionStrategies, Backpropagation])
def test_no_run_outweighs_the_others(make):
    """The estimate from one run or pair is scaled to the largest norm, if it is larger."""
    one = {"pairs" if make is EvolutionStrategies else "runs": 1}
    free, strict = (make(20, window=5, **one, max_norm=norm) for norm in (np.inf, 0.25))
    for seed in range(5):
        key = jax.random.key(seed)
        runs = free.init(Quadratic(), THETA, key=key)
        (found, _), (kept, _) = (estimate(e, Quadratic(), THETA, runs, key) for e in (free, strict))
        factor = min(1.0, 0.25 / float(np.hypot(*jax.tree.leaves(found.gradient))))
        for a, b in zip(*map(jax.tree.leaves, (found.gradient, kept.gradient)), strict=True):
            np.testing.assert_allclose(b, factor * a, rtol=1e-5)


def unrolled(theta, state, keys):
    """The mean loss of the steps, and the state after them; a new state if there is none."""
    first, rest = jax.random.split(keys[0])
    state, losses = LearnedStart().init(theta, key=first) if state is None else state, []
    for key in jax.random.split(rest, 4):
        state, loss = LearnedStart().step(theta, state, key)
        losses.append(loss)
    return jnp.mean(jnp.stack(losses)), state


class LearnedStart(Quadratic):
    """The initial state depends on θ too."""

    def init(self, theta, *, key):
        return theta["shift"] * super().init(theta, key=key)


def test_backpropagation_through_an_unroll_is_the_gradient():
    """In each window, with the state that it starts from as a constant."""
    estimator, state = Backpropagation(8, window=4), None
    runs = estimator.init(LearnedStart(), THETA, key=KEY)
    gradient = jax.jit(jax.value_and_grad(unrolled, has_aux=True))
    for seed, starts in enumerate([True, False, True]):
        key = jax.random.key(seed)
        found, runs = estimate(estimator, LearnedStart(), THETA, runs, key)
        state = None if starts else state
        (loss, state), expected = gradient(THETA, state, jax.random.split(key, 1))
        for name in THETA:
            np.testing.assert_allclose(found.gradient[name], expected[name], rtol=1e-5)
        np.testing.assert_allclose(found.loss, loss, rtol=1e-6)


@pytest.mark.parametrize("objective", ["mean", "final"])
def test_windows_that_are_truncated_ignore_what_came_before(objective):
    true, error = exact(Quadratic(), THETA, 20, objective)["rate"]
    for window, is_exact in ((20, True), (5, False)):
        found = Backpropagation(20, window=window, runs=4, objective=objective)
        both = estimated(Quadratic(), THETA, found, repeats=1000)
        (rate, deviation), (shift, _) = both["rate"], both["shift"]
        assert (abs(rate - true) < 4 * np.hypot(deviation, error)) == is_exact
        assert shift == pytest.approx(0.4)


def test_runs_cover_the_horizon_and_lost_ones_begin_again():
    estimator = Backpropagation(20, window=5, runs=4, max_loss=0.6)
    runs = estimator.init(Quadratic(), THETA, key=KEY)
    np.testing.assert_array_equal(runs.clock, [0, 5, 10, 15])
    found, after = estimate(estimator, Quadratic(), {**THETA, "shift": jnp.zeros(())}, runs, KEY)
    np.testing.assert_array_equal(after.clock, [5, 10, 15, 0])
    np.testing.assert_array_equal(after.fresh, [False, False, False, True])
    np.testing.assert_array_equal(after.whole, [True, False, False, True])
    assert int(found.lost) == 0
    found, after = estimate(estimator, Quadratic(), {**THETA, "shift": jnp.array(9.0)}, runs, KEY)
    assert int(found.lost) == 4 and bool(after.fresh.all())
    np.testing.assert_array_equal(after.whole, [False, False, False, True])
    assert all(float(x) == 0 for x in jax.tree.leaves(found.gradient))


def test_pairs_cover_the_horizon_and_begin_again_at_its_end():
    estimator = EvolutionStrategies(20, window=5, pairs=4)
    runs = estimator.init(Quadratic(), THETA, key=KEY)
    clocks, noises = [np.asarray(runs.clock)], []
    for i in range(5):
        _, runs = estimate(estimator, Quadratic(), THETA, runs, jax.random.key(i))
        clocks.append(np.asarray(runs.clock))
        noises.append(np.asarray(runs.noise["rate"]))
    np.testing.assert_array_equal(
        clocks,
        [[0, 5, 10, 15], [5, 10, 15, 0], [10, 15, 0, 5], [15, 0, 5, 10], [0, 5, 10, 15],
         [5, 10, 15, 0]],
    )  # fmt: skip
    for clock, noise in zip(clocks[1:], noises, strict=True):
        np.testing.assert_array_equal(noise == 0, clock == 0)


def test_an_unroll_that_was_cut_short_has_no_final_loss():
    """Pairs 1 to 3 begin within the horizon; only pair 0 has gone through all of it."""
    estimator = EvolutionStrategies(20, window=5, pairs=4, objective="final")
    runs, slopes = estimator.init(Quadratic(), THETA, key=KEY), []
    for i in range(4):
        found, runs = estimate(estimator, Quadratic(), THETA, runs, jax.random.key(i))
        slopes.append(float(found.gradient["rate"]))
    assert slopes[:3] == [0, 0, 0] and slopes[3] != 0


class Explodes(Problem):
    """Runs that began with a bad key are lost at once; the others are those of `Quadratic`."""

    how: str

    def init(self, theta, *, key):
        bad = jax.random.bernoulli(key, 0.5)
        return Quadratic().init(theta, key=key), bad

    def step(self, theta, state, key):
        inner, bad = state
        inner, loss = Quadratic().step(theta, inner, key)
        return (inner, bad), jnp.where(bad, {"nan": jnp.nan, "huge": 1e12}[self.how], loss)


@pytest.mark.parametrize("how", ["nan", "huge"])
def test_lost_runs_are_contained(how):
    estimator = EvolutionStrategies(20, window=5, pairs=8, max_loss=10.0)
    runs = estimator.init(Explodes(how), THETA, key=KEY)
    lost = np.asarray(runs.states[1])[:, 0]
    found, after = estimate(estimator, Explodes(how), THETA, runs, KEY)
    assert 0 < lost.sum() < 8
    good = EvolutionStrategies(20, window=5, pairs=8)
    parts = jax.vmap(lambda p, k: good._continue(Quadratic(), THETA, p, k)[0]["rate"])(
        runs._replace(states=runs.states[0]), jax.random.split(KEY, 8)
    )
    np.testing.assert_allclose(
        found.gradient["rate"], np.sum(np.asarray(parts)[~lost]) / 8, rtol=1e-6
    )
    assert int(found.lost) == lost.sum() and np.isfinite(float(found.loss))
    wanted = (np.asarray(runs.clock) + 5) % 20
    np.testing.assert_array_equal(after.clock, wanted)  # the horizon stays covered
    assert not np.asarray(after.whole)[lost & (wanted > 0)].any()
    assert (np.asarray(after.noise["rate"])[lost] == 0).all()
    kept = np.asarray(runs.states[0])[~lost & (wanted > 0)]
    assert (np.asarray(after.states[0])[~lost & (wanted > 0)] != kept).all()


def test_without_a_limit_lost_runs_are_left_out():
    estimator = EvolutionStrategies(20, window=5, pairs=8)
    runs = estimator.init(Explodes("nan"), THETA, key=KEY)
    lost = np.asarray(runs.states[1])[:, 0]
    found, _ = estimate(estimator, Explodes("nan"), THETA, runs, KEY)
    parts = jax.vmap(lambda p, k: estimator._continue(Quadratic(), THETA, p, k)[0]["rate"])(
        runs._replace(states=runs.states[0]), jax.random.split(KEY, 8)
    )
    np.testing.assert_allclose(
        found.gradient["rate"], np.sum(np.asarray(parts)[~lost]) / (8 - lost.sum()), rtol=1e-6
    )


class Cliff(Problem):
    """A loss that is infinite for one sign of what is added to θ."""

    def init(self, theta, *, key):
        return jnp.zeros(())

    def step(self, theta, state, key):
        return state, jnp.where(theta > 0, jnp.inf, 0.0)


def test_a_run_that_explodes_on_one_side_pushes_to_the_other():
    found, _ = _estimate_once(EvolutionStrategies(5, window=5, pairs=4, max_loss=1.0), Cliff())
    assert float(found.gradient) > 0 and int(found.lost) == 4
    found, _ = _estimate_once(EvolutionStrategies(5, window=5, pairs=4), Cliff())
    assert float(found.gradient) == 0 and np.isnan(float(found.loss)) and int(found.lost) == 4


def _estimate_once(estimator, problem):
    theta = jnp.zeros(())
    return estimator.estimate(
        problem, theta, estimator.init(problem, theta, key=KEY), key=jax.random.key(1)
    )


class Prepared(Quadratic):
    """The same problem, with e^θ computed once per window."""

    def prepare(self, theta):
        return {"rate": jnp.exp(theta["rate"]), "shift": theta["shift"]}

    def step(self, theta, state, key):
        return super().step({**theta, "rate": jnp.log(theta["rate"])}, state, key)


@pytest.mark.parametrize(
    "estimator",
    [EvolutionStrategies(6, window=3, pairs=2), Backpropagation(6)],
    ids=["pes", "unroll"],
)
def test_what_is_prepared_is_what_steps_read(estimator):
    found = []
    for problem in (Quadratic(), Prepared()):
        runs = estimator.init(problem, THETA, key=KEY)
        found.append(estimate(estimator, problem, THETA, runs, KEY)[0])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), *found)


def test_theta_is_prepared_once_per_window():
    """Outside of the loop over steps, which a sine of θ shows."""

    class Sine(Quadratic):
        def prepare(self, theta):
            return {**theta, "rate": jnp.sin(theta["rate"])}

    estimator = EvolutionStrategies(6, window=3, pairs=2)
    runs = estimator.init(Sine(), THETA, key=KEY)
    jaxpr = jax.make_jaxpr(lambda r: estimator.estimate(Sine(), THETA, r, key=KEY))(runs)
    (scan,) = [e for e in jaxpr.eqns if e.primitive.name == "scan" and e.params["length"] == 3]
    assert "sin " in str(jaxpr) and "sin " not in str(scan.params["jaxpr"])


BOTH = MeanEstimator([EvolutionStrategies(20, window=5, pairs=4), Backpropagation(7, runs=2)])


def test_several_problems_are_averaged():
    problems, keys = (Quadratic(), Quadratic()), jax.random.split(KEY, 2)
    runs = BOTH.init(problems, THETA, key=KEY)
    found, after = estimate(BOTH, problems, THETA, runs, KEY)
    parts = [
        estimate(one, Quadratic(), THETA, r, k)
        for one, r, k in zip(BOTH.estimators, runs, keys, strict=True)
    ]
    (first, continued), (second, _) = parts
    for name in THETA:
        mean = (first.gradient[name] + second.gradient[name]) / 2
        np.testing.assert_allclose(found.gradient[name], mean, rtol=1e-6)
    assert found.loss == pytest.approx(float((first.loss + second.loss) / 2))
    jax.tree.map(np.testing.assert_array_equal, after[0], continued)


def test_a_problem_without_a_finite_loss_does_not_count():
    one = EvolutionStrategies(5, window=5, pairs=4)
    both, problems, theta = MeanEstimator([one, one]), (Flat(), Cliff()), jnp.zeros(())
    runs = both.init(problems, theta, key=KEY)
    found, _ = both.estimate(problems, theta, runs, key=KEY)
    alone, _ = one.estimate(Flat(), theta, runs[0], key=jax.random.split(KEY, 2)[0])
    assert float(found.gradient) == float(alone.gradient) != 0 and int(found.lost) == 4
    assert float(found.loss) == float(alone.loss)


class Flat(Cliff):
    """A loss that rises steadily."""

    def step(self, theta, state, key):
        return state, theta


def test_mistakes():
    with pytest.raises(ValueError, match="no estimators"):
        MeanEstimator([])
    with pytest.raises(ValueError, match="2 estimators for 1 problems"):
        BOTH.init((Quadratic(),), THETA, key=KEY)
    with pytest.raises(ValueError, match=r"horizon is 120 and window 50.*such as 100"):
        EvolutionStrategies(120, window=50)
    with pytest.raises(ValueError, match="sigma nan"):
        EvolutionStrategies(100, sigma=float("nan"))
    with pytest.raises(ValueError, match="pairs is 0"):
        EvolutionStrategies(100, pairs=0)
    with pytest.raises(ValueError, match="objective is 'best'"):
        EvolutionStrategies(100, objective="best")
    with pytest.raises(ValueError, match="horizon is 0"):
        Backpropagation(0)
    with pytest.raises(ValueError, match="horizon is 120 and window 50"):
        Backpropagation(120, window=50)
    with pytest.raises(ValueError, match="runs is 0"):
        Backpropagation(100, runs=0)
