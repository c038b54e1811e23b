"""Tasks for optimizers: initial weights, a loss, data, a weight space."""

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
    """Arrays to train on, and held-out arrays to test on; they stay on the device."""

    train: PyTree
    heldout: PyTree


@dataclass(frozen=True)
class Task(ABC):
    """A network to train, with its data and its loss. Subclass it to add a task.

    A subclass defines `init`, `data`, `batch` and `loss`; the weight space is inferred from the
    loss.
    """

    name: ClassVar[str]
    horizon: ClassVar[int] = 2000
    """The number of training steps in the paper."""
    spatial: ClassVar[tuple[str, ...]] = ()
    """The names of fixed axes that are filter windows."""

    @abstractmethod
    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Draw initial weights."""

    @abstractmethod
    def data(self) -> Data:
        """Load the arrays to draw batches from."""

    @abstractmethod
    def batch(self, examples: PyTree, *, key: PRNGKeyArray) -> PyTree:
        """Draw a random batch from the training or the held-out data."""

    @abstractmethod
    def loss(self, params: PyTree, batch: PyTree) -> Float[Array, ""]:
        """The mean negative log-likelihood of a batch."""

    @cached_property
    def space(self) -> WeightSpace:
        """The weight space, by default inferred from the computation graph of the loss."""
        key = jax.random.key(0)
        batch = eqx.filter_eval_shape(lambda: self.batch(self.data().train, key=key))
        return infer(self.loss, jax.eval_shape(lambda: self.init(key=key)), batch)
