"""The paper's second task: a small convolutional network on CIFAR-10 (appendix B)."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ...spec import WeightSpace
from ._convolution import convolve
from ._task import ImageTask, Labelled, add, cross_entropy, truncated_normal


@dataclass(frozen=True)
class CNNTask(ImageTask):
    """3×3 convolutions to 16 and 32 channels, global average, linear, on 16×16 CIFAR-10."""

    dataset: str = "cifar10"
    channels: tuple[int, int] = (16, 32)
    first_stride: int = 1
    dtype: str = "float32"

    name: ClassVar[str] = "cnn"
    spatial: ClassVar[tuple[str, ...]] = ("h0", "w0", "h1", "w1")

    def __post_init__(self):
        super().__post_init__()
        if self.dtype not in ("float32", "bfloat16"):
            raise ValueError(f"dtype is {self.dtype!r}; expected float32 or bfloat16")

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Truncated normal weights, zero biases."""
        keys, (a, b), colors = jax.random.split(key, 3), self.channels, self.shape[-1]
        return {
            "k0": truncated_normal((3, 3, colors, a), 9 * colors, key=keys[0]),
            "b0": jnp.zeros(a, jnp.float32),
            "k1": truncated_normal((3, 3, a, b), 9 * a, key=keys[1]),
            "b1": jnp.zeros(b, jnp.float32),
            "w": truncated_normal((b, self.num_classes), b, key=keys[2]),
            "b": jnp.zeros(self.num_classes, jnp.float32),
        }

    def loss(self, params: PyTree, batch: Labelled) -> Float[Array, ""]:
        """Cross entropy; the products of convolutions are made in `dtype`."""
        x: Array = batch.images
        for i, stride in enumerate((self.first_stride, 1)):
            x, kernel = x.astype(self.dtype), params[f"k{i}"].astype(self.dtype)
            bias = params[f"b{i}"]  # added in its own type, in which its gradient is then summed
            x = jax.nn.relu(add(convolve(x, kernel, stride).astype(bias.dtype), bias))
        x = jnp.mean(x, axis=(1, 2))
        return cross_entropy(add(x @ params["w"], params["b"]), batch.classes)

    @cached_property
    def space(self) -> WeightSpace:
        """Filter windows, colors and classes fixed; `relax()` gives each axis its own name."""
        spec = {
            "k0": "[h0] [w0] [color] c0",
            "b0": "c0",
            "k1": "[h1] [w1] c0 c1",
            "b1": "c1",
            "w": "c1 [class]",
            "b": "[class]",
        }
        return WeightSpace.from_spec(spec, jax.eval_shape(lambda: self.init(key=jax.random.key(0))))
