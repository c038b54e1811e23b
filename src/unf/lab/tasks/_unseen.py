"""Networks on images that no learned optimizer was meta-trained on: deeper, residual, unlabeled."""

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ._convolution import convolve
from ._images import MLPTask
from ._task import (
    ImageTask,
    Labeled,
    check_positive,
    cross_entropy,
    dense,
    make_dense,
    make_norm,
    normalize,
    truncated_normal,
)


@dataclass(frozen=True)
class DeepMLPTask(MLPTask):
    """Four hidden layers of 256 with ReLU on 28×28 MNIST."""

    dataset: str = "mnist"
    hidden: tuple[int, ...] = (256,) * 4

    name: ClassVar[str] = "deep-mlp"
    horizon: ClassVar[int] = 5000


@dataclass(frozen=True)
class ResNetTask(ImageTask):
    """A residual CNN with batch norm on 16×16 CIFAR-10: 16, 32 and 64 channels.

    A 3×3 convolution, then in each stage a residual block of two, where all stages but the first
    halve the image; global average, linear. Batch norms take the statistics of the batch, also of
    held-out ones: there are no running averages.
    """

    dataset: str = "cifar10"
    channels: tuple[int, ...] = (16, 32, 64)

    name: ClassVar[str] = "resnet"

    def __post_init__(self):
        super().__post_init__()
        if not self.channels or min(self.channels) < 1:
            raise ValueError(
                f"channels is {self.channels}; expected a positive number for each stage"
            )

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Truncated normal weights; scales of 1, shifts and biases of 0."""
        keys = iter(jax.random.split(key, 2 + 3 * len(self.channels)))

        def convolution(source: int, target: int) -> PyTree:
            kernel = truncated_normal((3, 3, source, target), 9 * source, key=next(keys))
            return {"kernel": kernel, "norm": make_norm(target)}

        first, last = self.channels[0], self.channels[-1]
        params = {
            "stem": convolution(self.shape[-1], first),
            "output": make_dense(last, self.num_classes, key=next(keys)),
        }
        for i, (m, n) in enumerate(pairwise((first, *self.channels))):
            params[f"stage{i}"] = {"conv0": convolution(m, n), "conv1": convolution(n, n)}
            if i > 0:
                params[f"stage{i}"]["skip"] = truncated_normal((m, n), m, key=next(keys))
        return params

    def loss(self, params: PyTree, batch: Labeled) -> Float[Array, ""]:
        """Cross entropy."""
        x = jax.nn.relu(_convolve(batch.images, params["stem"]))
        for i in range(len(self.channels)):
            stage, stride = params[f"stage{i}"], 2 if i > 0 else 1
            inside = jax.nn.relu(_convolve(x, stage["conv0"], stride))
            skip = x[:, ::stride, ::stride] @ stage["skip"] if i > 0 else x
            x = jax.nn.relu(skip + _convolve(inside, stage["conv1"]))
        return cross_entropy(dense(jnp.mean(x, axis=(1, 2)), params["output"]), batch.classes)


def _convolve(x: Array, layer: PyTree, stride: int = 1) -> Array:
    return normalize(convolve(x, layer["kernel"], stride), layer["norm"], axis=(0, 1, 2))


@dataclass(frozen=True)
class GroupNormTask(ImageTask):
    """A CNN with group norm on 16×16 CIFAR-10: 32, 64 and 64 channels in eight groups.

    3×3 convolutions, of which all but the first halve the image; global average, linear. Each
    group has mean 0 and variance 1 over its channels and all pixels of one image.
    """

    dataset: str = "cifar10"
    channels: tuple[int, ...] = (32, 64, 64)
    groups: int = 8

    name: ClassVar[str] = "group-norm"

    def __post_init__(self):
        super().__post_init__()
        check_positive(self, "groups")
        if not self.channels or any(n < 1 or n % self.groups for n in self.channels):
            raise ValueError(
                f"channels is {self.channels} and groups {self.groups}; expected a multiple of "
                "groups for each convolution"
            )

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Truncated normal weights; scales of 1, shifts and biases of 0."""
        *keys, last = jax.random.split(key, len(self.channels) + 1)
        params: dict[str, PyTree] = {
            "output": make_dense(self.channels[-1], self.num_classes, key=last)
        }
        for i, (m, n) in enumerate(pairwise((self.shape[-1], *self.channels))):
            kernel = truncated_normal((3, 3, m, n), 9 * m, key=keys[i])
            params[f"layer{i}"] = {"kernel": kernel, "norm": make_norm(n)}
        return params

    def loss(self, params: PyTree, batch: Labeled) -> Float[Array, ""]:
        """Cross entropy."""
        x: Array = batch.images
        for i in range(len(self.channels)):
            layer = params[f"layer{i}"]
            x = convolve(x, layer["kernel"], 2 if i else 1)
            grouped = x.reshape(*x.shape[:-1], self.groups, -1)
            norm = {name: leaf.reshape(self.groups, -1) for name, leaf in layer["norm"].items()}
            x = jax.nn.relu(normalize(grouped, norm, axis=(1, 2, 4)).reshape(x.shape))
        return cross_entropy(dense(jnp.mean(x, axis=(1, 2)), params["output"]), batch.classes)


@dataclass(frozen=True)
class AutoencoderTask(ImageTask):
    """784→128→32→128→784 with ReLU on 28×28 MNIST, without the classes."""

    dataset: str = "mnist"
    hidden: int = 128
    code: int = 32

    name: ClassVar[str] = "autoencoder"
    horizon: ClassVar[int] = 5000

    def __post_init__(self):
        super().__post_init__()
        check_positive(self, "hidden", "code")

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Truncated normal weights, zero biases."""
        pixels = prod(self.shape)
        widths = (pixels, self.hidden, self.code, self.hidden, pixels)
        return {
            f"layer{i}": make_dense(m, n, key=jax.random.fold_in(key, i))
            for i, (m, n) in enumerate(pairwise(widths))
        }

    def batch(self, examples: Labeled, *, key: PRNGKeyArray) -> Labeled:
        """Random images, flattened, so that their pixels are one axis of the weight space."""
        batch = super().batch(examples, key=key)
        return batch._replace(images=batch.images.reshape(self.batch_size, -1))

    def loss(self, params: PyTree, batch: Labeled) -> Float[Array, ""]:
        """The mean cross entropy of pixels, which are read as probabilities of white."""
        x = pixels = batch.images
        for i in range(len(params)):
            x = dense(jax.nn.relu(x) if i else x, params[f"layer{i}"])
        return jnp.mean(jax.nn.softplus(x) - pixels * x)
