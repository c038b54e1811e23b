"""A task for an optimizer: first weights, a loss, data, a weight space."""

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
    """What to train on, and what to test on: arrays that stay on the device."""

    train: PyTree
    heldout: PyTree


@dataclass(frozen=True)
class Task(ABC):
    """Something for an optimizer to train. A new one is a subclass with these methods.

    Only `init`, `data`, `batch` and `loss` are needed; the weight space is read off the loss.
    """

    name: ClassVar[str]
    horizon: ClassVar[int] = 2000
    """Training steps in the paper."""
    spatial: ClassVar[tuple[str, ...]] = ()
    """Names of fixed axes that are windows of filters."""

    @abstractmethod
    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """First weights."""

    @abstractmethod
    def data(self) -> Data:
        """Arrays to draw batches from."""

    @abstractmethod
    def batch(self, examples: PyTree, *, key: PRNGKeyArray) -> PyTree:
        """A random batch of the training or of the held-out data."""

    @abstractmethod
    def loss(self, params: PyTree, batch: PyTree) -> Float[Array, ""]:
        """The mean negative log-likelihood of a batch."""

    @cached_property
    def space(self) -> WeightSpace:
        """The weight space, by default read off the loss's computation graph."""
        key = jax.random.key(0)
        batch = eqx.filter_eval_shape(lambda: self.batch(self.data().train, key=key))
        return infer(self.loss, jax.eval_shape(lambda: self.init(key=key)), batch)
