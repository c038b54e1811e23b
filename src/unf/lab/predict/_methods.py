"""The predictors, and how they are trained."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import numpy as np
import optax
from jaxtyping import PRNGKeyArray, PyTree

from ...models import Fitted, Invariant, InvariantDeepSet, InvariantUNF, StatNN
from ...models._fit import default_optimizer
from ...spec import WeightSpace


class PredictError(ValueError):
    """A predictor cannot be trained or used: what is wrong, where, and the remedy."""


@dataclass(frozen=True)
class Training:
    """How a predictor is trained; the defaults are the paper's (§4.1)."""

    epochs: int = 10
    """Passes over the training networks."""
    batch_size: int = 10
    """Networks in a batch."""
    learning_rate: float = 1e-3
    """Learning rate of Adam."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Keep the learning rate constant, or let it decay as a cosine after one epoch of warm-up."""
    weight_decay: float = 0.0
    """Decoupled weight decay."""
    clip: float = 0.0
    """Largest allowed norm of a gradient; 0 turns clipping off."""

    def __post_init__(self):
        if self.epochs < 1 or self.batch_size < 1:
            raise ValueError(
                f"epochs is {self.epochs} and batch_size {self.batch_size}; expected at least 1"
            )
        if self.schedule not in ("constant", "cosine"):
            raise ValueError(f"schedule is {self.schedule!r}; expected 'constant' or 'cosine'")
        if not self.learning_rate > 0 or min(self.weight_decay, self.clip) < 0:
            raise ValueError(
                f"learning_rate is {self.learning_rate}, weight_decay {self.weight_decay} and clip "
                f"{self.clip}; expected a positive learning rate and no negative numbers"
            )


@dataclass(frozen=True)
class Method:
    """A kind of predictor.

    Attributes:
        title: its name in tables.
        make: makes one from a weight space and a key.
        defaults: where its training differs from the paper's.
    """

    title: str
    make: Callable[[WeightSpace, PRNGKeyArray], Invariant]
    defaults: Mapping[str, Any] = field(default_factory=dict)


def _unf_plus(space: WeightSpace, key: PRNGKeyArray) -> Invariant:
    more: dict[str, Any] = {"statistics": ("mean", "std"), "raw_statistics": True}
    return InvariantUNF(space.relax(), 1, 1, key=key, products=16, **more)


METHODS: dict[str, Method] = {
    "deepset": Method("Deep Set", lambda space, key: InvariantDeepSet(space, 1, 1, key=key)),
    "statnn": Method("StatNN", lambda space, key: StatNN(space, 1, 1, key=key)),
    "unf": Method(
        "UNF, as in the paper", lambda space, key: InvariantUNF(space.relax(), 1, 1, key=key)
    ),
    "unf-plus": Method(
        "UNF, beyond the paper",
        _unf_plus,
        {"epochs": 12, "learning_rate": 3e-3, "schedule": "cosine", "clip": 1.0},
    ),
}
"""Predictors by name. Like the paper, `unf` permutes every axis. So does `unf-plus`, which also
multiplies weight matrices, pools more than means, reads the statistics of the weights themselves,
and trains a little longer with a learning-rate schedule."""


def make_optimizer(training: Training, steps: int) -> optax.GradientTransformation:
    """The optimizer for a training with that many steps in an epoch."""
    return default_optimizer(
        training.learning_rate,
        training.epochs * steps,
        warmup=steps if training.schedule == "cosine" else 0,
        clip=training.clip,
        weight_decay=training.weight_decay,
    )


def invariance_gap(model: Fitted, space: WeightSpace, weights: PyTree, *, seed: int) -> float:
    """The largest change of a prediction when each network's hidden neurons are reordered."""
    keys = jax.random.split(jax.random.key(seed), len(jax.tree.leaves(weights)[0]))
    moved = jax.vmap(lambda x, key: space.permute(x, space.sample_permutation(key)))(weights, keys)
    return float(np.max(np.abs(model.predict(weights) - model.predict(moved))))
