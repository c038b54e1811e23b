"""Language models with gated recurrent cells: an LSTM and a GRU on bytes."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ._gru import gru
from ._task import TextTask, add, check_positive, dense, make_dense, truncated_normal, zeros

States = Float[Array, "time batch hidden"]


@dataclass(frozen=True)
class GatedTask(TextTask):
    """An embedding, a gated cell and a linear layer. A subclass needs `run`."""

    length: int = 32
    embedding: int = 64
    hidden: int = 128

    gates: ClassVar[str]

    def __post_init__(self):
        super().__post_init__()
        check_positive(self, "embedding", "hidden")

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Truncated normal weights, zero biases."""
        keys, symbols = iter(jax.random.split(key, 2 + 2 * len(self.gates))), self.num_symbols
        e, h = self.embedding, self.hidden
        cell = {
            gate: {
                "input": truncated_normal((e, h), e, key=next(keys)),
                "state": truncated_normal((h, h), h, key=next(keys)),
                "bias": zeros(h),
            }
            for gate in self.gates
        }
        return {
            "embed": truncated_normal((symbols, e), e, key=next(keys)),
            "cell": cell,
            "output": make_dense(h, symbols, key=next(keys)),
        }

    def logits(self, params: PyTree, symbols: Int[Array, "batch length"]) -> Array:
        """Scores of the next symbol at every position."""
        states = self.run(params, symbols.T, jnp.zeros((len(symbols), self.hidden), jnp.float32))
        return jnp.swapaxes(dense(states, params["output"]), 0, 1)

    @abstractmethod
    def run(self, params: PyTree, symbols: Int[Array, "time batch"], first: Array) -> States:
        """The states after each symbol."""

    def side_by_side(self, params: PyTree) -> tuple[Array, Array]:
        """What each symbol adds to the gates, and the recurrent kernel."""
        cells = [params["cell"][gate] for gate in self.gates]
        kernel, bias = (jnp.concatenate([c[k] for c in cells], -1) for k in ("input", "bias"))
        table = add(params["embed"] @ kernel, bias)
        return table, jnp.concatenate([cell["state"] for cell in cells], axis=1)


@dataclass(frozen=True)
class LSTMTask(GatedTask):
    """Embedding of 64, an LSTM with 128 units, linear; on the bytes of LM1B."""

    name: ClassVar[str] = "lstm"
    gates: ClassVar[str] = "ifgo"

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Truncated normal weights, zero biases but for those of the forget gate, which are 1."""
        params = super().init(key=key)
        params["cell"]["f"]["bias"] = jnp.ones(self.hidden, jnp.float32)
        return params

    def run(self, params: PyTree, symbols: Int[Array, "time batch"], first: Array) -> States:
        """The states h of c ← σ(f) ⊙ c + σ(i) ⊙ tanh(g), h ← σ(o) ⊙ tanh(c)."""
        table, kernel = self.side_by_side(params)

        def step(carry: tuple[Array, Array], given: Array) -> tuple[tuple[Array, Array], Array]:
            cell, state = carry
            i, f, g, o = jnp.split(given + state @ kernel, 4, axis=-1)
            cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            state = jax.nn.sigmoid(o) * jnp.tanh(cell)
            return (cell, state), state

        return jax.lax.scan(step, (first, first), table[symbols])[1]


@dataclass(frozen=True)
class GRUTask(GatedTask):
    """Embedding of 64, a GRU with 128 units, linear; on the bytes of LM1B."""

    name: ClassVar[str] = "gru"
    gates: ClassVar[str] = "rzn"

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Truncated normal weights, zero biases; the new state has a recurrent bias too."""
        params = super().init(key=key)
        params["cell"]["n"]["state_bias"] = zeros(self.hidden)
        return params

    def run(self, params: PyTree, symbols: Int[Array, "time batch"], first: Array) -> States:
        """The states after each symbol."""
        table, kernel = self.side_by_side(params)
        return gru(table, kernel, params["cell"]["n"]["state_bias"], symbols, first)
