"""The paper's third task: a recurrent language model of bytes (appendix B)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ...spec import WeightSpace
from ._task import TextTask, add, truncated_normal

States = Float[Array, "time batch hidden"]


@jax.custom_vjp
def recur(inputs: States, kernel: Float[Array, "hidden hidden"], first: Array) -> States:
    """The states sₜ = relu(xₜ + sₜ₋₁ W) of a recurrence.

    Its gradient by W is one product over all times, where differentiating a scan makes one each.
    """
    return _recur(inputs, kernel, first)[0]


def _recur(inputs: States, kernel: Array, first: Array) -> tuple[States, Any]:
    states = [first]
    for x in inputs:
        states.append(jax.nn.relu(x + states[-1] @ kernel))
    return jnp.stack(states[1:]), (jnp.stack(states), kernel)


def _recur_back(kept: tuple[Array, Array], given: States) -> tuple[States, Array, Array]:
    states, kernel = kept
    found, later = [], jnp.zeros_like(states[0])
    for state, at_state in zip(states[:0:-1], given[::-1], strict=True):
        found.append(jnp.where(state > 0, at_state + later, 0))
        later = found[-1] @ kernel.T
    at_inputs = jnp.stack(found[::-1])
    return at_inputs, jnp.einsum("tbh,tbg->hg", states[:-1], at_inputs), later


recur.defvjp(_recur, _recur_back)


@dataclass(frozen=True)
class RNNTask(TextTask):
    """Embedding of 32, 64 ReLU neurons that begin with an identity recurrence, linear; on LM1B."""

    embedding: int = 32
    hidden: int = 64

    name: ClassVar[str] = "rnn"

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Truncated normal weights, identity recurrence, zero biases and first state."""
        keys, symbols = jax.random.split(key, 3), self.num_symbols
        e, h = self.embedding, self.hidden
        return {
            "embed": truncated_normal((symbols, e), e, key=keys[0]),
            "in_w": truncated_normal((e, h), e, key=keys[1]),
            "in_b": jnp.zeros(h, jnp.float32),
            "rec_w": jnp.eye(h, dtype=jnp.float32),
            "rec_b": jnp.zeros(h, jnp.float32),
            "out_w": truncated_normal((h, symbols), h, key=keys[2]),
            "out_b": jnp.zeros(symbols, jnp.float32),
            "initial_state": jnp.zeros((1, h), jnp.float32),
        }

    def logits(self, params: PyTree, symbols: Int[Array, "batch length"]) -> Array:
        """Scores of the next symbol at every place."""
        read = add(params["embed"][symbols.T] @ params["in_w"], params["in_b"])
        first = jnp.broadcast_to(params["initial_state"], (len(symbols), self.hidden))
        states = recur(add(read, params["rec_b"]), params["rec_w"], first)
        return jnp.swapaxes(add(states @ params["out_w"], params["out_b"]), 0, 1)

    @cached_property
    def space(self) -> WeightSpace:
        """The vocabulary is fixed, and one name where it is read and where it is predicted."""
        spec = {
            "embed": "[v] e",
            "in_w": "e h",
            "in_b": "h",
            "rec_w": "h h",
            "rec_b": "h",
            "out_w": "h [v]",
            "out_b": "[v]",
            "initial_state": "[start] h",
        }
        return WeightSpace.from_spec(spec, jax.eval_shape(lambda: self.init(key=jax.random.key(0))))
