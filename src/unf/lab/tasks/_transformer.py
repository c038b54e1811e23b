"""The paper's fourth task: a Transformer language model of subwords (appendix B)."""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from ...spec import WeightSpace
from ..data import load_text
from ._task import TextTask, add, truncated_normal


@dataclass(frozen=True)
class TransformerTask(TextTask):
    """Two pre-norm blocks of width 32 with 4 heads of 32, no positions, untied output; on LM1B."""

    batch_size: int = 8
    length: int = 8
    vocabulary: int = 4096
    num_blocks: int = 2
    width: int = 32
    num_heads: int = 4
    expand: int = 4

    name: ClassVar[str] = "transformer"
    horizon: ClassVar[int] = 5000
    unit: ClassVar[str] = "subwords"

    def __post_init__(self):
        super().__post_init__()
        if self.num_heads < 1 or self.inner % self.num_heads:
            raise ValueError(
                f"num_heads is {self.num_heads}; expected a divisor of {self.inner}, which is "
                "expand times width"
            )

    @property
    def inner(self) -> int:
        """Neurons of all heads, and of the MLP."""
        return self.expand * self.width

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Truncated normal weights, zero biases, norms that change nothing."""
        keys = iter(jax.random.split(key, 2 + 6 * self.num_blocks))
        d, m, symbols = self.width, self.inner, self.num_symbols

        def dense(source: int, target: int) -> dict[str, Array]:
            weight = truncated_normal((source, target), source, key=next(keys))
            return {"w": weight, "b": jnp.zeros(target, jnp.float32)}

        def norm() -> dict[str, Array]:
            return {"scale": jnp.ones(d, jnp.float32), "bias": jnp.zeros(d, jnp.float32)}

        params: dict[str, Any] = {
            "embed": truncated_normal((symbols, d), d, key=next(keys)),
            "output": dense(d, symbols),
            "norm": norm(),
        }
        for i in range(self.num_blocks):
            params[str(i)] = {
                **{name: dense(d, m) for name in "qkv"},
                "attention": dense(m, d),
                "up": dense(d, m),
                "down": dense(m, d),
                "norm1": norm(),
                "norm2": norm(),
            }
        return params

    def logits(self, params: PyTree, symbols: Int[Array, "batch length"]) -> Array:
        """Scores of the next symbol at every place."""
        x = params["embed"][symbols]
        for i in range(self.num_blocks):
            block = params[str(i)]
            x = x + _dense(self._attend(block, _norm(x, block["norm1"])), block["attention"])
            up = jax.nn.gelu(_dense(_norm(x, block["norm2"]), block["up"]))
            x = x + _dense(up, block["down"])
        return _dense(_norm(x, params["norm"]), params["output"])

    def _attend(self, block: PyTree, x: Array) -> Array:
        batch, length, _ = x.shape
        heads = (batch, length, self.num_heads, self.inner // self.num_heads)
        q, k, v = (_dense(x, block[name]).reshape(heads) for name in "qkv")
        scores = jnp.einsum("bthc,bshc->bhts", q, k) / sqrt(heads[-1])
        seen = jnp.tril(jnp.ones((length, length), bool))
        scores = jnp.where(jnp.broadcast_to(seen, scores.shape), scores, -jnp.inf)
        mixed = jnp.einsum("bhts,bshc->bthc", jax.nn.softmax(scores), v)
        return mixed.reshape(batch, length, -1)

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
        params = jax.eval_shape(lambda: self.init(key=jax.random.key(0)))
        sizes = {f"h{i}": self.num_heads for i in range(self.num_blocks)}
        return WeightSpace.from_spec(spec, params, sizes=sizes)

    @cached_property
    def _text(self) -> Any:
        return load_text(self.dataset, self.folder, unit=self.unit, vocabulary=self.vocabulary)


def _dense(x: Array, layer: PyTree) -> Array:
    return add(x @ layer["w"], layer["b"])


def _norm(x: Array, layer: PyTree) -> Array:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    scaled = centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + 1e-5)
    return add(scaled * jnp.broadcast_to(layer["scale"], x.shape), layer["bias"])
