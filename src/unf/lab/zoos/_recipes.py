"""The zoos there are."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import tyro
from jaxtyping import Array, PRNGKeyArray, PyTree

from ...spec import WeightSpace
from ...zoo import Zoo, ZooError
from ..data import load_images
from ..tasks import Addition, Labelled, Problems, SmallCNN
from ._recipe import Choices, Recipe, log_uniform

_MEASURED_AT_ONCE = 500


@dataclass(frozen=True)
class TinyRNN(Recipe):
    """The Tiny RNN Zoo (§4.1): recurrent networks that have learned to add, more or less."""

    name: ClassVar[str] = "tiny-rnn"

    hidden: int = 128
    """Size of the recurrent state."""
    digits: int = 5
    """The largest number of digits of an operand."""
    problems: int = 10_000
    """Addition problems in each of the two measurements."""
    dtype: str = "auto"
    """Dtype of activations; auto: bfloat16 on accelerators, float32 elsewhere."""

    def __post_init__(self):
        super().__post_init__()
        if self.problems < 1:
            raise ValueError(f"problems is {self.problems}; expected at least 1")
        self.task  # its own checks  # noqa: B018

    @cached_property
    def task(self) -> Addition:
        """Addition, and the network that learns it."""
        dtype = "float32" if self.dtype == "auto" else self.dtype
        return Addition(digits=self.digits, hidden=self.hidden, dtype=dtype)

    def resolved(self, like: Mapping[str, Any] | None = None) -> "TinyRNN":
        """With the type of activations that is fast here, or that another zoo has."""
        fast = "float32" if jax.default_backend() == "cpu" else "bfloat16"
        dtype = (like or {}).get("dtype", fast)
        return replace(self, dtype=dtype) if self.dtype == "auto" else self

    @property
    def space(self) -> WeightSpace:
        """One hidden permutation; the vocabulary is fixed."""
        return self.task.space

    def init(self, choices: Choices, *, key: PRNGKeyArray) -> PyTree:
        """A network's first weights."""
        return self.task.init(key=key)

    def batch(self, choices: Choices, data: PyTree, size: int, *, key: PRNGKeyArray) -> Problems:
        """Fresh problems."""
        return self.task.problems(size, key=key)

    def loss(self, params: PyTree, batch: Problems, choices: Choices, *, key: PRNGKeyArray):
        """Cross entropy of the answers' characters."""
        return self.task.loss(params, batch)

    def measure(
        self, params: PyTree, data: PyTree, *, repeat: int, key: PRNGKeyArray
    ) -> dict[str, Array]:
        """Success rate and loss on fresh problems, decoded greedily."""
        parts = -(-self.problems // _MEASURED_AT_ONCE)

        def part(key: PRNGKeyArray) -> dict[str, Array]:
            problems = self.task.problems(-(-self.problems // parts), key=key)
            return self.task.measure(params, problems)

        return jax.tree.map(jnp.mean, jax.lax.map(part, jax.random.split(key, parts)))


@dataclass(frozen=True)
class SmallCNNZoo(Recipe):
    """Small image classifiers, after the Small CNN Zoo of Unterthiner et al. (2020)."""

    name: ClassVar[str] = "small-cnn"

    min_learning_rate: float = 5e-4
    """The smallest learning rate; it is drawn log-uniformly."""
    max_learning_rate: float = 5e-2
    """The largest learning rate."""
    dataset: str = "digits"
    """The dataset: cifar10, fashion-mnist or digits."""
    data_folder: Annotated[str, tyro.conf.arg(aliases=("--data",), metavar="DIR")] = ""
    """Folder with the dataset; the variable UNF_DATA by default."""
    channels: int = 16
    """Channels of each of the three convolutions."""
    min_scale: float = 0.1
    """The smallest scale of initial weights, as a multiple of 1/√fan-in; drawn log-uniformly."""
    max_scale: float = 3.0
    """The largest scale of initial weights."""
    max_dropout: float = 0.7
    """The largest dropout rate; it is drawn uniformly."""
    min_weight_decay: float = 1e-8
    """The smallest weight decay; it is drawn log-uniformly."""
    max_weight_decay: float = 1e-2
    """The largest weight decay."""
    data_fractions: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0)
    """Fractions of the training data; each network is trained on one of them."""

    def __post_init__(self):
        super().__post_init__()
        for what in ("scale", "weight_decay"):
            low, high = getattr(self, f"min_{what}"), getattr(self, f"max_{what}")
            if not 0 < low <= high:
                raise ValueError(f"{what} from {low} to {high}; expected 0 < low <= high")
        if not 0 <= self.max_dropout < 1:
            raise ValueError(f"max_dropout is {self.max_dropout}; expected 0 <= rate < 1")
        if not self.data_fractions or not all(0 < f <= 1 for f in self.data_fractions):
            raise ValueError(f"data_fractions is {self.data_fractions}; expected 0 < fraction <= 1")
        if self.channels < 1:
            raise ValueError(f"channels is {self.channels}; expected at least 1")

    @cached_property
    def _arrays(self) -> Any:
        return load_images(self.dataset, self.data_folder or None)

    @cached_property
    def task(self) -> SmallCNN:
        """The network and its loss."""
        classes = int(max(self._arrays.train_y.max(), self._arrays.test_y.max())) + 1
        return SmallCNN(self.channels, 3, self._arrays.train_x.shape[1:], classes)

    @property
    def space(self) -> WeightSpace:
        """A permutation for each convolution's channels."""
        return self.task.space

    def data(self) -> PyTree:
        """The images, as bytes."""
        return self._arrays

    def draw(self, *, key: PRNGKeyArray) -> Choices:
        """Learning rate, initial scale, dropout, weight decay, and how much data there is."""
        keys = jax.random.split(key, 5)
        fractions = jnp.array(self.data_fractions, jnp.float32)
        return {
            **super().draw(key=keys[0]),
            "initial_scale": log_uniform(self.min_scale, self.max_scale, keys[1]),
            "dropout": self.max_dropout * jax.random.uniform(keys[2], (), jnp.float32),
            "weight_decay": log_uniform(self.min_weight_decay, self.max_weight_decay, keys[3]),
            "data_fraction": jax.random.choice(keys[4], fractions),
        }

    def init(self, choices: Choices, *, key: PRNGKeyArray) -> PyTree:
        """A network's first weights."""
        return self.task.init(choices["initial_scale"], key=key)

    def batch(self, choices: Choices, data: Any, size: int, *, key: PRNGKeyArray) -> Labelled:
        """Images from the part of the training set that this network may see."""
        available = choices["data_fraction"] * len(data.train_y)
        index = jnp.floor(available * jax.random.uniform(key, (size,), jnp.float32)).astype(int)
        return _labelled(data.train_x[index], data.train_y[index])

    def loss(self, params: PyTree, batch: Labelled, choices: Choices, *, key: PRNGKeyArray):
        """Cross entropy, with dropout."""
        return self.task.loss(params, batch, dropout=choices["dropout"], key=key)

    def measure(
        self, params: PyTree, data: Any, *, repeat: int, key: PRNGKeyArray
    ) -> dict[str, Array]:
        """Accuracy and loss; each repeat has a half of the test set."""
        half = len(data.test_y) // 2
        size = half // -(-half // _MEASURED_AT_ONCE)
        chosen = slice(repeat * half, repeat * half + half // size * size)
        x, y = data.test_x[chosen], data.test_y[chosen]
        parts = x.reshape(-1, size, *x.shape[1:]), y.reshape(-1, size)
        measured = jax.lax.map(lambda part: self.task.measure(params, _labelled(*part)), parts)
        return jax.tree.map(jnp.mean, measured)


def _labelled(images: Array, classes: Array) -> Labelled:
    return Labelled(images.astype(jnp.float32) / 255, classes)


RECIPES: dict[str, type[Recipe]] = {kind.name: kind for kind in (TinyRNN, SmallCNNZoo)}
"""Kinds of zoo by name."""


def recipe_of(zoo: Zoo) -> Recipe:
    """The recipe that a zoo was built with."""
    if zoo.kind not in RECIPES:
        raise ZooError(f"{zoo.path}: unknown kind of zoo {zoo.kind!r}")
    return recipe_from_config(zoo.kind, zoo.config, zoo.path)


def recipe_from_config(kind: str, config: Mapping[str, Any], where: object = "config") -> Recipe:
    """A recipe from its stored options.

    Raises:
        ZooError: if an option is unknown or has a value that does not serve.
    """
    try:
        options: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in config.items()
        }
        return RECIPES[kind](**options)
    except (TypeError, ValueError) as error:
        raise ZooError(f"{where}: no {kind} can be made from {dict(config)}: {error}") from error
