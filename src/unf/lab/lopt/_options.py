"""What is meta-trained, on which tasks and data, and how."""

import dataclasses
import os
from collections.abc import Iterable
from functools import lru_cache
from math import inf
from typing import Any, Literal, get_args, get_type_hints

import jax
import optax

from ...meta import Backpropagation, Estimator, EvolutionStrategies, Task
from .._folder import added
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

PAPER = ("mlp", "cnn", "rnn", "transformer")
"""The paper's tasks for learned optimizers (§4.2)."""
TASKS: dict[str, type[Task]] = {
    task.name: task for task in (MLPTask, CNNTask, RNNTask, TransformerTask)
}
"""Tasks for learned optimizers, by name."""
MIXTURES = {
    "paper": PAPER,
    "any": (
        "mlp",
        "mlp:hidden=16:activation=tanh:batch_size=32",
        "mlp:hidden=64-64:activation=gelu:layer_norm=true:batch_size=64",
        "mlp:hidden=32-32-32:activation=silu:batch_size=64",
        "mlp:dataset=digits:hidden=96-96:batch_size=128",
        "cnn:channels=16-32:first_stride=2:batch_size=64",
        "cnn:channels=8-8-8:first_stride=2:activation=gelu:batch_size=32",
        "rnn:embedding=16:hidden=32:activation=tanh:length=8:batch_size=32",
        "transformer:unit=bytes:width=16:num_heads=2:expand=2:batch_size=16",
    ),
}
"""Tasks to meta-train on at once: the paper's, and small ones that differ as much as they can, for
an optimizer that is to work on any network."""
UNSEEN: dict[str, type[Task]] = {
    task.name: task
    for task in (DeepMLPTask, ResNetTask, LSTMTask, GRUTask, ViTTask, GPTTask, AutoencoderTask)
}
"""Tasks to evaluate on, which no learned optimizer is meta-trained on, by name."""


_NOISE = {"pes": "persistent", "nres": "reused", "es": "truncated"}


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
    estimator: Literal["pes", "nres", "es", "tbptt", "unroll"] = "pes"
    """Evolution strategies with persistent, reused or truncated noise; or backpropagation through
    windows of an unroll, or through the whole."""
    pairs: int = 16
    """Antithetic pairs of runs; for backpropagation, half the number of runs."""
    sigma: float = 0.01
    """Standard deviation of the perturbations of θ (not for backpropagation)."""
    window: int = 50
    """Inner steps between meta-steps (not for unroll)."""
    horizon: int = 0
    """Inner steps of an unroll; 0 stands for the paper's number for the task."""
    objective: Literal["mean", "final"] = "mean"
    """Minimize the mean loss of an unroll, or its final loss."""
    form: Literal["paper", "code", "normalized", "adaptive"] = "normalized"
    """What the optimizer reads and accumulates; see unf.optim.Form."""
    head_start: Literal["random", "pointwise"] = "random"
    """Initial coefficients of an equivariant head."""
    max_norm: float = added(inf)
    """Largest norm of the estimate from one run or pair of runs."""
    hidden_channels: int = added(32)
    """Channels of the pointwise layers of an optimizer's network."""
    cut: float = 2.0
    """Cut losses off at this multiple of an untrained network's; 0 turns that off (not for
    unroll)."""
    reparametrize: float = added(0.0)
    """Divide each tensor of a new network by a random factor, whose logarithm has this standard
    deviation, and multiply it by the factor where it is used; 0 turns that off."""

    def __post_init__(self):
        for name, hint in get_type_hints(type(self)).items():
            value, allowed = getattr(self, name), get_args(hint)
            if allowed and value not in allowed:
                raise ValueError(f"{name} is {value!r}; expected one of {allowed}")
            optional = name in ("horizon", "cut", "reparametrize", "max_norm")
            if not (allowed or optional) and not 0 < value < inf:
                raise ValueError(f"{name} is {value}; expected a positive number")
        if self.horizon < 0 or not (self.cut == 0 or 1 < self.cut < inf):
            raise ValueError(
                f"horizon is {self.horizon} and cut {self.cut}; expected horizon to be 0 or more, "
                "and cut to be 0 or above 1"
            )
        if not 0 <= self.reparametrize < inf:
            raise ValueError(f"reparametrize is {self.reparametrize}; expected 0 or more")
        if not self.max_norm > 0:
            raise ValueError(f"max_norm is {self.max_norm}; expected a positive number")

    def make_estimator(self, task: Task, max_loss: float) -> Estimator:
        """The estimator of meta-gradients on a task."""
        horizon = self.horizon or task.horizon
        if self.estimator in ("tbptt", "unroll"):
            windows = self.estimator == "tbptt"
            return Backpropagation(
                horizon,
                window=self.window if windows else None,
                runs=2 * self.pairs,
                objective=self.objective,
                max_norm=self.max_norm,
                max_loss=max_loss if windows else inf,
            )
        return EvolutionStrategies(
            horizon,
            window=self.window,
            pairs=self.pairs,
            sigma=self.sigma,
            noise=_NOISE[self.estimator],
            objective=self.objective,
            max_norm=self.max_norm,
            max_loss=max_loss,
        )

    def make_optimizer(self) -> optax.GradientTransformation:
        """The meta-optimizer."""
        return _optimizer(self.learning_rate, self.schedule, self.steps, self.clip)


