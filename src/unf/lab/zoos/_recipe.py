"""What a zoo is made of: a task, and how its networks differ."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ...spec import WeightSpace

Choices = Mapping[str, Array]
"""What was drawn for one network: scalars, `learning_rate` among them."""


@dataclass(frozen=True)
class Recipe:
    """How the networks of a zoo are drawn, trained and measured.

    Networks are trained with Adam, each at its own learning rate, in chunks that share a batch
    size. A new kind of zoo is a subclass: a frozen dataclass whose fields are its options.
    """

    name: ClassVar[str]

    steps: int = 3000
    """Training steps of each network."""
    batch_sizes: tuple[int, ...] = (64, 128, 256)
    """Batch sizes; each is used equally often."""
    min_learning_rate: float = 1e-4
    """The smallest learning rate; it is drawn log-uniformly."""
    max_learning_rate: float = 1e-2
    """The largest learning rate."""

    def __post_init__(self):
        if self.steps < 0:
            raise ValueError(f"steps is {self.steps}; expected 0 or more")
        if not self.batch_sizes or min(self.batch_sizes) < 1:
            raise ValueError(f"batch_sizes is {self.batch_sizes}; expected positive numbers")
        if not 0 < self.min_learning_rate <= self.max_learning_rate:
            raise ValueError(
                f"learning rates from {self.min_learning_rate} to {self.max_learning_rate}; "
                "expected 0 < min_learning_rate <= max_learning_rate"
            )

    def resolved(self, like: Mapping[str, Any] | None = None) -> "Recipe":
        """The recipe with what depends on the machine settled, or as in another's options."""
        return self

    @property
    @abstractmethod
    def space(self) -> WeightSpace:
        """The weight space of the networks."""

    def data(self) -> PyTree:
        """Arrays that training and measuring need, put on the device once; none by default."""
        return ()

    def draw(self, *, key: PRNGKeyArray) -> Choices:
        """Draw how one network is trained."""
        return {"learning_rate": log_uniform(self.min_learning_rate, self.max_learning_rate, key)}

    @abstractmethod
    def init(self, choices: Choices, *, key: PRNGKeyArray) -> PyTree:
        """A network's first weights."""

    @abstractmethod
    def batch(self, choices: Choices, data: PyTree, size: int, *, key: PRNGKeyArray) -> PyTree:
        """A batch to train on."""

    @abstractmethod
    def loss(
        self, params: PyTree, batch: PyTree, choices: Choices, *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """What training lowers."""

    @abstractmethod
    def measure(
        self, params: PyTree, data: PyTree, *, repeat: int, key: PRNGKeyArray
    ) -> dict[str, Float[Array, ""]]:
        """`success`, between 0 and 1, and `loss`, on fresh data; repeats are independent."""


def log_uniform(low: float, high: float, key: PRNGKeyArray) -> Float[Array, ""]:
    """A number whose logarithm is uniform."""
    logs = jnp.log(jnp.array([low, high], jnp.float32))
    return jnp.exp(jax.random.uniform(key, (), jnp.float32, logs[0], logs[1]))
