"""Inner problems, whose steps depend on θ."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..optim import Theta, learned_optimizer
from ._task import Task


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
