"""Tasks on images and on text, and what their networks share."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ...meta import Data, Task
from ...spec import WeightSpace
from ...spec._roles import roles_by_pattern
from .._folder import added
from ..data import DataError, load_images, load_text
from ..data._images import Images
from ..data._text import UNITS

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
}
"""Activations by name."""


class Runnable(NamedTuple):
    """A network as probes run it.

    Attributes:
        fn: maps weights and inputs of shape (inputs, *input_shape) to outputs.
        input_shape: the shape of one input.
        scale: learned inputs start from N(0, scale²).
        num_probes: how many inputs to learn: many where running the network costs little.
        start: draws that many inputs, which the learned ones are added to.
    """

    fn: Callable[[PyTree, Array], Array]
    input_shape: tuple[int, ...]
    scale: float = 1.0
    num_probes: int = 64
    start: Callable[..., Array] | None = None

    @property
    def about(self) -> dict[str, Any]:
        """What tells it from others, where functions are told apart by their names only."""
        name = getattr(self.fn, "__qualname__", type(self.fn).__name__)
        shape, started = list(self.input_shape), self.start is not None
        known = {"fn": name, "input_shape": shape, "num_probes": self.num_probes}
        return {**known, "scale": self.scale, "start": started}


def choice(scores: Float[Array, "... choices"]) -> Float[Array, "... choices"]:
    """Almost 1 for the choice with the largest score and 0 for others, with derivatives."""
    return jax.nn.softmax(16 * scores)


def answer_features(scores: Float[Array, "... choices"]) -> Float[Array, "... features"]:
    """What probes read: log-probabilities, and which choice is the largest.

    Probabilities alone tell little about success, since a network may be right and unsure. The
    second half is multiplied by 4, so that it varies about as much as the first.
    """
    return jnp.concatenate([jax.nn.log_softmax(scores), 4 * choice(scores)], axis=-1)


def check_finite(data: Any, name: str) -> None:
    """Refuse data with NaN or infinity.

    Raises:
        DataError: naming the first such array.
    """
    for i, leaf in enumerate(jax.tree.leaves(data)):
        if jnp.issubdtype(leaf.dtype, jnp.inexact) and not bool(jnp.isfinite(leaf).all()):
            raise DataError(f"the data of task {name!r} are not finite (array {i})")


def check_positive(task: Task, *names: str) -> None:
    """Refuse fields below 1, and tuples of sizes with one below 1."""
    for name in names:
        value = getattr(task, name)
        if min(value, default=1) < 1 if isinstance(value, tuple) else value < 1:
            raise ValueError(f"{name} is {value}; expected at least 1")


def check_choice(task: Task, name: str, allowed: Collection[str]) -> None:
    """Refuse a field with an unknown name."""
    if getattr(task, name) not in allowed:
        raise ValueError(f"{name} is {getattr(task, name)!r}; expected one of {list(allowed)}")


def make_space(
    task: Task, spec: PyTree, roles: Mapping[str, str] | None = None, **sizes: int
) -> WeightSpace:
    """The weight space of a task's networks, from a specification.

    Args:
        task: the task.
        spec: the specification of its networks' weights.
        roles: the roles of leaves whose paths match a pattern; others have those of JAX's order.
        **sizes: sizes of names that the arrays' shapes do not determine.
    """
    params = jax.eval_shape(lambda: task.init(key=jax.random.key(0)))
    given = None if roles is None else roles_by_pattern(roles, params)
    return WeightSpace.from_spec(spec, params, sizes=sizes, roles=given)


def truncated_normal(shape: tuple[int, ...], fan_in: int, *, key: PRNGKeyArray) -> Array:
    """Normal weights with deviation 1/√fan-in, truncated at two deviations."""
    return jax.random.truncated_normal(key, -2, 2, shape, jnp.float32) / sqrt(fan_in)


def zeros(*shape: int) -> Array:
    """Zeros, in single precision."""
    return jnp.zeros(shape, jnp.float32)


def add(x: Array, bias: Array | np.ndarray) -> Array:
    """Add a bias along the last axis."""
    return x + jnp.broadcast_to(bias, x.shape)


def make_dense(source: int, target: int, *, key: PRNGKeyArray) -> dict[str, Array]:
    """The weights of a linear layer: truncated normal, with zero biases."""
    return {"w": truncated_normal((source, target), source, key=key), "b": zeros(target)}


def make_norm(width: int) -> dict[str, Array]:
    """The weights of a normalization: scales of 1, shifts of 0."""
    return {"scale": jnp.ones(width, jnp.float32), "bias": zeros(width)}


def dense(x: Array, layer: PyTree) -> Array:
    """A linear layer, xW + b."""
    return add(x @ layer["w"], layer["b"])


def normalize(x: Array, layer: PyTree, axis: int | tuple[int, ...] = -1) -> Array:
    """Mean 0 and variance 1 along the axes, then a scale and a shift along the last axis.

    Along the last axis it is a layer norm; along all others it is a batch norm, with the
    statistics of the batch.
    """
    x = x - jnp.mean(x, axis, keepdims=True)
    x = x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis, keepdims=True) + 1e-5)
    return add(x * jnp.broadcast_to(layer["scale"], x.shape), layer["bias"])


def cross_entropy(
    logits: Float[Array, "*batch classes"], classes: Int[Array, "*batch"]
) -> Float[Array, ""]:
    """The mean negative log-likelihood."""
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), classes[..., None], axis=-1)
    return -jnp.mean(chosen)


def mean_of_parts(score: Callable[[Any], Any], examples: Any) -> Any:
    """Average scores over examples, at most 500 at a time to save memory; a rest is left out."""
    count = len(jax.tree.leaves(examples)[0])
    size = count // -(-count // 500)
    parts = jax.tree.map(
        lambda x: x[: count // size * size].reshape(-1, size, *x.shape[1:]), examples
    )
    return jax.tree.map(jnp.mean, jax.lax.map(score, parts))


class Labeled(NamedTuple):
    """Images, with 8 bits per value in data and values in [0, 1] in batches; and their classes."""

    images: Array
    classes: Int[Array, " batch"]
    key: PRNGKeyArray | None = None
    """Of a batch: for dropout, if the network has it."""


@dataclass(frozen=True)
class ImageTask(Task):
    """Learning from labeled images. A subclass needs `init` and `loss`."""

    dataset: str = "fashion-mnist"
    folder: str | None = None
    batch_size: int = 128

    def __post_init__(self):
        check_positive(self, "batch_size")

    def data(self) -> Data:
        """All images, with 8 bits per value."""
        x, y, test_x, test_y = map(jnp.asarray, self._images)
        return Data(Labeled(x, y), Labeled(test_x, test_y))

    def batch(self, examples: Labeled, *, key: PRNGKeyArray) -> Labeled:
        """Random images."""
        index = jax.random.randint(key, (self.batch_size,), 0, len(examples.classes))
        return scaled(Labeled(examples.images[index], examples.classes[index]))

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""
        height, width, channels = self._images.train_x.shape[1:]
        return height, width, channels

    @cached_property
    def num_classes(self) -> int:
        """How many classes there are."""
        return 1 + int(max(self._images.train_y.max(), self._images.test_y.max()))

    @cached_property
    def _images(self) -> Images:
        return load_images(self.dataset, self.folder)


def scaled(batch: Labeled) -> Labeled:
    """Images with values in [0, 1]."""
    return batch._replace(images=batch.images.astype(jnp.float32) / 255)


def accuracy_and_loss(
    logits: Callable[[Array], Array], examples: Labeled
) -> dict[str, Float[Array, ""]]:
    """How often a classifier is right, `success`, and its cross entropy, `loss`."""

    def score(part: Labeled) -> dict[str, Array]:
        found, classes = logits(scaled(part).images), part.classes
        right = jnp.argmax(found, axis=-1) == classes
        return {"success": jnp.mean(right), "loss": cross_entropy(found, classes)}

    return mean_of_parts(score, examples)


@dataclass(frozen=True)
class TextTask(Task):
    """Predicting the next symbol of a text. A subclass needs `init` and `logits`."""

    dataset: str = "lm1b"
    folder: str | None = None
    batch_size: int = 64
    length: int = 16
    unit: str = added("bytes")

    def __post_init__(self):
        check_positive(self, "batch_size", "length")
        check_choice(self, "unit", UNITS)

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
        """Windows at random places, one symbol longer than what the network reads."""
        starts = jax.random.randint(key, (self.batch_size, 1), 0, len(examples) - self.length)
        return examples[starts + jnp.arange(self.length + 1)[None]].astype(jnp.int32)

    def loss(self, params: PyTree, batch: Int[Array, "batch symbols"]) -> Float[Array, ""]:
        """The mean cross entropy of each symbol, given those before it in the window."""
        return cross_entropy(self.logits(params, batch[:, :-1]), batch[:, 1:])

    @abstractmethod
    def logits(self, params: PyTree, symbols: Int[Array, "batch length"]) -> Array:
        """Scores of the next symbol at every position."""

    @cached_property
    def num_symbols(self) -> int:
        """The size of the vocabulary."""
        return self._text.vocabulary

    @cached_property
    def _text(self) -> Any:
        return load_text(self.dataset, self.folder, unit=self.unit)
