"""A vision transformer, and a GPT with rotary positions."""

from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ._task import (
    ImageTask,
    Labeled,
    TextTask,
    check_positive,
    cross_entropy,
    dense,
    make_dense,
    make_norm,
    normalize,
    truncated_normal,
)

Heads = Float[Array, "batch time head size"]


def attend(q: Heads, k: Heads, v: Heads, *, causal: bool) -> Heads:
    """Attention softmax(qkᵀ/√size) v of each head, where `causal` hides later times."""
    scores = jnp.einsum("bthc,bshc->bhts", q, k) / sqrt(q.shape[-1])
    if causal:
        seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        scores = jnp.where(jnp.broadcast_to(seen, scores.shape), scores, -jnp.inf)
    return jnp.einsum("bhts,bshc->bthc", jax.nn.softmax(scores), v)


def rotate(x: Heads) -> Heads:
    """Rotary positions: entries i and i + size/2 turn by the angle time · 10000^(−2i/size)."""
    time, half = x.shape[1], x.shape[-1] // 2
    angles = np.outer(np.arange(time), 10_000.0 ** (-np.arange(half) / half))[None, :, None]
    a, b = x[..., :half], x[..., half:]
    cos, sin = (
        jnp.broadcast_to(jnp.asarray(f(angles), x.dtype), a.shape) for f in (np.cos, np.sin)
    )
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def _check_heads(task: Any) -> None:
    check_positive(task, "width", "num_blocks", "num_heads", "expand")
    if task.width % (2 * task.num_heads):
        raise ValueError(
            f"num_heads is {task.num_heads} and width {task.width}; expected heads of an even size"
        )


@dataclass(frozen=True)
class ViTTask(ImageTask):
    """Four pre-norm blocks of width 64 on 4×4 patches of 16×16 CIFAR-10.

    Positions are learned; the classes are read off the mean over patches.
    """

    dataset: str = "cifar10"
    patch: int = 4
    num_blocks: int = 4
    width: int = 64
    num_heads: int = 4
    expand: int = 4

    name: ClassVar[str] = "vit"
    horizon: ClassVar[int] = 3000

    def __post_init__(self):
        super().__post_init__()
        check_positive(self, "patch")
        _check_heads(self)

    @property
    def grid(self) -> tuple[int, int]:
        """The number of patches down and across an image."""
        height, width, _ = self.shape
        if height % self.patch or width % self.patch:
            raise ValueError(f"patch is {self.patch}; expected a divisor of {height} and {width}")
        return height // self.patch, width // self.patch

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Truncated normal weights, zero biases, norms with scale 1."""
        keys = iter(jax.random.split(key, 3 + 6 * self.num_blocks))
        d, m, (down, across) = self.width, self.expand * self.width, self.grid
        params: dict[str, Any] = {
            "patches": make_dense(self.patch**2 * self.shape[-1], d, key=next(keys)),
            "positions": truncated_normal((down * across, d), d, key=next(keys)),
            "norm": make_norm(d),
            "output": make_dense(d, self.num_classes, key=next(keys)),
        }
        for i in range(self.num_blocks):
            params[str(i)] = {
                **{name: make_dense(d, d, key=next(keys)) for name in ("q", "k", "v", "attention")},
                "up": make_dense(d, m, key=next(keys)),
                "down": make_dense(m, d, key=next(keys)),
                "norm1": make_norm(d),
                "norm2": make_norm(d),
            }
        return params

    def batch(self, examples: Labeled, *, key: PRNGKeyArray) -> Labeled:
        """Random images as sequences of flat patches, so that a patch is one axis of the space."""
        batch, (down, across), p = super().batch(examples, key=key), self.grid, self.patch
        x = batch.images.reshape(-1, down, p, across, p, self.shape[-1])
        x = jnp.swapaxes(x, 2, 3).reshape(self.batch_size, down * across, -1)
        return batch._replace(images=x)

    def loss(self, params: PyTree, batch: Labeled) -> Float[Array, ""]:
        """Cross entropy."""
        x = dense(batch.images, params["patches"])
        x = x + jnp.broadcast_to(params["positions"], x.shape)
        for i in range(self.num_blocks):
            block = params[str(i)]
            x = x + dense(self._attend(block, normalize(x, block["norm1"])), block["attention"])
            up = jax.nn.gelu(dense(normalize(x, block["norm2"]), block["up"]))
            x = x + dense(up, block["down"])
        x = jnp.mean(normalize(x, params["norm"]), axis=1)
        return cross_entropy(dense(x, params["output"]), batch.classes)

    def _attend(self, block: PyTree, x: Array) -> Array:
        heads = (*x.shape[:2], self.num_heads, -1)
        q, k, v = (dense(x, block[name]).reshape(heads) for name in "qkv")
        return attend(q, k, v, causal=False).reshape(x.shape)


@dataclass(frozen=True)
class GPTTask(TextTask):
    """Four blocks of width 64 with RMS norm and rotary positions, no biases; on bytes of LM1B."""

    length: int = 64
    num_blocks: int = 4
    width: int = 64
    num_heads: int = 4
    expand: int = 4

    name: ClassVar[str] = "gpt"
    horizon: ClassVar[int] = 3000

    def __post_init__(self):
        super().__post_init__()
        _check_heads(self)

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Truncated normal weights, norms with scale 1."""
        keys = iter(jax.random.split(key, 2 + 6 * self.num_blocks))
        d, m, symbols = self.width, self.expand * self.width, self.num_symbols

        def kernel(source: int, target: int) -> Array:
            return truncated_normal((source, target), source, key=next(keys))

        params: dict[str, Any] = {
            "embed": truncated_normal((symbols, d), d, key=next(keys)),
            "norm": jnp.ones(d, jnp.float32),
            "output": kernel(d, symbols),
        }
        for i in range(self.num_blocks):
            params[str(i)] = {
                **{name: kernel(d, d) for name in ("q", "k", "v", "attention")},
                "up": kernel(d, m),
                "down": kernel(m, d),
                "norm1": jnp.ones(d, jnp.float32),
                "norm2": jnp.ones(d, jnp.float32),
            }
        return params

    def logits(self, params: PyTree, symbols: Int[Array, "batch length"]) -> Array:
        """Scores of the next symbol at every position."""
        x = params["embed"][symbols]
        for i in range(self.num_blocks):
            block = params[str(i)]
            x = x + self._attend(block, _rms_norm(x, block["norm1"])) @ block["attention"]
            x = x + jax.nn.gelu(_rms_norm(x, block["norm2"]) @ block["up"]) @ block["down"]
        return _rms_norm(x, params["norm"]) @ params["output"]

    def _attend(self, block: PyTree, x: Array) -> Array:
        heads = (*x.shape[:2], self.num_heads, -1)
        q, k, v = ((x @ block[name]).reshape(heads) for name in "qkv")
        return attend(rotate(q), rotate(k), v, causal=True).reshape(x.shape)


def _rms_norm(x: Array, scale: Array) -> Array:
    x = x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-5)
    return x * jnp.broadcast_to(scale, x.shape)
