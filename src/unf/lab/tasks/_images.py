"""Small images: the paper's MLP and CNN (appendix B), and the CNN of a zoo."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod, sqrt
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ...graph import infer
from ...spec import WeightSpace
from .._folder import added
from ..data._images import Images, load_images
from ._convolution import convolve
from ._task import (
    ACTIVATIONS,
    ImageTask,
    Labeled,
    Runnable,
    accuracy_and_loss,
    add,
    answer_features,
    check_choice,
    check_positive,
    cross_entropy,
    make_norm,
    make_space,
    normalize,
    scaled,
    truncated_normal,
    zeros,
)


@dataclass(frozen=True)
class MLPTask(ImageTask):
    """64→32→10 with ReLU on 8×8 Fashion-MNIST."""

    hidden: tuple[int, ...] = (32,)
    activation: str = added("relu")
    layer_norm: bool = added(False)

    name: ClassVar[str] = "mlp"

    def __post_init__(self):
        super().__post_init__()
        check_positive(self, "hidden")
        check_choice(self, "activation", ACTIVATIONS)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """The number of neurons in each layer."""
        return (prod(self.shape), *self.hidden, self.num_classes)

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Truncated normal weights, zero biases, norms with scale 1."""
        params: dict[str, Any] = {}
        for i, (m, n) in enumerate(pairwise(self.widths)):
            params[f"w{i}"] = truncated_normal((m, n), m, key=jax.random.fold_in(key, i))
            params[f"b{i}"] = zeros(n)
        if self.layer_norm:
            params |= {f"norm{i}": make_norm(n) for i, n in enumerate(self.hidden)}
        return params

    def outputs(
        self, params: PyTree, images: Float[Array, "batch height width channels"]
    ) -> Float[Array, "batch outputs"]:
        """What the last layer returns; hidden layers are normalized before their activation."""
        x: Array = images.reshape(len(images), -1)
        for i in range(len(self.widths) - 1):
            if i and self.layer_norm:
                x = normalize(x, params[f"norm{i - 1}"])
            x = ACTIVATIONS[self.activation](x) if i else x
            x = add(x @ params[f"w{i}"], params[f"b{i}"])
        return x

    def loss(self, params: PyTree, batch: Labeled) -> Float[Array, ""]:
        """Cross entropy."""
        return cross_entropy(self.outputs(params, batch.images), batch.classes)

    @cached_property
    def space(self) -> WeightSpace:
        """Inputs and outputs are fixed."""
        names = ["[in]", *(f"h{i}" for i in range(len(self.hidden))), "[out]"]
        spec: dict[str, Any] = {}
        for i, (a, b) in enumerate(pairwise(names)):
            spec |= {f"w{i}": f"{a} {b}", f"b{i}": b}
        if self.layer_norm:
            norms = [{"scale": name, "bias": name} for name in names[1:-1]]
            spec |= {f"norm{i}": norm for i, norm in enumerate(norms)}
        return make_space(self, spec)


