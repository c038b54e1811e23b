"""The paper's first task: an MLP on small images of clothes (appendix B)."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ...spec import WeightSpace
from ._task import ImageTask, Labelled, add, cross_entropy, truncated_normal


@dataclass(frozen=True)
class MLPTask(ImageTask):
    """64→32→10 with ReLU on 8×8 Fashion-MNIST."""

    hidden: tuple[int, ...] = (32,)

    name: ClassVar[str] = "mlp"

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Neurons of each layer."""
        return (prod(self.shape), *self.hidden, self.num_classes)

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """Truncated normal weights, zero biases."""
        params = {}
        for i, (m, n) in enumerate(pairwise(self.widths)):
            params[f"w{i}"] = truncated_normal((m, n), m, key=jax.random.fold_in(key, i))
            params[f"b{i}"] = jnp.zeros(n, jnp.float32)
        return params

    def loss(self, params: PyTree, batch: Labelled) -> Float[Array, ""]:
        """Cross entropy."""
        x: Array = batch.images.reshape(len(batch.images), -1)
        for i in range(len(self.widths) - 1):
            x = add((jax.nn.relu(x) if i else x) @ params[f"w{i}"], params[f"b{i}"])
        return cross_entropy(x, batch.classes)

    @cached_property
    def space(self) -> WeightSpace:
        """Inputs and outputs fixed."""
        names = ["[in]", *(f"h{i}" for i in range(len(self.hidden))), "[out]"]
        spec = {}
        for i, (a, b) in enumerate(pairwise(names)):
            spec |= {f"w{i}": f"{a} {b}", f"b{i}": b}
        return WeightSpace.from_spec(spec, jax.eval_shape(lambda: self.init(key=jax.random.key(0))))
