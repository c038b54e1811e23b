"""What is meta-trained, on which task and data, and how."""

import dataclasses
import os
from functools import lru_cache
from math import inf
from typing import Any, Literal, get_args, get_type_hints

import jax
import optax

from ...meta import Estimator, EvolutionStrategies, FullUnroll, Task
from ..data import MissingDataError
from ..tasks import (
    AutoencoderTask,
    CNNTask,
    DeepMLPTask,
    GPTTask,
    GRUTask,
    ImageTask,
    LSTMTask,
    MLPTask,
    ResNetTask,
    RNNTask,
    TransformerTask,
    ViTTask,
)

TASKS: dict[str, type[Task]] = {
    task.name: task for task in (MLPTask, CNNTask, RNNTask, TransformerTask)
}
"""The paper's tasks for learned optimizers (§4.2), by name."""
UNSEEN: dict[str, type[Task]] = {
    task.name: task
    for task in (DeepMLPTask, ResNetTask, LSTMTask, GRUTask, ViTTask, GPTTask, AutoencoderTask)
}
"""Tasks to evaluate on, which no learned optimizer is meta-trained on, by name."""


class MetaError(ValueError):
    """A meta-training cannot begin or continue: what is wrong, where, and the remedy."""


@dataclasses.dataclass(frozen=True)
class MetaTraining:
    """How an optimizer is meta-trained; the defaults are the paper's where it gives them."""

    steps: int = 50_000
    """Meta-steps."""
    learning_rate: float = 3e-3
    """Learning rate of Adam on θ (not given in the paper)."""
    schedule: Literal["constant", "cosine"] = "cosine"
    """Keep it constant, or let it decay as a cosine to a tenth after a warm-up."""
    clip: float = 1.0
    """Largest allowed norm of a meta-gradient."""
    estimator: Literal["pes", "es", "unroll"] = "pes"
    """Persistent or truncated evolution strategies, or the exact gradient of whole unrolls."""
    pairs: int = 16
    """Antithetic pairs of runs; for unroll, the number of unrolls."""
    sigma: float = 0.01
    """Standard deviation of the perturbations of θ (not for unroll)."""
    window: int = 50
    """Inner steps between meta-steps (not for unroll)."""
    horizon: int = 0
    """Inner steps of an unroll; 0 stands for the paper's number for the task."""
    objective: Literal["mean", "final"] = "mean"
    """Minimize the mean loss of an unroll, or its final loss."""
    form: Literal["paper", "code", "normalized"] = "normalized"
    """What the optimizer reads and accumulates; see unf.optim.Form."""
    head_start: Literal["random", "pointwise"] = "random"
    """Initial coefficients of an equivariant head."""
    cut: float = 2.0
    """Cut losses off at this multiple of an untrained network's; 0 turns that off (not for
    unroll)."""

    def __post_init__(self):
        for name, hint in get_type_hints(type(self)).items():
            value, allowed = getattr(self, name), get_args(hint)
            if allowed and value not in allowed:
                raise ValueError(f"{name} is {value!r}; expected one of {allowed}")
            if name not in ("horizon", "cut") and not allowed and not 0 < value < inf:
                raise ValueError(f"{name} is {value}; expected a positive number")
        if self.horizon < 0 or not (self.cut == 0 or 1 < self.cut < inf):
            raise ValueError(
                f"horizon is {self.horizon} and cut {self.cut}; expected horizon to be 0 or more, "
                "and cut to be 0 or above 1"
            )

    def make_estimator(self, task: Task, max_loss: float) -> Estimator:
        """The estimator of meta-gradients on a task."""
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
        return _optimizer(self)


@lru_cache  # the same functions again, so that nothing is recompiled
def _optimizer(options: MetaTraining) -> optax.GradientTransformation:
    rate: Any = options.learning_rate
    if options.schedule == "cosine":
        warm_up = min(100, options.steps // 10)
        rate = optax.warmup_cosine_decay_schedule(
            0.1 * rate, rate, warm_up, max(options.steps, warm_up + 1), 0.1 * rate
        )
    return optax.chain(optax.clip_by_global_norm(options.clip), optax.adam(rate))


SMALL = MetaTraining(
    steps=200, learning_rate=1e-2, pairs=4, window=10, horizon=100, head_start="pointwise"
)
"""A meta-training for two CPU cores."""


def make_task(
    name: str, *, dataset: str = "auto", folder: str | None = None, **options: Any
) -> tuple[Task, str]:
    """A task, on its own data or on data that need no files.

    Args:
        name: one of `TASKS` or `UNSEEN`.
        dataset: the dataset. With "auto" it is the task's own, or a built-in one if that is
            missing and no folder is named.
        folder: where the data are, by default the folder that the variable UNF_DATA names.
        options: fields of the task; `dtype` is by default bfloat16 on accelerators.

    Returns:
        The task, and a line about its data.

    Raises:
        ValueError: if there is no such task or option.
        DataError: if the data are missing or damaged.
    """
    every = TASKS | UNSEEN
    if name not in every:
        raise ValueError(f"unknown task {name!r}; expected one of {list(every)}")
    kind: Any = every[name]
    known = {field.name for field in dataclasses.fields(kind)}
    for option in options:
        if option not in known:
            raise ValueError(f"the task {name!r} has no option {option}; it has {sorted(known)}")
    if "dtype" in known and jax.default_backend() != "cpu":
        options = {"dtype": "bfloat16", **options}

    def make(**data: Any) -> Any:
        task = kind(**{**data, "folder": folder, **options})
        task.data()  # fails now if data are missing; they are read once
        return task

    try:
        task = make() if dataset == "auto" else make(dataset=dataset)
        return task, f"data: {task.dataset}"
    except MissingDataError as error:
        if dataset != "auto" or folder or os.environ.get("UNF_DATA"):
            raise
        built_in = "digits" if issubclass(kind, ImageTask) else "python-docs"
        about = f"data: {built_in}, which needs no files, in place of the task's own ({error})"
        return make(dataset=built_in), about
