"""Telling two moons apart, which small networks learn in a second."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from ...meta import Data, Task
from ._task import add, check_positive, mean_of_parts, zeros

POOL = 4096
"""Points for training, of which each network sees some, and for each half of the test."""


class Points(NamedTuple):
    """Points in the plane, which moon each belongs to, and which are mislabeled first."""

    x: Float[Array, "points 2"]
    labels: Bool[Array, " points"]
    rank: Float[Array, " points"]


@dataclass(frozen=True)
class TwoMoons(Task):
    """A network with one hidden layer that learns which of two moons a point belongs to.

    The last four fields vary in a zoo: initial weights are multiplied by `initial_scale`, and
    training sees `num_examples` points from `first_example` on, of which about the fraction
    `label_noise` has the wrong label.
    """

    width: int = 16
    batch_size: int = 32
    initial_scale: float = 1.0
    first_example: float = 0.0
    num_examples: float = 256.0
    label_noise: float = 0.0

    name: ClassVar[str] = "two-moons"
    horizon: ClassVar[int] = 300

    def __post_init__(self):
        check_positive(self, "width", "batch_size")

    def data(self) -> Data:
        """Points to choose from, and twice as many to test on."""
        train, test = jax.random.split(jax.random.key(0))
        return Data(two_moons(POOL, key=train), two_moons(2 * POOL, key=test))

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Normal weights, zero biases."""
        normal = self.initial_scale * jax.random.normal(key, (3, self.width), jnp.float32)
        return {
            "w0": normal[:2],
            "b0": zeros(self.width),
            "w1": normal[2:].T * (2 / self.width) ** 0.5,
            "b1": zeros(1),
        }

    def batch(self, examples: Points, *, key: PRNGKeyArray) -> Points:
        """Random points among those that training sees, with their labels, right or wrong."""
        chosen = jnp.floor(self.num_examples * jax.random.uniform(key, (self.batch_size,)))
        index = (self.first_example + chosen).astype(int) % len(examples.labels)
        batch: Points = jax.tree.map(lambda x: x[index], examples)
        return batch._replace(labels=batch.labels ^ (batch.rank < self.label_noise))

    def logits(self, params: PyTree, x: Float[Array, "batch 2"]) -> Float[Array, " batch"]:
        """How much each point looks like one of the second moon."""
        hidden = jax.nn.relu(add(x @ params["w0"], params["b0"]))
        return add(hidden @ params["w1"], params["b1"])[:, 0]

    def loss(self, params: PyTree, batch: Points) -> Float[Array, ""]:
        """Mean cross entropy."""
        logits = self.logits(params, batch.x)
        return jnp.mean(jnp.logaddexp(0, logits) - batch.labels * logits)

    def measure(
        self, params: PyTree, examples: Points, *, key: PRNGKeyArray
    ) -> dict[str, Float[Array, ""]]:
        """Accuracy and loss, with the right labels."""

        def score(part: Points) -> dict[str, Array]:
            right = (self.logits(params, part.x) > 0) == part.labels
            return {"success": jnp.mean(right), "loss": self.loss(params, part)}

        return mean_of_parts(score, examples)


@partial(jax.jit, static_argnums=0)
def two_moons(size: int, *, key: PRNGKeyArray) -> Points:
    """Points of two interleaved half circles with noise, centered."""
    angle_key, label_key, noise_key, rank_key = jax.random.split(key, 4)
    angles = jnp.pi * jax.random.uniform(angle_key, (size,), jnp.float32)
    labels = jax.random.bernoulli(label_key, 0.5, (size,))
    sign = jnp.where(labels, -1.0, 1.0)
    x = jnp.stack([sign * (jnp.cos(angles) - 0.5), sign * (jnp.sin(angles) - 0.25)], axis=-1)
    noise = 0.15 * jax.random.normal(noise_key, (size, 2), jnp.float32)
    return Points(x + noise, labels, jax.random.uniform(rank_key, (size,), jnp.float32))
