"""Recipes of zoos: a task, and how the settings of its networks are drawn."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...meta import Task
from ...zoo import Zoo, ZooError
from ..tasks import Addition, ImplicitImage
from ..tasks._classifier import CHOSEN_ACTIVATIONS, Classifier
from ..tasks._images import SmallCNN
from ..tasks._moons import POOL, TwoMoons

Choices = Mapping[str, Array]
"""The settings that were drawn for one network: scalars by name."""


@dataclass(frozen=True)
class Recipe:
    """A task, and how the settings of its networks are drawn.

    Networks are trained with Adam, each at its own learning rate, in chunks that share a batch
    size. A new kind of zoo is a subclass: a frozen dataclass whose fields are its options.
    """

    name: ClassVar[str]
    recorded: ClassVar[tuple[str, ...]] = ()
    """Settings that are stored, but that no network is trained with."""
    unrecorded: ClassVar[tuple[str, ...]] = ()
    """Settings that networks are trained with, but that are not stored."""
    signs: ClassVar[tuple[str, ...]] = ()
    """Permutations whose neurons have odd activations, so that their signs mean nothing."""
    keeps_fixed: ClassVar[bool] = False
    """Whether `unf` tells fixed axes' indices apart; the paper's permutes every axis of RNNs."""

    steps: int = 3000
    """Training steps of each network."""
    batch_sizes: tuple[int, ...] = (64, 128, 256)
    """Batch sizes; each is used equally often."""
    min_learning_rate: float = 1e-4
    """Lower end of the learning rates, which are log-uniform."""
    max_learning_rate: float = 1e-2
    """Upper end of the learning rates."""

    def __post_init__(self):
        if self.steps < 0:
            raise ValueError(f"steps is {self.steps}; expected 0 or more")
        if not self.batch_sizes or min(self.batch_sizes) < 1:
            raise ValueError(f"batch_sizes is {self.batch_sizes}; expected positive numbers")
        self._check_ranges("learning_rate")

    def _check_ranges(self, *names: str) -> None:
        for name in names:
            low, high = getattr(self, f"min_{name}"), getattr(self, f"max_{name}")
            if not 0 < low <= high:
                raise ValueError(
                    f"{name} from {low} to {high}; expected 0 < min_{name} <= max_{name}"
                )

    @cached_property
    def task(self) -> Task:
        """What the networks learn; it needs a field `batch_size` and a method `measure`."""
        raise NotImplementedError(f"{type(self).__name__} has no task")

    def draw(self, *, key: PRNGKeyArray) -> Choices:
        """Draw the settings of one network.

        `learning_rate` and `weight_decay` are the optimizer's, and training stops after `steps`;
        others are fields of the task, which get the drawn values.
        """
        return {"learning_rate": log_uniform(self.min_learning_rate, self.max_learning_rate, key)}

    def assigned(self, row: Int[Array, ""]) -> Choices:
        """The settings that a network has by its number in the zoo, such as an image of its own."""
        return {}

    @property
    def most_models(self) -> int | None:
        """How many different networks there can be; None if there is no limit."""
        return None

    def resolved(self, like: Mapping[str, Any] | None = None) -> "Recipe":
        """The recipe with its automatic options chosen for this machine, or as in a stored zoo."""
        return self


def log_uniform(low: float, high: float, key: PRNGKeyArray) -> Float[Array, ""]:
    """A number whose logarithm is uniform."""
    logs = jnp.log(jnp.array([low, high], jnp.float32))
    return jnp.exp(jax.random.uniform(key, (), jnp.float32, logs[0], logs[1]))


def _draw_length(shortest: int, longest: int, key: PRNGKeyArray) -> Float[Array, ""]:
    """A number of training steps, log-uniform."""
    longest = max(1, longest)
    return jnp.round(log_uniform(float(min(shortest, longest)), float(longest), key))


@dataclass(frozen=True)
class TinyRNN(Recipe):
    """The Tiny RNN Zoo (§4.1): recurrent networks that have learned to add, more or less."""

    name: ClassVar[str] = "tiny-rnn"

    hidden: int = 128
    """Size of the recurrent state."""
    digits: int = 5
    """Operands have 1 to this many digits."""
    problems: int = 10_000
    """Problems in each of the two measurements."""
    dtype: str = "auto"
    """Type of activations; auto is bfloat16 on accelerators, else float32."""

    def __post_init__(self):
        super().__post_init__()
        self.task  # checks the other options  # noqa: B018

    @cached_property
    def task(self) -> Addition:
        """Addition."""
        dtype = "float32" if self.dtype == "auto" else self.dtype
        return Addition(
            digits=self.digits, hidden=self.hidden, num_measured=self.problems, dtype=dtype
        )

    def resolved(self, like: Mapping[str, Any] | None = None) -> "TinyRNN":
        """With the dtype that is fast on this machine, or that a stored zoo has."""
        fast = "float32" if jax.default_backend() == "cpu" else "bfloat16"
        dtype = (like or {}).get("dtype", fast)
        return replace(self, dtype=dtype) if self.dtype == "auto" else self


@dataclass(frozen=True)
class VariedRNN(TinyRNN):
    """A Tiny RNN Zoo where weights matter: several settings that affect success are not stored.

    Only learning rates and batch sizes are. The scale of the initial weights, the number of steps,
    the number of different problems, and whether gradients are clipped also vary. What a predictor
    knows beyond the stored settings, it has read from the weights.
    """

    name: ClassVar[str] = "varied-rnn"
    unrecorded: ClassVar[tuple[str, ...]] = ("initial_scale", "steps", "num_problems", "clip")

    steps: int = 2000
    """Largest number of training steps."""
    digits: int = 3
    """Operands have 1 to this many digits."""
    problems: int = 20_000
    """Problems in each of the two measurements."""
    min_steps: int = 200
    """Smallest number of training steps, which are log-uniform, or `steps` if that is smaller."""
    min_scale: float = 0.3
    """Lower end of the initial scales, which are log-uniform multiples of 1/√fan-in."""
    max_scale: float = 3.0
    """Upper end of the initial scales."""
    min_problems: int = 300
    """Lower end of the numbers of different training problems, which are log-uniform."""
    max_problems: int = 1_000_000
    """Upper end of the numbers of different training problems."""
    max_norm: float = 0.3
    """Half of the networks are trained with gradients clipped to this norm."""

    def __post_init__(self):
        super().__post_init__()
        self._check_ranges("scale", "problems")
        if self.min_steps < 1 or self.max_norm <= 0:
            raise ValueError(
                f"min_steps is {self.min_steps} and max_norm {self.max_norm}; expected at least 1, "
                "and a positive number"
            )

    def draw(self, *, key: PRNGKeyArray) -> Choices:
        """Learning rate, initial scale, length, number of problems, and clipping."""
        keys = jax.random.split(key, 5)
        clipped = jax.random.bernoulli(keys[4])
        return {
            **super().draw(key=keys[0]),
            "initial_scale": log_uniform(self.min_scale, self.max_scale, keys[1]),
            "steps": _draw_length(self.min_steps, self.steps, keys[2]),
            "num_problems": jnp.round(
                log_uniform(float(self.min_problems), float(self.max_problems), keys[3])
            ),
            "clip": jnp.where(clipped, self.max_norm, jnp.inf).astype(jnp.float32),
        }


@dataclass(frozen=True)
class SmallCNNZoo(Recipe):
    """Small image classifiers, after the Small CNN Zoo of Unterthiner et al. (2020)."""

    name: ClassVar[str] = "small-cnn"

    min_learning_rate: float = 5e-4
    """Lower end of the learning rates, which are log-uniform."""
    max_learning_rate: float = 5e-2
    """Upper end of the learning rates."""
    dataset: str = "digits"
    """One of cifar10, fashion-mnist, mnist and digits."""
    data_folder: str = ""
    """Folder of the dataset's files; by default the one that UNF_DATA names."""
    channels: int = 16
    """Channels of each of the three convolutions."""
    gray: bool = False
    """Train on the mean of an image's colors."""
    min_scale: float = 0.1
    """Lower end of the initial scales, which are log-uniform multiples of 1/√fan-in."""
    max_scale: float = 3.0
    """Upper end of the initial scales."""
    max_dropout: float = 0.7
    """Upper end of the dropout rates, which are uniform from 0."""
    min_weight_decay: float = 1e-8
    """Lower end of the weight decays, which are log-uniform."""
    max_weight_decay: float = 1e-2
    """Upper end of the weight decays."""
    data_fractions: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0)
    """Fractions of the data to train on."""

    def __post_init__(self):
        super().__post_init__()
        self._check_ranges("scale", "weight_decay")
        if not 0 <= self.max_dropout < 1:
            raise ValueError(f"max_dropout is {self.max_dropout}; expected 0 <= max_dropout < 1")
        if not self.data_fractions or not all(0 < f <= 1 for f in self.data_fractions):
            raise ValueError(f"data_fractions is {self.data_fractions}; expected 0 < fraction <= 1")
        self.task  # checks the other options  # noqa: B018

    @cached_property
    def task(self) -> SmallCNN:
        """Classifying the dataset's images."""
        return SmallCNN(
            self.dataset, self.data_folder or None, channels=self.channels, gray=self.gray
        )

    def draw(self, *, key: PRNGKeyArray) -> Choices:
        """Learning rate, initial scale, dropout, weight decay, and the fraction of the data."""
        keys = jax.random.split(key, 5)
        fractions = jnp.array(self.data_fractions, jnp.float32)
        return {
            **super().draw(key=keys[0]),
            "initial_scale": log_uniform(self.min_scale, self.max_scale, keys[1]),
            "dropout": self.max_dropout * jax.random.uniform(keys[2], (), jnp.float32),
            "weight_decay": log_uniform(self.min_weight_decay, self.max_weight_decay, keys[3]),
            "data_fraction": jax.random.choice(keys[4], fractions),
        }


