"""Addition, character by character, with a recurrent encoder and decoder (§4.1).

The encoder reads a question such as `815+20`, padded on its left; its last state is the decoder's
first. The decoder reads `=` and then the answer so far, and predicts the next character: `835`
and the end sign. Problems are drawn on the device; unless `num_problems` is given, no two are the
same in practice.
"""

from dataclasses import dataclass
from functools import cached_property
from math import inf, isinf
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ...meta import Data, Task
from ...spec import WeightSpace
from ._gru import gru, gru_step, mixed_step
from ._task import Runnable, add, answer_features, check_positive, choice, make_space, zeros

SYMBOLS = "0123456789+=."
"""The vocabulary; the last symbol ends an answer and pads questions and answers."""
PLUS, EQUALS, END = (SYMBOLS.index(symbol) for symbol in "+=.")
GATES = "rzn"


class Problems(NamedTuple):
    """Questions and answers as indices of `SYMBOLS`."""

    questions: Int[Array, "batch question"]
    answers: Int[Array, "batch answer"]


@dataclass(frozen=True)
class Addition(Task):
    """Adding two numbers of up to `digits` digits with two recurrent cells.

    >>> task = Addition(digits=3)
    >>> as_text(task.questions(jnp.array([815]), jnp.array([20]))[0])
    '815+20'
    >>> problems = task.problems(2, key=jax.random.key(0))
    >>> problems.questions.shape, problems.answers.shape
    ((2, 7), (2, 5))

    Attributes:
        digits: the largest number of digits.
        hidden: size of the recurrent state.
        batch_size: problems in a batch.
        num_measured: problems in a measurement.
        dtype: of activations.
        initial_scale: multiplies the initial weights.
        num_problems: how many different problems there are to train on, the same for all.
    """

    digits: int = 5
    hidden: int = 128
    batch_size: int = 128
    num_measured: int = 10_000
    dtype: str = "float32"
    initial_scale: float = 1.0
    num_problems: float = inf

    name: ClassVar[str] = "addition"
    horizon: ClassVar[int] = 3000

    def __post_init__(self):
        check_positive(self, "hidden", "batch_size", "num_measured")
        if not 1 <= self.digits <= 8:
            raise ValueError(f"digits is {self.digits}; expected 1 to 8, so that sums fit 32 bits")
        if self.dtype not in ("float32", "bfloat16", "float64"):
            raise ValueError(f"dtype is {self.dtype!r}; expected float32, bfloat16 or float64")

    def data(self) -> Data:
        """Nothing: problems are drawn when they are needed."""
        return Data((), ())

    def batch(self, examples: tuple[()], *, key: PRNGKeyArray) -> Problems:
        """Fresh problems, or those of a fixed number of seeds."""
        first, second = jax.random.split(key)
        if isinstance(self.num_problems, float) and isinf(self.num_problems):
            return self.problems(self.batch_size, key=first)  # as in older zoos
        seeds = jax.random.uniform(second, (self.batch_size,), jnp.float32)
        seeds = (seeds * self.num_problems).astype(jnp.int32)
        keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(0), seed))(seeds)
        drawn = jax.vmap(lambda one: self.problems(1, key=one))(keys)
        return jax.tree.map(lambda x: x[:, 0], drawn)

    def problems(self, size: int, *, key: PRNGKeyArray) -> Problems:
        """Draw problems: each operand has 1 to `digits` digits, all lengths equally often."""
        length_key, value_key = jax.random.split(key)
        lengths = jax.random.randint(length_key, (2, size), 1, self.digits + 1)
        low = jnp.where(lengths == 1, 0, 10 ** (lengths - 1))
        a, b = jax.random.randint(value_key, (2, size), low, 10**lengths)
        total = a + b
        place = _num_digits(total)[:, None] - 1 - jnp.arange(self.digits + 2)[None]
        return Problems(self.questions(a, b), _digit(total[:, None], place))

    def questions(self, a: Int[Array, " batch"], b: Int[Array, " batch"]) -> Array:
        """The characters of `a+b`, aligned at the right."""
        width, used = 2 * self.digits + 1, _num_digits(b)[:, None]
        place = width - 1 - jnp.arange(width)[None]  # of each character, from the right
        first = jnp.where(place == used, PLUS, _digit(a[:, None], place - used - 1))
        return jnp.where(place < used, _digit(b[:, None], place), first)

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Truncated normal weights with variance 1/fan-in, zero biases."""
        keys = iter(jax.random.split(key, 13))
        symbols, hidden = len(SYMBOLS), self.hidden

        def kernel(*shape: int) -> Array:
            drawn = jax.nn.initializers.lecun_normal()(next(keys), shape, jnp.float32)
            return self.initial_scale * drawn

        params: dict = {}
        for cell in ("encoder", "decoder"):
            params[cell] = {
                f"i{gate}": {"kernel": kernel(symbols, hidden), "bias": zeros(hidden)}
                for gate in GATES
            }
            params[cell] |= {f"h{gate}": {"kernel": kernel(hidden, hidden)} for gate in GATES}
            params[cell]["hn"]["bias"] = zeros(hidden)
        params["output"] = {"kernel": kernel(hidden, symbols), "bias": zeros(symbols)}
        return params

    def logits(self, params: PyTree, problems: Problems) -> Float[Array, "answer batch symbols"]:
        """Scores of each character of the answer, given the right ones before it."""
        given = jnp.full((len(problems.answers), 1), EQUALS, problems.answers.dtype)
        given = jnp.concatenate([given, problems.answers[:, :-1]], axis=1)
        first = self._encode(params, problems.questions)
        return self._scores(params, gru(*self._cell(params["decoder"]), given.T, first))

    def loss(self, params: PyTree, batch: Problems) -> Float[Array, ""]:
        """Mean cross entropy of the answers' characters, including the end sign."""
        return _cross_entropy(self.logits(params, batch), batch.answers)

    def measure(
        self, params: PyTree, examples: tuple[()], *, key: PRNGKeyArray
    ) -> dict[str, Float[Array, ""]]:
        """`score` on `num_measured` fresh problems, 500 at a time."""
        parts = -(-self.num_measured // 500)

        def part(key: PRNGKeyArray) -> dict[str, Array]:
            return self.score(params, self.problems(-(-self.num_measured // parts), key=key))

        return jax.tree.map(jnp.mean, jax.lax.map(part, jax.random.split(key, parts)))

    def score(self, params: PyTree, problems: Problems) -> dict[str, Float[Array, ""]]:
        """Success rate and loss when the network reads its own answers so far.

        An answer is a success if all its characters and the end sign are right.
        """
        said, logits = self._decode(params, problems.questions, problems.answers.shape[1])
        right = (said == problems.answers) | ~_counts(problems.answers)
        loss = _cross_entropy(logits, problems.answers)
        return {"success": jnp.mean(jnp.all(right, axis=1)), "loss": loss}

    def answer(self, params: PyTree, questions: Array) -> Int[Array, "batch answer"]:
        """What a network answers, character by character."""
        return self._decode(params, questions, self.digits + 2)[0]

    @property
    def network(self) -> Runnable:
        """A function of weights and questions of mixed symbols; probes start from real ones."""
        shape = (2 * self.digits + 1, len(SYMBOLS))
        start = self.sure_questions
        return Runnable(self.answer_mixtures, shape, scale=0.3, num_probes=128, start=start)

    def sure_questions(
        self, size: int, *, key: PRNGKeyArray
    ) -> Float[Array, "size question symbols"]:
        """Questions of problems as `answer_mixtures` reads them, almost free of other symbols."""
        questions = self.problems(size, key=key).questions
        return 12 * jax.nn.one_hot(questions, len(SYMBOLS), dtype=jnp.float32)

    def answer_mixtures(
        self, params: PyTree, questions: Float[Array, "batch question symbols"]
    ) -> Float[Array, "batch answer features"]:
        """What the network says, if each character is a mixture of symbols.

        Questions hold the logarithms of the parts. An answer holds the logarithms of each symbol's
        probability, and then the symbol that is said, see `answer_features`. The decoder reads what
        it has said so far.
        """

        def read(state: Array, mixed: Array) -> tuple[Array, None]:
            return mixed_step(*self._cell(params["encoder"]), mixed, state), None

        def say(carry: tuple, _: None) -> tuple[tuple, Array]:
            state, mixed = carry
            state = mixed_step(*self._cell(params["decoder"]), mixed, state)
            scores = self._scores(params, state)
            return (state, choice(scores).astype(self.dtype)), answer_features(scores)

        mixed = jax.nn.softmax(questions).astype(self.dtype)
        first = jnp.zeros((len(questions), self.hidden), self.dtype)
        state, _ = jax.lax.scan(read, first, jnp.moveaxis(mixed, 1, 0))
        start = jnp.zeros((len(questions), len(SYMBOLS)), self.dtype).at[:, EQUALS].set(1)
        _, said = jax.lax.scan(say, (state, start), None, length=self.digits + 2)
        return jnp.moveaxis(said, 0, 1)

    @cached_property
    def space(self) -> WeightSpace:
        """One hidden permutation `h`, since the encoder's state becomes the decoder's.

        The vocabulary `v` is fixed. It has one name where it is read and where it is predicted,
        so that `space.relax()` is the paper's setting.
        """
        cell = {f"i{gate}": {"kernel": "[v] h", "bias": "h"} for gate in GATES}
        cell |= {f"h{gate}": {"kernel": "h h"} for gate in GATES}
        cell["hn"]["bias"] = "h"
        spec = {"encoder": cell, "decoder": cell, "output": {"kernel": "h [v]", "bias": "[v]"}}
        return make_space(self, spec, {"*/i?/kernel": "index out"})

    def _cell(self, cell: PyTree) -> tuple[Array, Array, Array]:
        """The weights of a cell as `gru` takes them, with its gates side by side."""
        table = [cell[f"i{g}"]["kernel"] + cell[f"i{g}"]["bias"][None] for g in GATES]
        kernel = [cell[f"h{g}"]["kernel"] for g in GATES]
        fused = jnp.concatenate(table, axis=1), jnp.concatenate(kernel, axis=1), cell["hn"]["bias"]
        return tuple(jnp.asarray(x).astype(self.dtype) for x in fused)  # type: ignore[return-value]

    def _encode(self, params: PyTree, questions: Array) -> Float[Array, "batch hidden"]:
        first = jnp.zeros((len(questions), self.hidden), self.dtype)
        return gru(*self._cell(params["encoder"]), questions.T, first)[-1]

    def _decode(self, params: PyTree, questions: Array, length: int) -> tuple[Array, Array]:
        """The likeliest characters, one after the other, and their scores."""
        cell = self._cell(params["decoder"])

        def say(carry: tuple, _: None) -> tuple[tuple, tuple]:
            state, symbols = carry
            state = gru_step(*cell, symbols, state)
            scores = self._scores(params, state)
            symbols = jnp.argmax(scores, axis=-1).astype(symbols.dtype)
            return (state, symbols), (symbols, scores)

        start = jnp.full(len(questions), EQUALS, questions.dtype)
        carry = (self._encode(params, questions), start)
        _, (said, scores) = jax.lax.scan(say, carry, None, length=length)
        return said.T, scores

    def _scores(self, params: PyTree, states: Array) -> Array:
        kernel, bias = params["output"]["kernel"], params["output"]["bias"]
        return add((states @ kernel.astype(self.dtype)).astype(bias.dtype), bias)


def as_text(symbols: Int[Array | np.ndarray, " length"]) -> str:
    """Symbols as a string, without padding."""
    return "".join(SYMBOLS[int(s)] for s in symbols).strip(SYMBOLS[END])


def _counts(answers: Int[Array, "batch answer"]) -> Bool[Array, "batch answer"]:
    """The characters that count: up to and including the first end sign."""
    ended = jnp.cumsum(answers == END, axis=1)
    return ended - (answers == END) == 0


def _cross_entropy(logits: Float[Array, "answer batch symbols"], answers: Array) -> Array:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), answers.T[..., None], axis=-1)
    counts = _counts(answers).T
    return -jnp.sum(chosen[..., 0] * counts) / jnp.sum(counts)


def _num_digits(values: Int[Array, " batch"]) -> Int[Array, " batch"]:
    powers = 10 ** jnp.arange(1, 10, dtype=values.dtype)
    return 1 + jnp.sum(values[:, None] >= powers[None], axis=1)


def _digit(values: Array, place: Array) -> Array:
    """The decimal digit at a place from the right, or padding where there is none."""
    power = 10 ** jnp.clip(place, 0, 9)
    exists = (place >= 0) & ((values >= power) | (place == 0))
    return jnp.where(exists, values // power % 10, END)
