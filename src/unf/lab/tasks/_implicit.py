"""Implicit neural representations: a network for each image, from coordinates to values."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import sqrt
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ...meta import Data
from ...spec import WeightSpace
from ..data._images import Images
from ._classifier import host_images
from ._task import ImageTask, Runnable, add, check_positive, make_space

_MOVES = (0.13, 0.075, 0.075)
"""The largest angle, logarithm of a scale, and shift of an image in `augment`."""
_MIRRORED = ("cifar10", "fashion-mnist")
"""Datasets whose images keep their class in a mirror."""


class Pixels(NamedTuple):
    """Where the pixels of an image are, and their values; in data, of all images, with 8 bits."""

    places: Float[Array, "pixels 2"]
    values: Array


class Siren:
    """What a SIREN (Sitzmann et al. 2020) of an image computes: coordinates in [−1, 1]² to values.

    Hidden layers are sin(ω(Wx + b)), and values are g(Wx + b) + ½.

    Attributes:
        shape: height, width, and channels of the image.
        mirrored: whether mirroring an image preserves its class.
        frequency: ω.
        gain: g, with which the values of an image are from 0 to 1.
    """

    shape: Any
    mirrored: Any
    frequency: float
    gain: float = 1.0

    def values(
        self, params: PyTree, places: Float[Array, "points 2"]
    ) -> Float[Array, "points channels"]:
        """The values at some places."""
        x: Array = places
        for i in range(len(params)):
            layer = params[f"layer{i}"]
            x = add(x @ layer["kernel"], layer["bias"])
            x = jnp.sin(self.frequency * x) if i + 1 < len(params) else x
        return self.gain * x + 0.5

    def draw(self, params: PyTree) -> Float[Array, "height width channels"]:
        """The image that a network has learned."""
        return self.values(params, self.places).reshape(self.shape)

    @property
    def places(self) -> Float[Array, "pixels 2"]:
        """The centers of pixels, row by row."""
        height, width, _ = self.shape
        y, x = ((jnp.arange(n, dtype=jnp.float32) + 0.5) * (2 / n) - 1 for n in (height, width))
        return jnp.stack(jnp.meshgrid(y, x, indexing="ij"), axis=-1).reshape(-1, 2)

    @property
    def network(self) -> Runnable:
        """A function of weights and places.

        Probes start near the middle: outside the image a network says nothing about it, and probes
        that start there find no way in.
        """
        return Runnable(self.values, (2,), scale=0.25, num_probes=256)

    def augment(self, params: PyTree, key: PRNGKeyArray) -> PyTree:
        """The image moved a little, by other weights: turned, stretched, and shifted at random.

        Images of things, not of digits, are also mirrored at random, left to right.
        """
        keys = jax.random.split(key, 4)
        angle, stretch, shift = (
            size * jax.random.uniform(each, shape, jnp.float32, -1, 1)
            for each, size, shape in zip(keys[:3], _MOVES, ((), (2,), (2,)), strict=True)
        )
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        turn = jnp.exp(stretch)[:, None] * jnp.array([[cos, sin], [-sin, cos]])
        if self.mirrored:
            side = jax.random.rademacher(keys[3], (), jnp.float32)
            turn = turn * jnp.stack([jnp.ones(()), side])[None]
        first = params["layer0"]
        kernel, bias = turn @ first["kernel"], first["bias"] + shift @ first["kernel"]
        return {**params, "layer0": {"kernel": kernel, "bias": bias}}


@dataclass(frozen=True)
class ImplicitImage(Siren, ImageTask):
    """A SIREN with two hidden layers that learns one image.

    Training sees all pixels in every step. Images have the size of the official files, if these
    are there. Those for testing follow those for training.

    Attributes:
        hidden: neurons of each hidden layer.
        frequency: ω.
        initial_bias: biases start between −1 and 1 times this over √fan-in.
        image: the number of the image, which varies in a zoo.
    """

    hidden: int = 32
    frequency: float = 30.0
    initial_bias: float = 0.0
    image: float = 0.0

    name: ClassVar[str] = "implicit"

    def __post_init__(self):
        check_positive(self, "hidden", "batch_size")

    @cached_property
    def _images(self) -> Images:
        return host_images(self.dataset, self.folder, full=True)

    @property
    def mirrored(self) -> bool:
        """Whether mirroring an image preserves its class: it does for things, not for digits."""
        return self.dataset in _MIRRORED

    @cached_property
    def labels(self) -> np.ndarray:
        """The class of every image."""
        return np.concatenate([self._images.train_y, self._images.test_y])

    @property
    def images(self) -> np.ndarray:
        """All images, with 8 bits per value; those for testing are last."""
        return np.concatenate([self._images.train_x, self._images.test_x])

    @property
    def num_train(self) -> int:
        """How many of the images are for training."""
        return len(self._images.train_y)

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Uniform weights that keep the deviations of activations the same in every layer.

        With `initial_bias=1`, biases start as PyTorch's do.
        """
        sizes, params = (2, self.hidden, self.hidden, self.shape[-1]), {}
        for i, each in enumerate(jax.random.split(key, 3)):
            source, target = sizes[i : i + 2]
            bound = 1 / source if i == 0 else sqrt(6 / source) / self.frequency
            drawn = jax.random.uniform(each, (source + 1, target), jnp.float32, -1, 1)
            bias = self.initial_bias / sqrt(source) * drawn[0]
            params[f"layer{i}"] = {"kernel": bound * drawn[1:], "bias": bias}
        return params

    def data(self) -> Data:
        """All images; the held-out data are the same, each half with every second pixel."""
        images = self.images
        flat = images.reshape(len(images), -1, images.shape[-1])
        order = np.concatenate([np.arange(i, flat.shape[1], 2) for i in range(2)])
        by_pixel = np.moveaxis(flat[:, order], 1, 0)
        train = Pixels(self.places, jnp.asarray(flat))
        return Data(train, Pixels(self.places[order], jnp.asarray(by_pixel)))

    def batch(self, examples: Any, *, key: PRNGKeyArray) -> Any:
        """All pixels of the image, as `Pixels`."""
        return Pixels(examples.places, _scaled(examples.values[self._number]))

    @property
    def _number(self) -> Array:
        return jnp.asarray(self.image).astype(jnp.int32)

    def loss(self, params: PyTree, batch: Pixels) -> Float[Array, ""]:
        """The mean squared error."""
        return jnp.mean(jnp.square(self.values(params, batch.places) - batch.values))

    def measure(
        self, params: PyTree, examples: Pixels, *, key: PRNGKeyArray
    ) -> dict[str, Float[Array, ""]]:
        """The mean squared error as `loss`; `success` is the share of variance explained."""
        wanted = _scaled(examples.values[:, self._number])
        error = self.loss(params, Pixels(examples.places, wanted))
        share = error / jnp.maximum(jnp.var(wanted), 1e-6)
        return {"success": jnp.clip(1 - share, 0, 1), "loss": error}

    @cached_property
    def space(self) -> WeightSpace:
        """Coordinates and values are fixed."""
        axes = ("[in]", "h0", "h1", "[out]")
        spec = {
            f"layer{i}": {"kernel": f"{source} {target}", "bias": target}
            for i, (source, target) in enumerate(pairwise(axes))
        }
        return make_space(self, spec)


def _scaled(values: Array) -> Array:
    return values.astype(jnp.float32) / 255
