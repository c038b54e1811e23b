"""The predictors: what reads the weights, and how it is trained."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import PRNGKeyArray

from ...models import Invariant, InvariantDeepSet, InvariantUNF, StatNN
from ...spec import WeightSpace
from .._option import option

Predictor = Invariant


class PredictError(ValueError):
    """A predictor that cannot be trained or used: what is wrong, where, and the remedy."""


@dataclass(frozen=True)
class Training:
    """How a predictor is trained; the defaults are the paper's (§4.1)."""

    epochs: int = option(10, "passes over the training models")
    batch_size: int = option(10, "models in a batch")
    learning_rate: float = option(1e-3, "of Adam")
    schedule: str = option("constant", "of the learning rate: constant, or cosine with warm-up")
    weight_decay: float = option(0.0, "decoupled weight decay")
    clip: float = option(0.0, "largest norm of a gradient; 0: any")

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
                f"{self.clip}; expected the first to be positive, the others not negative"
            )


@dataclass(frozen=True)
class Method:
    """A kind of predictor."""

    title: str
    make: Callable[[WeightSpace, PRNGKeyArray], Predictor]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Where its training differs from the paper's."""


def _unf(space: WeightSpace, key: PRNGKeyArray) -> Invariant:
    return InvariantUNF(space.relax(), 1, 1, key=key)


def _unf_plus(space: WeightSpace, key: PRNGKeyArray) -> Invariant:
    return InvariantUNF(
        space.relax(),
        1,
        1,
        key=key,
        products=16,
        statistics=("mean", "std"),
        raw_statistics=True,
    )


METHODS: dict[str, Method] = {
    "deepset": Method("Deep Set", lambda space, key: InvariantDeepSet(space, 1, 1, key=key)),
    "statnn": Method("StatNN", lambda space, key: StatNN(space, 1, 1, key=key)),
    "unf": Method("UNF, as in the paper", _unf),
    "unf-plus": Method(
        "UNF, beyond the paper",
        _unf_plus,
        {"epochs": 12, "learning_rate": 3e-3, "schedule": "cosine", "clip": 1.0},
    ),
}
"""Predictors by name. `unf` permutes every axis, as the paper does; so does `unf-plus`, which also
multiplies weight matrices, pools more than means, sees the weights' own statistics too, and is
trained with a schedule and for a little longer."""
