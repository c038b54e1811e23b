"""What is unrolled: an inner problem whose steps depend on θ."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..optim import Theta, learned_optimizer
from ._task import Task


class Problem(eqx.Module):
    """A process with a state and a loss at every step, both depending on θ.

    Arrays it needs are its fields, so that they are passed to compiled functions.
    """

    @abstractmethod
    def init(self, theta: Any, *, key: PRNGKeyArray) -> PyTree:
        """A first state."""

    def draw(self, *, key: PRNGKeyArray) -> PyTree:
        """What a step is given by chance: by default its key.

        The steps of a window are drawn at once, which is faster than one by one.
        """
        return key

    @abstractmethod
    def step(self, theta: Any, state: PyTree, drawn: PyTree) -> tuple[PyTree, Float[Array, ""]]:
        """The next state, and the loss on the way there."""


class InnerTraining(Problem):
    """Training a network of a task with a learned optimizer.

    The loss of a step is the training loss before its update.
    """

    data: PyTree
    task: Task = eqx.field(static=True)

    def init(self, theta: Theta, *, key: PRNGKeyArray) -> PyTree:
        """A fresh network."""
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
