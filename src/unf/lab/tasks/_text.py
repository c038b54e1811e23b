"""Language models: the paper's recurrent network and its Transformer (appendix B)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ...spec import WeightSpace
from .._folder import added
from ..data import load_text
from ._attention import attend
from ._task import (
    TextTask,
    add,
    check_choice,
    check_positive,
    dense,
    make_dense,
    make_norm,
    make_space,
    normalize,
    truncated_normal,
    zeros,
)

States = Float[Array, "time batch hidden"]


_RECURRENCES: dict[str, tuple[Callable[[Array], Array], Callable[[Array, Array], Array]]] = {
    "relu": (jax.nn.relu, lambda state, given: jnp.where(state > 0, given, 0)),
    "tanh": (jnp.tanh, lambda state, given: (1 - jnp.square(state)) * given),
}
"""Activations of a recurrence, and how gradients pass back through them, given their value."""


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def recur(
    inputs: States, kernel: Float[Array, "hidden hidden"], first: Array, activation: str = "relu"
) -> States:
    """The states sₜ = φ(xₜ + sₜ₋₁ W) of a recurrence.

    Its gradient by W is one product over all times; differentiating a scan makes one for each.
    """
    return _recur(inputs, kernel, first, activation)[0]


def _recur(
    inputs: States, kernel: Array, first: Array, activation: str
) -> tuple[States, tuple[Array, Array]]:
    activate, states = _RECURRENCES[activation][0], [first]
    for x in inputs:
        states.append(activate(x + states[-1] @ kernel))
    return jnp.stack(states[1:]), (jnp.stack(states), kernel)


def _recur_back(
    activation: str, kept: tuple[Array, Array], given: States
) -> tuple[States, Array, Array]:
    pass_back = _RECURRENCES[activation][1]
    states, kernel = kept
    found, later = [], jnp.zeros_like(states[0])
    for state, at_state in zip(states[:0:-1], given[::-1], strict=True):
        found.append(pass_back(state, at_state + later))
        later = found[-1] @ kernel.T
    at_inputs = jnp.stack(found[::-1])
    return at_inputs, jnp.einsum("tbh,tbg->hg", states[:-1], at_inputs), later


recur.defvjp(_recur, _recur_back)


@dataclass(frozen=True)
class RNNTask(TextTask):
    """Embedding of 32, 64 recurrent ReLU neurons, linear; on the bytes of LM1B."""

    embedding: int = 32
    hidden: int = 64
    activation: str = added("relu")

    name: ClassVar[str] = "rnn"

    def __post_init__(self):
        super().__post_init__()
        check_positive(self, "embedding", "hidden")
        check_choice(self, "activation", _RECURRENCES)

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Truncated normal weights, identity recurrence, zero biases and first state."""
        keys, symbols = jax.random.split(key, 3), self.num_symbols
        e, h = self.embedding, self.hidden
        return {
            "embed": truncated_normal((symbols, e), e, key=keys[0]),
            "in_w": truncated_normal((e, h), e, key=keys[1]),
            "in_b": zeros(h),
            "rec_w": jnp.eye(h, dtype=jnp.float32),
            "rec_b": zeros(h),
            "out_w": truncated_normal((h, symbols), h, key=keys[2]),
            "out_b": zeros(symbols),
            "initial_state": zeros(1, h),
        }

    def logits(self, params: PyTree, symbols: Int[Array, "batch length"]) -> Array:
        """Scores of the next symbol at every position."""
        read = add(params["embed"][symbols.T] @ params["in_w"], params["in_b"])
        first = jnp.broadcast_to(params["initial_state"], (len(symbols), self.hidden))
        states = recur(add(read, params["rec_b"]), params["rec_w"], first, self.activation)
        return jnp.swapaxes(add(states @ params["out_w"], params["out_b"]), 0, 1)

    @cached_property
    def space(self) -> WeightSpace:
        """The vocabulary is fixed, and has one name where it is read and where it is predicted."""
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
        roles = {"embed": "index out", "initial_state": "shift shift"}
        return make_space(self, spec, roles)


