"""Addition, character by character, with a recurrent encoder and decoder (§4.1).

The encoder reads a question such as `815+20`, filled up on its left; its last state is the
decoder's first. The decoder reads `=` and then the answer so far, and says the next character:
`835` and the end sign. Fresh problems are drawn on the device; no two are the same in practice.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ...spec import WeightSpace
from ._gru import gru, gru_step

SYMBOLS = "0123456789+=."
"""The vocabulary; the last one ends an answer and fills what is left of a question or answer."""
PLUS, EQUALS, END = (SYMBOLS.index(symbol) for symbol in "+=.")
GATES = "rzn"


class Problems(NamedTuple):
    """Questions and answers as indices of `SYMBOLS`."""

    questions: Int[Array, "batch question"]
    answers: Int[Array, "batch answer"]


@dataclass(frozen=True)
class Addition:
    """The task: problems, a network of two recurrent cells, its loss and its success.

    >>> task = Addition(digits=3)
    >>> as_text(task.questions(jnp.array([815]), jnp.array([20]))[0])
    '815+20'
    >>> problems = task.problems(2, key=jax.random.key(0))
    >>> problems.questions.shape, problems.answers.shape
    ((2, 7), (2, 5))
    """

    digits: int = 5
    hidden: int = 128
    dtype: str = "float32"

    def __post_init__(self):
        if not 1 <= self.digits <= 8:
            raise ValueError(f"digits is {self.digits}; expected 1 to 8, so that sums fit 32 bits")
        if self.hidden < 1:
            raise ValueError(f"hidden is {self.hidden}; expected at least 1")
        if self.dtype not in ("float32", "bfloat16", "float64"):
            raise ValueError(f"dtype is {self.dtype!r}; expected float32, bfloat16 or float64")
        if self.dtype == "float64" and not jax.config.read("jax_enable_x64"):
            raise ValueError("dtype is 'float64', which JAX has only with JAX_ENABLE_X64=1")

    def problems(self, size: int, *, key: PRNGKeyArray) -> Problems:
        """Draw problems: each operand has 1 to `digits` digits, all lengths equally often."""
        length_key, value_key = jax.random.split(key)
        lengths = jax.random.randint(length_key, (2, size), 1, self.digits + 1)
        low = jnp.where(lengths == 1, 0, 10 ** (lengths - 1))
        a, b = jax.random.randint(value_key, (2, size), low, 10**lengths)
        return Problems(self.questions(a, b), _write(a + b, self.digits + 1, align="left"))

    def questions(self, a: Int[Array, " batch"], b: Int[Array, " batch"]) -> Array:
        """The characters of `a+b`, aligned at the right."""
        width = 2 * self.digits + 1
        second = _write(b, self.digits, align="right")
        used = _num_digits(b)[:, None]
        place = width - 1 - jnp.arange(width)[None]  # of each character, from the right
        first = _digit(a[:, None], place - used - 1)
        text = jnp.where(place == used, PLUS, first)
        tail = jnp.concatenate(
            [jnp.full((len(b), width - self.digits), END, second.dtype), second], axis=1
        )
        return jnp.where(place < used, tail, text)

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Weights from a truncated normal with variance 1/fan-in, biases zero."""
        keys = iter(jax.random.split(key, 13))
        scaled = jax.nn.initializers.lecun_normal()
        symbols, hidden = len(SYMBOLS), self.hidden
        params: dict = {}
        for cell in ("encoder", "decoder"):
            params[cell] = {
                f"i{gate}": {
                    "kernel": scaled(next(keys), (symbols, hidden), jnp.float32),
                    "bias": jnp.zeros(hidden, jnp.float32),
                }
                for gate in GATES
            }
            for gate in GATES:
                kernel = scaled(next(keys), (hidden, hidden), jnp.float32)
                params[cell][f"h{gate}"] = {"kernel": kernel}
            params[cell]["hn"]["bias"] = jnp.zeros(hidden, jnp.float32)
        params["output"] = {
            "kernel": scaled(next(keys), (hidden, symbols), jnp.float32),
            "bias": jnp.zeros(symbols, jnp.float32),
        }
        return params

    def logits(self, params: PyTree, problems: Problems) -> Float[Array, "answer batch symbols"]:
        """What the decoder says at each character, given the right ones before it."""
        given = jnp.full((len(problems.answers), 1), EQUALS, problems.answers.dtype)
        given = jnp.concatenate([given, problems.answers[:, :-1]], axis=1)
        states = gru(*self._cell(params["decoder"]), given.T, self._encode(params, problems))
        return self._say(params, states)

    def loss(self, params: PyTree, problems: Problems) -> Float[Array, ""]:
        """Mean cross entropy of the answers' characters, the end sign included."""
        return _cross_entropy(self.logits(params, problems), problems.answers)

    def measure(self, params: PyTree, problems: Problems) -> dict[str, Float[Array, ""]]:
        """Success rate and loss when the network reads what it has itself said.

        An answer is a success if all its characters and the end sign are right.
        """
        cell = self._cell(params["decoder"])

        def say(carry: tuple, _: None) -> tuple[tuple, Array]:
            state, symbols = carry
            state = gru_step(*cell, symbols, state)
            logits = self._say(params, state)
            return (state, jnp.argmax(logits, axis=-1).astype(symbols.dtype)), logits

        start = jnp.full(len(problems.answers), EQUALS, problems.answers.dtype)
        carry = (self._encode(params, problems), start)
        _, logits = jax.lax.scan(say, carry, None, length=problems.answers.shape[1])
        right = (jnp.argmax(logits, axis=-1).T == problems.answers) | ~_counts(problems.answers)
        return {
            "success": jnp.mean(jnp.all(right, axis=1)),
            "loss": _cross_entropy(logits, problems.answers),
        }

    def answer(self, params: PyTree, questions: Array) -> Int[Array, "batch answer"]:
        """What a network answers, character by character."""
        cell, width = self._cell(params["decoder"]), self.digits + 2
        blank = jnp.full((len(questions), width), END, questions.dtype)
        state = self._encode(params, Problems(questions, blank))
        said = [jnp.full(len(questions), EQUALS, questions.dtype)]
        for _ in range(width):
            state = gru_step(*cell, said[-1], state)
            said.append(jnp.argmax(self._say(params, state), axis=-1).astype(questions.dtype))
        return jnp.stack(said[1:], axis=1)

    @cached_property
    def space(self) -> WeightSpace:
        """One hidden permutation `h`, since the encoder's state becomes the decoder's.

        The vocabulary `v` is fixed. It is one name for what is read and what is said, so that
        `space.relax()` is the paper's setting.
        """
        cell = {f"i{gate}": {"kernel": "[v] h", "bias": "h"} for gate in GATES}
        cell |= {f"h{gate}": {"kernel": "h h"} for gate in GATES}
        cell["hn"]["bias"] = "h"
        spec = {"encoder": cell, "decoder": cell, "output": {"kernel": "h [v]", "bias": "[v]"}}
        params = jax.eval_shape(lambda: self.init(key=jax.random.key(0)))
        return WeightSpace.from_spec(spec, params)

    def _cell(self, cell: PyTree) -> tuple[Array, Array, Array]:
        """A cell's weights as `gru` wants them: the gates side by side."""
        table = [cell[f"i{g}"]["kernel"] + cell[f"i{g}"]["bias"][None] for g in GATES]
        kernel = [cell[f"h{g}"]["kernel"] for g in GATES]
        fused = jnp.concatenate(table, axis=1), jnp.concatenate(kernel, axis=1), cell["hn"]["bias"]
        return tuple(jnp.asarray(x).astype(self.dtype) for x in fused)  # type: ignore[return-value]

    def _encode(self, params: PyTree, problems: Problems) -> Float[Array, "batch hidden"]:
        state = jnp.zeros((len(problems.questions), self.hidden), self.dtype)
        return gru(*self._cell(params["encoder"]), problems.questions.T, state)[-1]

    def _say(self, params: PyTree, states: Array) -> Array:
        kernel = params["output"]["kernel"].astype(self.dtype)
        logits = (states @ kernel).astype(params["output"]["bias"].dtype)
        return logits + jnp.broadcast_to(params["output"]["bias"], logits.shape)


def as_text(symbols: Int[Array | np.ndarray, " length"]) -> str:
    """Symbols as a string, without filling."""
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
    """The decimal digit at a place from the right; the filling where there is none."""
    power = 10 ** jnp.clip(place, 0, 9)
    exists = (place >= 0) & ((values >= power) | (place == 0))
    return jnp.where(exists, values // power % 10, END)


def _write(values: Int[Array, " batch"], width: int, *, align: str) -> Array:
    """Numbers as symbols: at the right of `width`, or at the left and one end sign longer."""
    if align == "right":
        return _digit(values[:, None], width - 1 - jnp.arange(width)[None])
    return _digit(values[:, None], _num_digits(values)[:, None] - 1 - jnp.arange(width + 1)[None])