@dataclass(frozen=True)
class CNNTask(ImageTask):
    """3×3 convolutions to 16 and 32 channels, global average, linear, on 16×16 CIFAR-10."""

    dataset: str = "cifar10"
    channels: tuple[int, ...] = (16, 32)
    first_stride: int = 1
    dtype: str = "float32"
    activation: str = added("relu")

    name: ClassVar[str] = "cnn"

    def __post_init__(self):
        super().__post_init__()
        check_positive(self, "first_stride", "channels")
        if not self.channels:
            raise ValueError("channels is empty; expected those of at least one convolution")
        check_choice(self, "activation", ACTIVATIONS)
        if self.dtype not in ("float32", "bfloat16"):
            raise ValueError(f"dtype is {self.dtype!r}; expected float32 or bfloat16")

    @property
    def spatial(self) -> tuple[str, ...]:
        """The windows of every convolution."""
        return tuple(f"{axis}{i}" for i in range(len(self.channels)) for axis in "hw")

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Truncated normal weights, zero biases."""
        *keys, last_key = jax.random.split(key, len(self.channels) + 1)
        params, widths = {}, (self.shape[-1], *self.channels)
        for i, (m, n) in enumerate(pairwise(widths)):
            params[f"k{i}"] = truncated_normal((3, 3, m, n), 9 * m, key=keys[i])
            params[f"b{i}"] = zeros(n)
        linear = truncated_normal((widths[-1], self.num_classes), widths[-1], key=last_key)
        return {**params, "w": linear, "b": zeros(self.num_classes)}

    def loss(self, params: PyTree, batch: Labeled) -> Float[Array, ""]:
        """Cross entropy; the products of the convolutions are computed in `dtype`."""
        x: Array = batch.images
        for i in range(len(self.channels)):
            x, kernel = x.astype(self.dtype), params[f"k{i}"].astype(self.dtype)
            bias = params[f"b{i}"]  # added in its own dtype, in which its gradient is then summed
            x = convolve(x, kernel, 1 if i else self.first_stride).astype(bias.dtype)
            x = ACTIVATIONS[self.activation](add(x, bias))
        x = jnp.mean(x, axis=(1, 2))
        return cross_entropy(add(x @ params["w"], params["b"]), batch.classes)

    @cached_property
    def space(self) -> WeightSpace:
        """Windows, colors and classes are fixed; `relax()` gives each axis its own name."""
        names = ["[color]", *(f"c{i}" for i in range(len(self.channels)))]
        spec = {"w": f"{names[-1]} [class]", "b": "[class]"}
        for i, (a, b) in enumerate(pairwise(names)):
            spec |= {f"k{i}": f"[h{i}] [w{i}] {a} {b}", f"b{i}": b}
        return make_space(self, spec)


@dataclass(frozen=True)
class SmallCNN(ImageTask):
    """3×3 convolutions, global average, linear; 4,970 weights at 16 channels on gray images.

    Every convolution but the first halves the image. With `gray`, images are the means of their
    colors. The last three fields vary in a zoo:
    initial weights have the deviation `initial_scale`/√fan-in, features are dropped at the rate
    `dropout` before the linear layer, and training sees the first `data_fraction` of the images.
    """

    dataset: str = "digits"
    channels: int = 16
    num_convolutions: int = 3
    gray: bool = False
    initial_scale: float = 1.0
    dropout: float = 0.0
    data_fraction: float = 1.0

    name: ClassVar[str] = "small-cnn"

    def __post_init__(self):
        check_positive(self, "batch_size", "channels", "num_convolutions")

    @cached_property
    def _images(self) -> Images:
        found = load_images(self.dataset, self.folder)
        if not self.gray:
            return found

        def mean(x: np.ndarray) -> np.ndarray:
            return x.mean(axis=-1, keepdims=True).round().astype(np.uint8)

        return found._replace(train_x=mean(found.train_x), test_x=mean(found.test_x))

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

    @property
    def network(self) -> Runnable:
        """A function of weights and images; probes start from images of the training set."""
        return Runnable(self.answers, self.shape, 0.3, num_probes=128, start=self.some_images)

    def answers(
        self, params: PyTree, images: Float[Array, "batch height width channels"]
    ) -> Float[Array, "batch features"]:
        """Log-probabilities of the classes, and the one that is chosen."""
        return answer_features(self.logits(params, images))

    def some_images(
        self, size: int, *, key: PRNGKeyArray
    ) -> Float[Array, "size height width channels"]:
        """Training images, with values in [0, 1]."""
        images = self._images.train_x
        rows = jax.random.choice(key, len(images), (size,), replace=size > len(images))
        return jnp.asarray(images[np.asarray(rows)], jnp.float32) / 255

    def loss(self, params: PyTree, batch: Labeled) -> Float[Array, ""]:
        """Cross entropy, with dropout."""
        return cross_entropy(self.logits(params, batch.images, batch.key), batch.classes)

    def measure(
        self, params: PyTree, examples: Labeled, *, key: PRNGKeyArray
    ) -> dict[str, Float[Array, ""]]:
        """Accuracy and loss, without dropout."""
        return accuracy_and_loss(lambda images: self.logits(params, images), examples)

    @cached_property
    def space(self) -> WeightSpace:
        """The weight space, read off the network."""
        params = jax.eval_shape(lambda: self.init(key=jax.random.key(0)))
        return infer(self.logits, params, jax.ShapeDtypeStruct((1, *self.shape), jnp.float32))