@dataclass(frozen=True)
class TwoMoonsZoo(Recipe):
    """Networks of 65 weights on two moons, with few or many examples, some of them mislabeled."""

    name: ClassVar[str] = "two-moons"

    steps: int = 300
    """Training steps of each network."""
    batch_sizes: tuple[int, ...] = (32,)
    """Batch sizes; each is used equally often."""
    min_learning_rate: float = 3e-4
    """Lower end of the learning rates, which are log-uniform."""
    max_learning_rate: float = 5e-2
    """Upper end of the learning rates."""
    width: int = 16
    """Hidden neurons."""
    max_label_noise: float = 0.2
    """Upper end of the fractions of wrong labels, which are uniform from 0."""

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.max_label_noise <= 0.5:
            raise ValueError(f"max_label_noise is {self.max_label_noise}; expected 0 to 0.5")
        self.task  # checks the other options  # noqa: B018

    @cached_property
    def task(self) -> TwoMoons:
        """Telling two moons apart."""
        return TwoMoons(width=self.width)

    def draw(self, *, key: PRNGKeyArray) -> Choices:
        """Learning rate, initial scale, which and how many examples, and how many are wrong."""
        log_ranges = {
            "learning_rate": (self.min_learning_rate, self.max_learning_rate),
            "initial_scale": (0.35, 2.0),
            "num_examples": (16, 256),
        }
        u = jax.random.uniform(key, (5,), jnp.float32)
        drawn = {name: a * (b / a) ** u[i] for i, (name, (a, b)) in enumerate(log_ranges.items())}
        first = jnp.floor(u[3] * POOL)
        return {**drawn, "first_example": first, "label_noise": self.max_label_noise * u[4]}


