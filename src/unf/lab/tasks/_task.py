"""Tasks on images and on text, and what their networks share."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ...meta import Data, Task
from ..data import DataError, Images, load_images, load_text


def check_finite(data: Any, name: str) -> None:
    """Refuse data with NaN or infinity.

    Raises:
        DataError: naming the first array.
    """
    for i, leaf in enumerate(jax.tree.leaves(data)):
        if jnp.issubdtype(leaf.dtype, jnp.inexact) and not bool(jnp.isfinite(leaf).all()):
            raise DataError(f"the data of task {name!r} are not finite (array {i})")


def truncated_normal(shape: tuple[int, ...], fan_in: int, *, key: PRNGKeyArray) -> Array:
    """Weights from a normal cut off at two deviations, with deviation 1/√fan-in before the cut."""
    return jax.random.truncated_normal(key, -2, 2, shape, jnp.float32) / sqrt(fan_in)


def cross_entropy(
    logits: Float[Array, "*batch classes"], classes: Int[Array, "*batch"]
) -> Float[Array, ""]:
    """Mean negative log-likelihood."""
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), classes[..., None], axis=-1)
    return -jnp.mean(chosen)


def add(x: Array, bias: Array) -> Array:
    """Add a bias along the last axis."""
    return x + jnp.broadcast_to(bias, x.shape)


class Labelled(NamedTuple):
    """Images with values in [0, 1], or 8-bit ones, and their classes."""

    images: Array
    classes: Int[Array, " batch"]


@dataclass(frozen=True)
class ImageTask(Task):
    """Telling images apart."""

    dataset: str = "fashion-mnist"
    folder: str | None = None
    batch_size: int = 128

    num_classes: ClassVar[int] = 10

    def __post_init__(self):
        _check_positive(self, "batch_size")

    def data(self) -> Data:
        """Images with 8 bits a value."""
        images = self._images
        largest = int(max(images.train_y.max(), images.test_y.max()))
        if largest >= self.num_classes:
            raise DataError(
                f"{self.dataset} has classes up to {largest}; expected {self.num_classes} of them"
            )
        parts = (images.train_x, images.train_y), (images.test_x, images.test_y)
        return Data(*(Labelled(jnp.asarray(x), jnp.asarray(y)) for x, y in parts))

    def batch(self, examples: Labelled, *, key: PRNGKeyArray) -> Labelled:
        """Images with values in [0, 1]."""
        index = jax.random.randint(key, (self.batch_size,), 0, len(examples.classes))
        return Labelled(examples.images[index].astype(jnp.float32) / 255, examples.classes[index])

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""
        height, width, channels = self._images.train_x.shape[1:]
        return height, width, channels

    @cached_property
    def _images(self) -> Images:
        return load_images(self.dataset, self.folder)


@dataclass(frozen=True)
class TextTask(Task):
    """Predicting the next symbol of a text."""

    dataset: str = "lm1b"
    folder: str | None = None
    batch_size: int = 64
    length: int = 16

    unit: ClassVar[str] = "bytes"

    def __post_init__(self):
        _check_positive(self, "batch_size", "length")

    def data(self) -> Data:
        """The text as one stream of symbols."""
        text = self._text
        shortest = min(len(text.train), len(text.heldout))
        if shortest <= self.length:
            raise DataError(
                f"a part of {self.dataset} has {shortest} symbols; expected more than the "
                f"{self.length} of a window"
            )
        return Data(jnp.asarray(text.train), jnp.asarray(text.heldout))

    def batch(self, examples: Array, *, key: PRNGKeyArray) -> Int[Array, "batch symbols"]:
        """Windows at random places, one symbol longer than what is read."""
        starts = jax.random.randint(key, (self.batch_size, 1), 0, len(examples) - self.length)
        return examples[starts + jnp.arange(self.length + 1)[None]].astype(jnp.int32)

    def loss(self, params: PyTree, batch: Int[Array, "batch symbols"]) -> Float[Array, ""]:
        """Of every symbol, given those before it in the window."""
        return cross_entropy(self.logits(params, batch[:, :-1]), batch[:, 1:])

    @abstractmethod
    def logits(self, params: PyTree, symbols: Int[Array, "batch length"]) -> Array:
        """Scores of the next symbol at every place."""

    @cached_property
    def num_symbols(self) -> int:
        """The size of the vocabulary."""
        return self._text.vocabulary

    @cached_property
    def _text(self) -> Any:
        return load_text(self.dataset, self.folder, unit=self.unit)


def _check_positive(task: Task, *names: str) -> None:
    for name in names:
        if getattr(task, name) < 1:
            raise ValueError(f"{name} is {getattr(task, name)}; expected at least 1")