@dataclass(frozen=True)
class TransformerTask(TextTask):
    """Two pre-norm blocks of width 32, 4 heads of 32, no positions; on subwords of LM1B."""

    batch_size: int = 8
    length: int = 8
    unit: str = added("subwords")
    vocabulary: int = 4096
    num_blocks: int = 2
    width: int = 32
    num_heads: int = 4
    expand: int = 4

    name: ClassVar[str] = "transformer"
    horizon: ClassVar[int] = 5000

    def __post_init__(self):
        super().__post_init__()
        check_positive(self, "num_blocks", "width", "expand")
        if self.num_heads < 1 or self.inner % self.num_heads:
            raise ValueError(
                f"num_heads is {self.num_heads}; expected a divisor of expand times width, "
                f"{self.inner}"
            )

    @property
    def inner(self) -> int:
        """The number of neurons of all heads, and of the MLP."""
        return self.expand * self.width

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Truncated normal weights, zero biases, norms with scale 1."""
        keys = iter(jax.random.split(key, 2 + 6 * self.num_blocks))
        d, m, symbols = self.width, self.inner, self.num_symbols

        params: dict[str, Any] = {
            "embed": truncated_normal((symbols, d), d, key=next(keys)),
            "output": make_dense(d, symbols, key=next(keys)),
            "norm": make_norm(d),
        }
        for i in range(self.num_blocks):
            params[str(i)] = {
                **{name: make_dense(d, m, key=next(keys)) for name in "qkv"},
                "attention": make_dense(m, d, key=next(keys)),
                "up": make_dense(d, m, key=next(keys)),
                "down": make_dense(m, d, key=next(keys)),
                "norm1": make_norm(d),
                "norm2": make_norm(d),
            }
        return params

    def logits(self, params: PyTree, symbols: Int[Array, "batch length"]) -> Array:
        """Scores of the next symbol at every position."""
        x = params["embed"][symbols]
        for i in range(self.num_blocks):
            block = params[str(i)]
            x = x + dense(self._attend(block, normalize(x, block["norm1"])), block["attention"])
            up = jax.nn.gelu(dense(normalize(x, block["norm2"]), block["up"]))
            x = x + dense(up, block["down"])
        return dense(normalize(x, params["norm"]), params["output"])

    def _attend(self, block: PyTree, x: Array) -> Array:
        heads = (*x.shape[:2], self.num_heads, self.inner // self.num_heads)
        q, k, v = (dense(x, block[name]).reshape(heads) for name in "qkv")
        return attend(q, k, v, causal=True).reshape(*x.shape[:2], -1)

    @cached_property
    def space(self) -> WeightSpace:
        """One residual stream `d`; heads permute, and within each what queries and keys share."""
        d = {"scale": "d", "bias": "d"}
        spec: dict[str, Any] = {
            "embed": "[in] d",
            "output": {"w": "d [out]", "b": "[out]"},
            "norm": d,
        }
        for i in range(self.num_blocks):
            inside = {"q": f"(h{i} h{i}.k)", "k": f"(h{i} h{i}.k)", "v": f"(h{i} h{i}.v)"}
            spec[str(i)] = {
                **{name: {"w": f"d {axis}", "b": axis} for name, axis in inside.items()},
                "attention": {"w": f"{inside['v']} d", "b": "d"},
                "up": {"w": f"d m{i}", "b": f"m{i}"},
                "down": {"w": f"m{i} d", "b": "d"},
                "norm1": d,
                "norm2": d,
            }
        roles = {"embed": "index out", "*/scale": "scale"}
        sizes = {f"h{i}": self.num_heads for i in range(self.num_blocks)}
        return make_space(self, spec, roles, **sizes)

    @cached_property
    def _text(self) -> Any:
        return load_text(self.dataset, self.folder, unit=self.unit, vocabulary=self.vocabulary)
