"""How an optimizer is meta-trained, as options."""

import dataclasses
from math import inf
from typing import Any

import optax

from ...meta._estimators import OBJECTIVES, Estimator, EvolutionStrategies, FullUnroll
from ...optim import FORMS
from ..tasks import Task

ESTIMATORS = ("pes", "es", "unroll")
SCHEDULES = ("constant", "cosine")


class MetaError(ValueError):
    """A meta-training that cannot begin or go on: what is wrong, where, and the remedy."""


@dataclasses.dataclass(frozen=True)
class MetaTraining:
    """How an optimizer is meta-trained; the defaults are the paper's where it says them."""

    steps: int = 50_000
    """Meta-steps."""
    learning_rate: float = 3e-3
    """Learning rate of Adam on θ (the paper gives none)."""
    schedule: str = "cosine"
    """Schedule of the learning rate: constant, or cosine to a tenth after a warm-up."""
    clip: float = 1.0
    """The largest norm of a meta-gradient."""
    estimator: str = "pes"
    """Estimator of meta-gradients: pes, es (truncated) or unroll (exact)."""
    pairs: int = 16
    """Antithetic pairs of runs; for unroll, the number of unrolls."""
    sigma: float = 0.01
    """Standard deviation of the perturbations of θ (not for unroll)."""
    window: int = 50
    """Inner steps between meta-steps (not for unroll)."""
    horizon: int = 0
    """Inner steps of an unroll; 0: the paper's for the task."""
    objective: str = "mean"
    """What is minimized: the mean loss of the unroll, or its final loss."""
    form: str = "normalized"
    """Form of the optimizer, one of `unf.optim.FORMS`; see `unf.optim.Form`."""
    head_start: str = "random"
    """Initial head of an equivariant optimizer: random, or pointwise."""
    cut: float = 2.0
    """Losses are cut off at this multiple of an untrained network's; 0: never (not for unroll)."""

    def __post_init__(self):
        choices = {
            "schedule": SCHEDULES,
            "estimator": ESTIMATORS,
            "objective": OBJECTIVES,
            "form": tuple(FORMS),
            "head_start": ("random", "pointwise"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected one of {allowed}")
        for name in ("steps", "learning_rate", "clip", "pairs", "sigma", "window"):
            if not 0 < getattr(self, name) < inf:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a positive number")
        if self.horizon < 0 or not (self.cut == 0 or 1 < self.cut < inf):
            raise ValueError(
                f"horizon is {self.horizon} and cut {self.cut}; expected 0 or more, and 0 or a "
                "number above 1"
            )

    def make_estimator(self, task: Task, max_loss: float) -> Estimator:
        """The estimator for a task."""
        horizon = self.horizon or task.horizon
        if self.estimator == "unroll":
            return FullUnroll(horizon, runs=self.pairs, objective=self.objective)
        return EvolutionStrategies(
            horizon,
            window=self.window,
            pairs=self.pairs,
            sigma=self.sigma,
            persistent=self.estimator == "pes",
            objective=self.objective,
            max_loss=max_loss,
        )

    def make_optimizer(self) -> optax.GradientTransformation:
        """The meta-optimizer."""
        rate: Any = self.learning_rate
        if self.schedule == "cosine":
            warm_up = min(100, self.steps // 10)
            rate = optax.warmup_cosine_decay_schedule(
                0.1 * rate, rate, warm_up, max(self.steps, warm_up + 1), 0.1 * rate
            )
        return optax.chain(optax.clip_by_global_norm(self.clip), optax.adam(rate))
