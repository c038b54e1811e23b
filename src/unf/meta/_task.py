"""A task: something that networks are trained to do."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..graph import infer
from ..spec import WeightSpace


class Data(NamedTuple):
    """Arrays to train and to test on, with examples along their first axis."""

    train: PyTree
    heldout: PyTree


@dataclass(frozen=True)
class Task(ABC):
    """Something to train networks on: a frozen dataclass whose fields are its settings.

    A new task is a subclass with `init`, `data`, `batch` and `loss`. Its weight space is read off
    the loss. Learned optimizers are meta-trained on tasks, and a zoo is a task whose networks are
    trained with different settings; for a zoo, also write `measure`.
    """

    name: ClassVar[str]
    horizon: ClassVar[int] = 2000
    """The number of training steps in the paper."""
    spatial: ClassVar[tuple[str, ...]] = ()
    """The names of fixed axes that are filter windows."""

    @abstractmethod
    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """The weights of a fresh network."""

    @abstractmethod
    def data(self) -> Data:
        """The data to draw batches from."""

    @abstractmethod
    def batch(self, examples: PyTree, *, key: PRNGKeyArray) -> PyTree:
        """A random batch of the training or of the held-out data, with all that is random in it."""

    @abstractmethod
    def loss(self, params: PyTree, batch: PyTree) -> Float[Array, ""]:
        """The mean loss on a batch, which training lowers."""

    def measure(
        self, params: PyTree, examples: PyTree, *, key: PRNGKeyArray
    ) -> dict[str, Float[Array, ""]]:
        """How good a network is on examples: `success`, between 0 and 1, and `loss`."""
        raise NotImplementedError(
            f"{type(self).__name__} has no method `measure`, which zoos need to score networks"
        )

    @cached_property
    def space(self) -> WeightSpace:
        """The weight space, by default read off the computation graph of the loss."""
        key = jax.random.key(0)
        batch = eqx.filter_eval_shape(lambda: self.batch(self.data().train, key=key))
        return infer(self.loss, jax.eval_shape(lambda: self.init(key=key)), batch)
