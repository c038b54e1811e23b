"""Addition: the problems are right, the network's gradient is the gradient, answers are scored."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
from unf.lab.tasks import Addition
from unf.lab.tasks import _gru as gru_module
from unf.lab.tasks._addition import Problems, as_text

TASK = Addition(digits=2, hidden=5, dtype="float64")
answer = jax.jit(TASK.answer)


@pytest.fixture(scope="module")
def problems():
    return jax.jit(lambda: TASK.problems(40, key=jax.random.key(0)))()


@pytest.fixture(scope="module")
def params():
    return jax.jit(lambda: TASK.init(key=jax.random.key(1)))()


@pytest.mark.parametrize("digits", [1, 2, 5, 8])
def test_answers_are_sums(digits):
    task = Addition(digits=digits)
    problems = jax.jit(lambda: task.problems(200, key=jax.random.key(digits)))()
    assert problems.questions.shape == (200, 2 * digits + 1)
    assert problems.answers.shape == (200, digits + 2)
    lengths = set()
    for question, answer in zip(*map(np.asarray, problems), strict=True):
        a, b = as_text(question).split("+")
        assert int(as_text(answer)) == int(a) + int(b)
        assert a == str(int(a)) and b == str(int(b))
        lengths |= {len(a), len(b)}
    assert lengths == set(range(1, digits + 1))


@pytest.mark.parametrize("accelerator", [False, True])
def test_the_written_gradient_is_the_gradient(problems, params, monkeypatch, accelerator):
    """Both forms of the loop agree with differentiating step after step."""
    monkeypatch.setattr(gru_module, "_on_accelerator", lambda: accelerator)

    def plain_loss(params):
        def plain(cell, symbols, state):
            states = []
            for now in symbols:
                state = gru_module.gru_step(*cell, now, state)
                states.append(state)
            return jnp.stack(states)

        start = jnp.zeros((len(problems.questions), TASK.hidden))
        state = plain(TASK._cell(params["encoder"]), problems.questions.T, start)[-1]
        given = jnp.concatenate(
            [jnp.full((len(problems.answers), 1), 11), problems.answers[:, :-1]], axis=1
        )
        states = plain(TASK._cell(params["decoder"]), given.T, state)
        kernel, bias = params["output"]["kernel"], params["output"]["bias"]
        logits = jax.nn.log_softmax(states @ kernel + bias[None, None])
        chosen = jnp.take_along_axis(logits, problems.answers.T[..., None], axis=-1)[..., 0]
        before_end = jnp.cumsum(problems.answers == 12, axis=1) - (problems.answers == 12) == 0
        return -jnp.sum(chosen * before_end.T) / jnp.sum(before_end)

    wide = jax.tree.map(lambda x: x.astype("float64"), params)
    value, gradient = jax.jit(jax.value_and_grad(lambda p: TASK.loss(p, problems)))(wide)
    expected, expected_gradient = jax.jit(jax.value_and_grad(plain_loss))(wide)
    assert np.isclose(value, expected)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), gradient, expected_gradient
    )


def test_success_is_that_of_the_answers_given(problems, params):
    measured, said = jax.jit(TASK.score)(params, problems), answer(params, problems.questions)
    right = 0
    for given, expected in zip(np.asarray(said), np.asarray(problems.answers), strict=True):
        text = as_text(expected)
        right += list(given[: len(text) + 1]) == list(expected[: len(text) + 1])
    assert measured["success"] == pytest.approx(right / len(said))


def test_what_the_network_says_is_a_success_and_anything_else_is_not(problems):
    """A network with large weights says many things; asked for just these, it is right."""
    params = jax.tree.map(lambda x: 8 * x, TASK.init(key=jax.random.key(11)))
    said = np.asarray(answer(params, problems.questions))
    ended = (said == 12).any(axis=1) & (said[:, 0] != 12)
    assert ended.any()
    questions, answers = problems.questions[ended], jnp.asarray(said[ended])
    score = jax.jit(TASK.score)
    assert score(params, Problems(questions, answers))["success"] == 1
    other = answers.at[:, 0].set((answers[:, 0] + 1) % 10)
    assert score(params, Problems(questions, other))["success"] == 0


def test_measuring_draws_as_many_problems_as_asked(params):
    task = Addition(digits=2, hidden=5, num_measured=700)
    measure = jax.jit(lambda: task.measure(params, (), key=jax.random.key(0)))
    measured = measure()
    assert float(measured["success"]) * 700 % 1 == pytest.approx(0, abs=1e-6)
    again = measure()
    assert measured["loss"] == again["loss"]


def test_a_network_that_always_ends_never_succeeds(problems, params):
    mute = jax.tree.map(jnp.zeros_like, params)
    mute["output"]["bias"] = mute["output"]["bias"].at[12].set(9.0)
    assert jax.jit(TASK.score)(mute, problems)["success"] == 0


def test_the_space_is_a_symmetry_and_what_infer_finds(problems, params):
    unf.verify(TASK.logits, params, TASK.space, problems, key=jax.random.key(2))
    found = unf.infer(TASK.logits, params, problems)
    assert sorted(found.sizes.values()) == sorted(TASK.space.sizes.values()) == [5]
    assert found.roles == TASK.space.roles


def test_the_space_has_the_papers_terms_when_relaxed():
    assert unf.count_terms(Addition().space.relax()) == 2058


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"digits": 9}, "digits is 9; expected 1 to 8"),
        ({"hidden": 0}, "hidden is 0; expected at least 1"),
        ({"dtype": "int8"}, "dtype is 'int8'; expected float32"),
    ],
)
def test_mistakes(options, message):
    with pytest.raises(ValueError, match=message):
        Addition(**options)