@dataclass(frozen=True)
class ClassifierZoo(Recipe):
    """Image classifiers of one form, an MLP or a CNN; `MixedRecipe` makes zoos of many forms."""

    name: ClassVar[str] = "classifier"

    steps: int = 400
    """Largest number of training steps."""
    batch_sizes: tuple[int, ...] = (64,)
    """Batch sizes; each is used equally often."""
    min_learning_rate: float = 3e-4
    """Lower end of the learning rates, which are log-uniform."""
    max_learning_rate: float = 3e-2
    """Upper end of the learning rates."""
    dataset: str = "fashion-mnist"
    """One of cifar10, fashion-mnist, mnist and digits."""
    data_folder: str = ""
    """Folder of the dataset's files; by default the one that UNF_DATA names."""
    kind: str = "mlp"
    """What the networks are: mlp or cnn."""
    depth: int = 3
    """Linear maps or convolutions, with the output layer."""
    width: int = 16
    """Neurons or channels of each hidden layer."""
    residual: bool = False
    """Whether there are residual connections, which need a depth of 4."""
    norm: bool = False
    """Whether hidden layers are normalized."""
    min_steps: int = 30
    """Smallest number of training steps, which are log-uniform, or `steps` if that is smaller."""
    min_scale: float = 0.3
    """Lower end of the initial scales, which are log-uniform multiples of 1/√fan-in."""
    max_scale: float = 3.0
    """Upper end of the initial scales."""
    min_weight_decay: float = 1e-4
    """Lower end of the weight decays, which are log-uniform."""
    max_weight_decay: float = 1.0
    """Upper end of the weight decays."""
    min_data_fraction: float = 0.01
    """Lower end of the fractions of the data to train on, which are log-uniform up to 1."""
    max_label_noise: float = 0.5
    """Upper end of the fractions of wrong classes, which are uniform from 0."""

    def __post_init__(self):
        super().__post_init__()
        self._check_ranges("scale", "weight_decay")
        if not 0 < self.min_data_fraction <= 1 or not 0 <= self.max_label_noise <= 1:
            raise ValueError(
                f"min_data_fraction is {self.min_data_fraction} and max_label_noise "
                f"{self.max_label_noise}; expected 0 < min_data_fraction <= 1 and a noise from 0 "
                "to 1"
            )
        if self.min_steps < 1:
            raise ValueError(f"min_steps is {self.min_steps}; expected at least 1")
        self.task  # checks the other options  # noqa: B018

    @cached_property
    def task(self) -> Classifier:
        """Classifying the dataset's images."""
        form = {name: getattr(self, name) for name in FORM}
        return Classifier(folder=self.data_folder or None, **form)

    def draw(self, *, key: PRNGKeyArray) -> Choices:
        """Optimizer, length, activation, initial scale, and how much data with which noise."""
        keys = jax.random.split(key, 7)
        kinds = len(CHOSEN_ACTIVATIONS)
        return {
            **super().draw(key=keys[0]),
            "weight_decay": log_uniform(self.min_weight_decay, self.max_weight_decay, keys[1]),
            "steps": _draw_length(self.min_steps, self.steps, keys[2]),
            "activation": jax.random.randint(keys[3], (), 0, kinds).astype(jnp.float32),
            "initial_scale": log_uniform(self.min_scale, self.max_scale, keys[4]),
            "data_fraction": log_uniform(self.min_data_fraction, 1.0, keys[5]),
            "label_noise": self.max_label_noise * jax.random.uniform(keys[6], (), jnp.float32),
        }


