"""Classifiers of many forms for a mixed zoo: MLPs and CNNs, plain and residual."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod, sqrt
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ...meta import Data
from ...spec import WeightSpace
from ..data import load_images
from ..data._images import Images
from ._convolution import convolve
from ._task import (
    ACTIVATIONS,
    ImageTask,
    Labeled,
    accuracy_and_loss,
    add,
    check_choice,
    check_positive,
    cross_entropy,
    make_space,
    normalize,
    scaled,
    zeros,
)

KINDS = ("mlp", "cnn")
CHOSEN_ACTIVATIONS = ("relu", "tanh", "gelu")
"""What the field `activation` of a `Classifier` counts."""
_FINEST = 8
"""The first convolution brings larger images to this size."""


@dataclass(frozen=True)
class Classifier(ImageTask):
    """An MLP or a CNN of 3×3 convolutions with layers of one width.

    In a CNN, the first convolution is followed by 2×2 averages, and the last one by a global
    average. With `norm`, layer norms replace the biases of hidden layers. With `residual`, every
    two layers after the first are a block with a connection around it; a last one alone is plain.

    The last four fields vary in a zoo: `activation` is a position in `CHOSEN_ACTIVATIONS`, initial
    weights have the deviation `initial_scale`/√fan-in, and training sees the first
    `data_fraction` of the images, of which the fraction `label_noise` has a wrong class.
    """

    kind: str = "mlp"
    depth: int = 3
    width: int = 16
    residual: bool = False
    norm: bool = False
    activation: float = 0.0
    initial_scale: float = 1.0
    data_fraction: float = 1.0
    label_noise: float = 0.0

    name: ClassVar[str] = "classifier"

    def __post_init__(self):
        check_positive(self, "batch_size", "width")
        check_choice(self, "kind", KINDS)
        if self.depth < (4 if self.residual else 2):
            raise ValueError(
                f"depth is {self.depth}; expected at least 2, and 4 with residual connections"
            )

    @property
    def _hidden(self) -> range:
        return range(self.depth - 1)

    def _closes_block(self, layer: int) -> bool:
        """Whether a residual connection ends after this layer."""
        return self.residual and layer > 0 and layer % 2 == 0

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Normal weights, zero biases and shifts, scales of 1."""

        def kernel(layer: int, *shape: int) -> Array:
            deviation = self.initial_scale / sqrt(prod(shape[:-1]))
            return deviation * jax.random.normal(jax.random.fold_in(key, layer), shape, jnp.float32)

        params: dict[str, Any] = {}
        window = (3, 3) if self.kind == "cnn" else ()
        source = self.shape[-1] if self.kind == "cnn" else prod(self.shape)
        for i in self._hidden:
            params[f"layer{i}"] = {"kernel": kernel(i, *window, source, self.width)}
            if self.norm:
                params[f"layer{i}"]["scale"] = jnp.ones(self.width, jnp.float32)
            params[f"layer{i}"]["bias"] = zeros(self.width)
            source = self.width
        last = {"kernel": kernel(self.depth, source, self.num_classes)}
        return params | {"output": last | {"bias": zeros(self.num_classes)}}

    def logits(
        self, params: PyTree, images: Float[Array, "batch height width channels"]
    ) -> Float[Array, "batch classes"]:
        """Scores of the classes."""
        x: Array = images if self.kind == "cnn" else images.reshape(len(images), -1)
        before = x
        for i in self._hidden:
            block_begins = self.residual and i % 2 == 1
            before = x if block_begins else before
            x = self._layer(params[f"layer{i}"], x, first=i == 0)
            x = x + before if self._closes_block(i) else x
        x = jnp.mean(x, axis=(1, 2)) if self.kind == "cnn" else x
        return add(x @ params["output"]["kernel"], params["output"]["bias"])

    def _layer(self, layer: PyTree, x: Array, first: bool) -> Array:
        """A linear map, a norm or a bias, the activation, and averages after the first filters."""
        if self.kind == "cnn":
            x = convolve(x, layer["kernel"], max(1, x.shape[1] // _FINEST) if first else 1)
        else:
            x = x @ layer["kernel"]
        x = normalize(x, layer) if self.norm else add(x, layer["bias"])
        branches = [ACTIVATIONS[name] for name in CHOSEN_ACTIVATIONS]
        x = jax.lax.switch(jnp.asarray(self.activation).astype(int), branches, x)
        if self.kind == "cnn" and first:
            batch, height, width, channels = x.shape
            x = x.reshape(batch, height // 2, 2, width // 2, 2, channels).mean(axis=(2, 4))
        return x

    def batch(self, examples: Labeled, *, key: PRNGKeyArray) -> Labeled:
        """Random images from the part that training sees, some with a wrong class.

        Which images are mislabeled depends on nothing but `label_noise`.
        """
        uniform = jax.random.uniform(key, (self.batch_size,), jnp.float32)
        index = jnp.floor(self.data_fraction * len(examples.classes) * uniform).astype(jnp.uint32)
        hashed = index * jnp.uint32(2654435769)  # equidistributed: 2³² divided by the golden ratio
        wrong = hashed.astype(jnp.float32) < self.label_noise * 2.0**32
        shift = 1 + (hashed >> 8) % jnp.uint32(self.num_classes - 1)
        right = examples.classes[index]
        classes = jnp.where(wrong, (right + shift.astype(right.dtype)) % self.num_classes, right)
        return scaled(Labeled(examples.images[index], classes))

    def loss(self, params: PyTree, batch: Labeled) -> Float[Array, ""]:
        """Cross entropy."""
        return cross_entropy(self.logits(params, batch.images), batch.classes)

    def measure(
        self, params: PyTree, examples: Labeled, *, key: PRNGKeyArray
    ) -> dict[str, Float[Array, ""]]:
        """Accuracy and loss, with the right classes."""
        return accuracy_and_loss(lambda images: self.logits(params, images), examples)

    @cached_property
    def space(self) -> WeightSpace:
        """Inputs, windows and classes are fixed; a block's output permutes with its input."""
        spec: dict[str, Any] = {}
        roles = {f"layer{i}/scale": "scale" for i in self._hidden} if self.norm else {}
        source = around = "[in]"
        for i in self._hidden:
            around = source if self.residual and i % 2 == 1 else around
            target = around if self._closes_block(i) else f"h{i}"
            window = f"[y{i}] [x{i}] " if self.kind == "cnn" else ""
            spec[f"layer{i}"] = {"kernel": f"{window}{source} {target}", "bias": target}
            if self.norm:
                spec[f"layer{i}"]["scale"] = target
            source = target
        spec["output"] = {"kernel": f"{source} [class]", "bias": "[class]"}
        return make_space(self, spec, roles)

    def data(self) -> Data:
        """All images, with 8 bits per value; tasks on the same images share them."""
        return _device_data(self.dataset, self.folder)

    @cached_property
    def _images(self) -> Images:
        return host_images(self.dataset, self.folder)


@lru_cache(maxsize=4)
def host_images(dataset: str, folder: str | None, full: bool = False) -> Images:
    """A dataset's images; tasks on the same ones share them."""
    return load_images(dataset, folder, full=full)


@lru_cache(maxsize=4)
def _device_data(dataset: str, folder: str | None) -> Data:
    x, y, test_x, test_y = map(jnp.asarray, host_images(dataset, folder))
    return Data(Labeled(x, y), Labeled(test_x, test_y))