@lru_cache  # the same functions again, so that nothing is recompiled
def _optimizer(peak: float, schedule: str, steps: int, clip: float) -> optax.GradientTransformation:
    rate: Any = peak
    if schedule == "cosine":
        warm_up = min(100, steps // 10)
        rate = optax.warmup_cosine_decay_schedule(
            0.1 * peak, peak, warm_up, max(steps, warm_up + 1), 0.1 * peak
        )
    return optax.chain(optax.clip_by_global_norm(clip), optax.adam(rate))


SMALL = MetaTraining(
    steps=200, learning_rate=1e-2, pairs=4, window=10, horizon=100, head_start="pointwise"
)
"""A meta-training for two CPU cores."""


def parse_tasks(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Names of tasks with their options, from a text such as "mlp,cnn:channels=8-16:batch_size=64".

    Tasks and `MIXTURES` are joined by commas; options follow a task after colons; sizes are joined
    by hyphens.

    >>> parse_tasks("rnn,mlp:hidden=64-64:activation=tanh")
    [('rnn', {}), ('mlp', {'hidden': (64, 64), 'activation': 'tanh'})]

    Raises:
        ValueError: if there is no such task, mixture or option, or an option is invalid.
    """
    words = [word for part in text.split(",") for word in MIXTURES.get(part, (part,))]
    return [_parse_task(word) for word in words]


def _parse_task(text: str) -> tuple[str, dict[str, Any]]:
    name, *settings = text.split(":")
    hints, options = _options_of(name), {}
    for setting in settings:
        option, _, value = setting.partition("=")
        if option not in hints:
            raise ValueError(_no_option(name, option, hints))
        if option in options:
            raise ValueError(f"the task {text!r} has two values of {option}; expected one")
        try:
            options[option] = _parse_value(value, hints[option])
        except (ValueError, KeyError) as error:
            kind = hints[option]
            wanted = "whole numbers joined by -, such as 64-32" if get_args(kind) else kind.__name__
            wanted = "true or false" if kind is bool else wanted
            raise ValueError(
                f"the option {option} of the task {name!r} is {value!r}; expected {wanted}"
            ) from error
    return name, options


def _parse_value(text: str, kind: Any) -> Any:
    if get_args(kind):
        return tuple(int(size) for size in text.split("-"))
    return {"true": True, "false": False}[text] if kind is bool else kind(text)


def _options_of(name: str) -> dict[str, Any]:
    """The options of a task and their types; where data are is none of them."""
    every = TASKS | UNSEEN
    if name not in every:
        raise ValueError(
            f"unknown task {name!r}; expected one of {list(every)} or a mixture of them, one of "
            f"{list(MIXTURES)}"
        )
    kind: Any = every[name]
    hints = get_type_hints(kind)
    return {x.name: hints[x.name] for x in dataclasses.fields(kind) if x.name != "folder"}


def _no_option(name: str, option: str, known: Iterable[str]) -> str:
    return f"the task {name!r} has no option {option}; it has {sorted(known)}"


def spell_task(task: Task) -> str:
    """The text that `parse_tasks` makes this task of: its name, data, and what is not a default.

    >>> spell_task(MLPTask(dataset="digits", hidden=(64, 64), layer_norm=True))
    'mlp:dataset=digits:hidden=64-64:layer_norm=true'
    """
    words = [task.name]
    for field in dataclasses.fields(task):
        value = getattr(task, field.name)
        if field.name in ("dataset", "dtype") or (
            field.name != "folder" and value != field.default
        ):
            text = "-".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words.append(f"{field.name}={text.lower() if isinstance(value, bool) else text}")
    return ":".join(words)


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
    known = _options_of(name)
    kind: Any = (TASKS | UNSEEN)[name]
    for option in options:
        if option not in known:
            raise ValueError(_no_option(name, option, known))
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
