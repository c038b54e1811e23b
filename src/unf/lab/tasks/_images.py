"""Telling images apart with a small convolutional network."""

from dataclasses import dataclass
from functools import cached_property
from math import prod, sqrt

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ...graph import infer
from ...spec import WeightSpace
from ._convolution import convolve
from ._task import Labelled, cross_entropy


@dataclass(frozen=True)
class SmallCNN:
    """3×3 convolutions, global average, linear; 4,970 weights at 16 channels on grey images.

    Every convolution but the first halves the image.
    """

    channels: int = 16
    num_convolutions: int = 3
    shape: tuple[int, int, int] = (8, 8, 1)
    num_classes: int = 10

    def init(self, scale: Array | float = 1.0, *, key: PRNGKeyArray) -> PyTree:
        """Weights from a normal with standard deviation scale/√fan-in, biases zero."""
        keys = iter(jax.random.split(key, self.num_convolutions + 1))
        params, width = {}, self.shape[-1]

        def layer(shape: tuple[int, ...]) -> dict[str, Array]:
            deviation = scale / sqrt(prod(shape[:-1]))
            kernel = deviation * jax.random.normal(next(keys), shape, jnp.float32)
            return {"kernel": kernel, "bias": jnp.zeros(shape[-1], jnp.float32)}

        for i in range(self.num_convolutions):
            params[f"conv{i}"] = layer((3, 3, width, self.channels))
            width = self.channels
        return params | {"linear": layer((width, self.num_classes))}

    def logits(
        self,
        params: PyTree,
        images: Float[Array, "batch height width channels"],
        *,
        dropout: Array | float = 0.0,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "batch classes"]:
        """Scores of the classes; with a key, features are dropped before the linear layer."""
        x = images
        for i in range(self.num_convolutions):
            layer = params[f"conv{i}"]
            x = convolve(x, jnp.asarray(layer["kernel"]), stride=1 if i == 0 else 2)
            x = jax.nn.relu(x + jnp.broadcast_to(layer["bias"], x.shape))
        x = jnp.mean(x, axis=(1, 2))
        if key is not None:
            kept = jax.random.bernoulli(key, 1 - dropout, x.shape)
            x = jnp.where(kept, x / (1 - dropout), 0.0)
        linear = params["linear"]
        scores = x @ linear["kernel"]
        return scores + jnp.broadcast_to(linear["bias"], scores.shape)

    def loss(
        self,
        params: PyTree,
        batch: Labelled,
        *,
        dropout: Array | float = 0.0,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, ""]:
        """Mean cross entropy."""
        return cross_entropy(
            self.logits(params, batch.images, dropout=dropout, key=key), batch.classes
        )

    def measure(self, params: PyTree, batch: Labelled) -> dict[str, Float[Array, ""]]:
        """Accuracy, as success, and loss."""
        logits = self.logits(params, batch.images)
        right = jnp.argmax(logits, axis=-1) == batch.classes
        return {"success": jnp.mean(right), "loss": cross_entropy(logits, batch.classes)}

    @cached_property
    def space(self) -> WeightSpace:
        """The weight space, read off the network."""
        params = jax.eval_shape(lambda: self.init(key=jax.random.key(0)))
        return infer(self.logits, params, jax.ShapeDtypeStruct((1, *self.shape), jnp.float32))
