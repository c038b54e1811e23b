"""Tasks for networks, and the inner problems whose steps depend on θ."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..graph import infer
from ..optim import Theta, learned_optimizer
from ..spec import WeightSpace

_LEAST_RELATIVE = 0.01


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

    @property
    def spatial(self) -> tuple[str, ...]:
        """The names of fixed axes that are filter windows, for an NFN."""
        return ()

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

    def prepare(self, theta: Any) -> Any:
        """What `init` and `step` read of θ, computed once per window; by default θ itself."""
        return theta

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

    With `reparametrize` = τ > 0, every run draws a factor sᵢ = exp(τ zᵢ), zᵢ ~ N(0, 1), for each
    tensor Wᵢ of the network. The optimizer trains Vᵢ = Wᵢ/sᵢ, and the network is evaluated at
    sᵢ Vᵢ: it starts as the same function, but the optimizer meets other scales of weights and
    gradients.

    Attributes:
        data: the task's training data.
        task: the task.
        reparametrize: τ, the standard deviation of the logarithms of the factors.
    """

    data: PyTree
    task: Task = eqx.field(static=True)
    reparametrize: float = eqx.field(static=True, default=0.0)

    def prepare(self, theta: Theta) -> Theta:
        """θ on the task's weight space, with coefficients gathered from tables if they are tied."""
        return theta.on(self.task.space)

    def init(self, theta: Theta, *, key: PRNGKeyArray) -> PyTree:
        """A new network, the optimizer's state, and the factors if there are any."""
        if not self.reparametrize:
            params = self.task.init(key=key)
            return params, _optimizer(theta).init(params)
        params_key, factors_key = jax.random.split(key)
        params = self.task.init(key=params_key)
        leaves, treedef = jax.tree.flatten(params)
        logs = self.reparametrize * jax.random.normal(factors_key, (len(leaves),), jnp.float32)
        pairs = zip(jnp.exp(logs), leaves, strict=True)
        factors = treedef.unflatten([s.astype(leaf.dtype) for s, leaf in pairs])
        params = jax.tree.map(jnp.divide, params, factors)
        return params, _optimizer(theta).init(params), factors

    def draw(self, *, key: PRNGKeyArray) -> PyTree:
        """A random batch."""
        return self.task.batch(self.data, key=key)

    def step(self, theta: Theta, state: PyTree, drawn: PyTree) -> tuple[PyTree, Float[Array, ""]]:
        """One update on a batch."""
        optimizer = _optimizer(theta)
        if not self.reparametrize:
            return training_step(self.task.loss, optimizer, state, drawn)
        *training, factors = state

        def loss(params: PyTree, batch: PyTree) -> Float[Array, ""]:
            return self.task.loss(jax.tree.map(jnp.multiply, factors, params), batch)

        (params, memory), found = training_step(loss, optimizer, tuple(training), drawn)
        return (params, memory, factors), found


def _optimizer(theta: Theta) -> optax.GradientTransformationExtraArgs:
    """An optimizer without kernels if runs are sharded across devices, which XLA cannot do then."""
    return learned_optimizer(theta, kernels=jax.device_count() == 1)


class RelativeLoss(Problem):
    """A problem with the losses log(ε + (1 − ε) loss/reference), which compare across problems.

    With ε = 0.01, losses far below a hundredth of the reference, as of a network that has learned
    its examples by heart, are all as good.

    Attributes:
        problem: the problem to unroll, with losses of 0 or more.
        reference: the loss that becomes 0, such as that of an untrained network.
    """

    problem: Problem
    reference: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def prepare(self, theta: Any) -> Any:
        """As the problem does."""
        return self.problem.prepare(theta)

    def init(self, theta: Any, *, key: PRNGKeyArray) -> PyTree:
        """The problem's initial state."""
        return self.problem.init(theta, key=key)

    def draw(self, *, key: PRNGKeyArray) -> PyTree:
        """What the problem draws."""
        return self.problem.draw(key=key)

    def step(self, theta: Any, state: PyTree, drawn: PyTree) -> tuple[PyTree, Float[Array, ""]]:
        """The problem's next state, and the logarithm of its relative loss."""
        state, loss = self.problem.step(theta, state, drawn)
        relative = loss / self.reference.astype(loss.dtype)
        return state, jnp.log(_LEAST_RELATIVE + (1 - _LEAST_RELATIVE) * relative)


def training_step(
    loss: Callable[[PyTree, PyTree], Float[Array, ""]],
    optimizer: optax.GradientTransformation,
    state: PyTree,
    batch: PyTree,
) -> tuple[PyTree, Float[Array, ""]]:
    """One update of `(params, optimizer state)` on a batch, and the loss before it."""
    params, memory = state
    found, gradients = jax.value_and_grad(loss)(params, batch)
    updates, memory = optimizer.update(gradients, memory, params)
    return (optax.apply_updates(params, updates), memory), found
