"""Classifying small images: the paper's MLP and CNN (appendix B), and the CNN of a zoo."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod, sqrt
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ...graph import infer
from ...spec import WeightSpace
from ._task import (
    ImageTask,
    Labeled,
    add,
    check_positive,
    cross_entropy,
    make_space,
    mean_of_parts,
    scaled,
    truncated_normal,
    zeros,
)


@dataclass(frozen=True)
class MLPTask(ImageTask):
    """64→32→10 with ReLU on 8×8 Fashion-MNIST."""

    hidden: tuple[int, ...] = (32,)

    name: ClassVar[str] = "mlp"

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """The number of neurons in each layer."""
        return (prod(self.shape), *self.hidden, self.num_classes)

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Truncated normal weights, zero biases."""
        params = {}
        for i, (m, n) in enumerate(pairwise(self.widths)):
            params[f"w{i}"] = truncated_normal((m, n), m, key=jax.random.fold_in(key, i))
            params[f"b{i}"] = zeros(n)
        return params

    def loss(self, params: PyTree, batch: Labeled) -> Float[Array, ""]:
        """Cross entropy."""
        x: Array = batch.images.reshape(len(batch.images), -1)
        for i in range(len(self.widths) - 1):
            x = add((jax.nn.relu(x) if i else x) @ params[f"w{i}"], params[f"b{i}"])
        return cross_entropy(x, batch.classes)

    @cached_property
    def space(self) -> WeightSpace:
        """Inputs and outputs are fixed."""
        names = ["[in]", *(f"h{i}" for i in range(len(self.hidden))), "[out]"]
        spec = {}
        for i, (a, b) in enumerate(pairwise(names)):
            spec |= {f"w{i}": f"{a} {b}", f"b{i}": b}
        return make_space(self, spec)


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
            "b0": zeros(a),
            "k1": truncated_normal((3, 3, a, b), 9 * a, key=keys[1]),
            "b1": zeros(b),
            "w": truncated_normal((b, self.num_classes), b, key=keys[2]),
            "b": zeros(self.num_classes),
        }

    def loss(self, params: PyTree, batch: Labeled) -> Float[Array, ""]:
        """Cross entropy; the products of the convolutions are computed in `dtype`."""
        x: Array = batch.images
        for i, stride in enumerate((self.first_stride, 1)):
            x, kernel = x.astype(self.dtype), params[f"k{i}"].astype(self.dtype)
            bias = params[f"b{i}"]  # added in its own dtype, in which its gradient is then summed
            x = jax.nn.relu(add(convolve(x, kernel, stride).astype(bias.dtype), bias))
        x = jnp.mean(x, axis=(1, 2))
        return cross_entropy(add(x @ params["w"], params["b"]), batch.classes)

    @cached_property
    def space(self) -> WeightSpace:
        """Windows, colors and classes are fixed; `relax()` gives each axis its own name."""
        spec = {
            "k0": "[h0] [w0] [color] c0",
            "b0": "c0",
            "k1": "[h1] [w1] c0 c1",
            "b1": "c1",
            "w": "c1 [class]",
            "b": "[class]",
        }
        return make_space(self, spec)


@dataclass(frozen=True)
class SmallCNN(ImageTask):
    """3×3 convolutions, global average, linear; 4,970 weights at 16 channels on gray images.

    Every convolution but the first halves the image. The last three fields vary in a zoo:
    initial weights have the deviation `initial_scale`/√fan-in, features are dropped at the rate
    `dropout` before the linear layer, and training sees the first `data_fraction` of the images.
    """

    dataset: str = "digits"
    channels: int = 16
    num_convolutions: int = 3
    initial_scale: float = 1.0
    dropout: float = 0.0
    data_fraction: float = 1.0

    name: ClassVar[str] = "small-cnn"

    def __post_init__(self):
        check_positive(self, "batch_size", "channels", "num_convolutions")

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Normal weights, zero biases."""
        keys = iter(jax.random.split(key, self.num_convolutions + 1))
        params, width = {}, self.shape[-1]

        def layer(*shape: int) -> dict[str, Array]:
            deviation = self.initial_scale / sqrt(prod(shape[:-1]))
            kernel = deviation * jax.random.normal(next(keys), shape, jnp.float32)
            return {"kernel": kernel, "bias": zeros(shape[-1])}

        for i in range(self.num_convolutions):
            params[f"conv{i}"] = layer(3, 3, width, self.channels)
            width = self.channels
        return params | {"linear": layer(width, self.num_classes)}

    def batch(self, examples: Labeled, *, key: PRNGKeyArray) -> Labeled:
        """Random images from the part that training sees."""
        chosen, dropped = jax.random.split(key)
        uniform = jax.random.uniform(chosen, (self.batch_size,), jnp.float32)
        index = jnp.floor(self.data_fraction * len(examples.classes) * uniform).astype(int)
        return scaled(Labeled(examples.images[index], examples.classes[index], dropped))

    def logits(
        self,
        params: PyTree,
        images: Float[Array, "batch height width channels"],
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "batch classes"]:
        """Scores of the classes; with a key, features are dropped."""
        x = images
        for i in range(self.num_convolutions):
            layer = params[f"conv{i}"]
            x = convolve(x, jnp.asarray(layer["kernel"]), stride=1 if i == 0 else 2)
            x = jax.nn.relu(add(x, layer["bias"]))
        x = jnp.mean(x, axis=(1, 2))
        if key is not None:
            kept = jax.random.bernoulli(key, 1 - self.dropout, x.shape)
            x = jnp.where(kept, x / (1 - self.dropout), 0.0)
        return add(x @ params["linear"]["kernel"], params["linear"]["bias"])

    def loss(self, params: PyTree, batch: Labeled) -> Float[Array, ""]:
        """Cross entropy, with dropout."""
        return cross_entropy(self.logits(params, batch.images, batch.key), batch.classes)

    def measure(
        self, params: PyTree, examples: Labeled, *, key: PRNGKeyArray
    ) -> dict[str, Float[Array, ""]]:
        """Accuracy and loss, without dropout."""

        def score(part: Labeled) -> dict[str, Array]:
            logits, classes = self.logits(params, scaled(part).images), part.classes
            right = jnp.argmax(logits, axis=-1) == classes
            return {"success": jnp.mean(right), "loss": cross_entropy(logits, classes)}

        return mean_of_parts(score, examples)

    @cached_property
    def space(self) -> WeightSpace:
        """The weight space, read off the network."""
        params = jax.eval_shape(lambda: self.init(key=jax.random.key(0)))
        return infer(self.logits, params, jax.ShapeDtypeStruct((1, *self.shape), jnp.float32))


def convolve(x: Array, kernel: Float[Array, "3 3 source target"], stride: int) -> Array:
    """A 3×3 convolution as three matrix products, one for each row of the window.

    For many networks at once, a convolution would become a grouped one, which is 20 times slower
    on CPUs and twice as slow on GPUs. Products with whole windows instead of rows write so much
    more memory that GPUs take 1.7 times as long.
    """
    height, width = x.shape[1:3]
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    rows = jnp.concatenate([x[:, :, j : j + width : stride] for j in range(3)], axis=-1)
    parts = [
        rows[:, i : i + height : stride] @ kernel[i].reshape(-1, kernel.shape[-1]) for i in range(3)
    ]
    return sum(parts[1:], start=parts[0])