@dataclass(frozen=True)
class ImplicitZoo(Recipe):
    """A network for each image of a dataset, which maps coordinates to values (a SIREN).

    `label` is the class of its image, which is to be predicted from the weights.
    """

    name: ClassVar[str] = "inr"
    recorded: ClassVar[tuple[str, ...]] = ("label", "heldout")
    signs: ClassVar[tuple[str, ...]] = ("h0", "h1")
    keeps_fixed: ClassVar[bool] = True

    steps: int = 1000
    """Training steps of each network."""
    batch_sizes: tuple[int, ...] = (1,)
    """Images of a network."""
    min_learning_rate: float = 5e-4
    """Lower end of the learning rates, which are log-uniform."""
    max_learning_rate: float = 5e-4
    """Upper end of the learning rates."""
    dataset: str = "mnist"
    """One of mnist, fashion-mnist, cifar10 and digits."""
    data_folder: str = ""
    """Folder of the dataset's files; by default the one that UNF_DATA names."""
    copies: int = 1
    """Networks for each training image, from different initial weights; test images have one."""
    hidden: int = 32
    """Neurons of each of the two hidden layers."""
    frequency: float = 0.0
    """Hidden layers are sin(ω(Wx + b)) with this ω. If it is 0, it is 30, or 8 for digits, whose
    images have few pixels: higher frequencies put noise between them."""
    initial_bias: float = 0.0
    """Biases start between −1 and 1 times this over √fan-in; 1 is PyTorch's default."""

    def __post_init__(self):
        super().__post_init__()
        if self.copies < 1 or self.batch_sizes != (1,):
            raise ValueError(
                f"copies is {self.copies} and batch_sizes {self.batch_sizes}; expected at least "
                "1, and (1,)"
            )
        if self.frequency < 0:
            raise ValueError(f"frequency is {self.frequency}; expected a positive number, or 0")
        self.task  # checks the other options  # noqa: B018

    @cached_property
    def task(self) -> ImplicitImage:
        """Learning an image."""
        return ImplicitImage(
            self.dataset, self.data_folder or None, hidden=self.hidden,
            frequency=self.resolved().frequency, initial_bias=self.initial_bias,
        )  # fmt: skip

    def resolved(self, like: Mapping[str, Any] | None = None) -> "ImplicitZoo":
        """With the frequency that fits the dataset, or that a stored zoo has."""
        fitting = 8.0 if self.dataset == "digits" else 30.0
        frequency = (like or {}).get("frequency", fitting)
        return self if self.frequency else replace(self, frequency=frequency)

    @cached_property
    def _order(self) -> Int[np.ndarray, " models"]:
        """The image of each network, in an order in which a part of the zoo has images of all."""
        train, images = self.task.num_train, len(self.task.labels)
        each = [np.repeat(np.arange(train), self.copies), np.arange(train, images)]
        return np.random.default_rng(0).permutation(np.concatenate(each))

    @property
    def most_models(self) -> int:
        """One for each copy of a training image and for each test image."""
        return len(self._order)

    def assigned(self, row: Int[Array, ""]) -> Choices:
        """The image, its class, and whether it is for testing."""
        image = jnp.asarray(self._order)[row]
        found = {
            "image": image,
            "label": jnp.asarray(self.task.labels)[image],
            "heldout": image >= self.task.num_train,
        }
        return {name: value.astype(jnp.float32) for name, value in found.items()}


FORM = ("dataset", "kind", "depth", "width", "residual", "norm")
"""What tells the architectures of a mixed zoo apart."""

RECIPES: dict[str, type[Recipe]] = {
    recipe.name: recipe
    for recipe in (TinyRNN, VariedRNN, SmallCNNZoo, TwoMoonsZoo, ClassifierZoo, ImplicitZoo)
}
"""Kinds of zoos by name."""


def recipe_of(zoo: Zoo) -> Recipe:
    """The recipe that a zoo was built with.

    Raises:
        ZooError: if the kind of zoo or one of its options is unknown or invalid.
    """
    if zoo.kind not in RECIPES:
        raise ZooError(f"{zoo.path}: unknown kind of zoo {zoo.kind!r}; expected {list(RECIPES)}")
    try:
        options: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in zoo.config.items()
        }
        return RECIPES[zoo.kind](**options)
    except (TypeError, ValueError) as error:
        raise ZooError(f"{zoo.path}: invalid options of a {zoo.kind} zoo: {error}") from error
