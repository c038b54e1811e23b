"""Tasks for networks, and the inner problems whose steps depend on θ."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..graph import infer
from ..optim import Theta, learned_optimizer
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


class Problem(eqx.Module):
    """A process to unroll: a state and a loss at every step, both depending on θ.

    Arrays that it needs must be fields, so that they are arguments of compiled functions.
    """

    @abstractmethod
    def init(self, theta: Any, *, key: PRNGKeyArray) -> PyTree:
        """The initial state."""

    def draw(self, *, key: PRNGKeyArray) -> PyTree:
        """Draw the random inputs of a step, such as a batch; by default its key.

        All steps of a window are drawn together, which is faster than one by one.
        """
        return key

    @abstractmethod
    def step(self, theta: Any, state: PyTree, drawn: PyTree) -> tuple[PyTree, Float[Array, ""]]:
        """The next state, and the loss of the step."""


class InnerTraining(Problem):
    """Train a network on a task with a learned optimizer.

    The loss of a step is the training loss before its update.

    Attributes:
        data: the task's training data.
        task: the task.
    """

    data: PyTree
    task: Task = eqx.field(static=True)

    def init(self, theta: Theta, *, key: PRNGKeyArray) -> PyTree:
        """A new network and the optimizer's state."""
        params = self.task.init(key=key)
        return params, learned_optimizer(theta).init(params)

    def draw(self, *, key: PRNGKeyArray) -> PyTree:
        """A random batch."""
        return self.task.batch(self.data, key=key)

    def step(self, theta: Theta, state: PyTree, drawn: PyTree) -> tuple[PyTree, Float[Array, ""]]:
        """One update on a batch."""
        return training_step(self.task, learned_optimizer(theta), state, drawn)


def training_step(
    task: Task, optimizer: optax.GradientTransformation, state: PyTree, batch: PyTree
) -> tuple[PyTree, Float[Array, ""]]:
    """One update of `(params, optimizer state)` on a batch, and the loss before it."""
    params, memory = state
    loss, gradients = jax.value_and_grad(task.loss)(params, batch)
    updates, memory = optimizer.update(gradients, memory, params)
    return (optax.apply_updates(params, updates), memory), loss
