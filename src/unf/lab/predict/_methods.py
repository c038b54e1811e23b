"""The predictors, and how they are trained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import optax
from jaxtyping import PRNGKeyArray, PyTree

from ...models import (
    Fitted,
    Invariant,
    InvariantDeepSet,
    InvariantTied,
    InvariantUNF,
    Probe,
    StatNN,
    TiedDeepSet,
    TiedStatNN,
    reader,
)
from ...models._fit import default_optimizer
from ...models._fitted import Networks, check_networks, predict_together
from ...spec import WeightSpace
from ...zoo import MixedZoo, Zoo
from ..tasks._task import Runnable
from ..zoos._published import known_about


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
    """Keep the learning rate constant, or let it decay as a cosine after a warm-up of one epoch, or
    of a tenth of the training if that is shorter."""
    weight_decay: float = 0.0
    """Decoupled weight decay."""
    clip: float = 0.0
    """Largest allowed norm of a gradient; 0 turns clipping off."""
    standardize: bool = False
    """Standardize weights; predictors of several architectures always do, and probes never."""
    signs: tuple[str, ...] | None = None
    """Permutations of neurons whose signs mean nothing; by default as the zoo's recipe says."""
    augment: bool = False
    """Change weights at random in every batch, as the task of the zoo knows how."""

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


class Problem(NamedTuple):
    """What a predictor of one architecture is made for.

    Attributes:
        space: the weight space of the networks.
        out_size: the length of the output: the number of classes, or 1.
        network: how to probe networks; None if they cannot be run.
        keeps_fixed: whether the indices of fixed axes, such as coordinates, are told apart by
            methods that otherwise permute every axis.
    """

    space: WeightSpace
    out_size: int
    network: Runnable | None = None
    keeps_fixed: bool = False

    @property
    def permuted(self) -> WeightSpace:
        """The space in which every axis is permuted, or all but the fixed ones."""
        return self.space if self.keeps_fixed else self.space.relax()


@dataclass(frozen=True)
class Method:
    """A kind of predictor.

    Attributes:
        title: its name in tables.
        make: makes one from a problem and a key; None if it belongs to no space.
        make_tied: makes one for any network from the spaces to train on, the length of the output,
            and a key, or None.
        defaults: where its training on a zoo of one architecture differs from the paper's.
        probes: whether it runs the networks.
    """

    title: str
    make: Callable[[Problem, PRNGKeyArray], Any] | None
    make_tied: Callable[[Sequence[WeightSpace], int, PRNGKeyArray], Invariant] | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    probes: bool = False


_MORE: dict[str, Any] = {"statistics": ("mean", "std"), "raw_statistics": True}
_LONGER = {"epochs": 12, "learning_rate": 3e-3, "schedule": "cosine", "clip": 1.0}
_DEEP = {"epochs": 20, "batch_size": 64, "schedule": "cosine", "clip": 1.0}
_DEEP |= {"weight_decay": 1e-2, "standardize": True}
_PROBE_FEATURES = 512
MIXED = {"epochs": 20, "batch_size": 16, "schedule": "cosine", "clip": 1.0}
"""How training on a mixed zoo differs from the paper's, with every method."""


def _unf_plus(problem: Problem, key: PRNGKeyArray) -> Invariant:
    return InvariantUNF(problem.permuted, 1, problem.out_size, key=key, products=16, **_MORE)


def _tied(spaces: Sequence[WeightSpace], out_size: int, key: PRNGKeyArray) -> Invariant:
    return InvariantTied(1, out_size, key=key, spaces=spaces, num_layers=2, **_MORE)


def _probe(problem: Problem, key: PRNGKeyArray, out_size: int | None = None) -> Probe:
    network = problem.network
    assert network is not None
    return Probe(
        network.fn, problem.space, network.input_shape, out_size or problem.out_size, key=key,
        num_probes=network.num_probes, scale=network.scale,
        start=network.start and network.start(network.num_probes, key=jax.random.fold_in(key, 1)),
    )  # fmt: skip


def _reader(problem: Problem, key: PRNGKeyArray) -> Invariant:
    return reader(problem.space, problem.out_size, key=key)


def _reader_with_probes(problem: Problem, key: PRNGKeyArray) -> Invariant:
    keys = jax.random.split(key)
    probe = _probe(problem, keys[1], _PROBE_FEATURES)
    return reader(problem.space, problem.out_size, key=keys[0], probe=probe)


METHODS: dict[str, Method] = {
    "deepset": Method(
        "Deep Set",
        lambda given, key: InvariantDeepSet(given.space, 1, given.out_size, key=key),
        lambda spaces, out_size, key: TiedDeepSet(1, out_size, key=key),
    ),
    "statnn": Method(
        "StatNN",
        lambda given, key: StatNN(given.space, 1, given.out_size, key=key),
        lambda spaces, out_size, key: TiedStatNN(1, out_size, key=key),
    ),
    "unf": Method(
        "UNF, as in the paper",
        lambda given, key: InvariantUNF(given.permuted, 1, given.out_size, key=key),
    ),
    "unf-plus": Method("UNF, beyond the paper", _unf_plus, defaults=_LONGER),
    "tied": Method("Tied UNF", None, _tied, _LONGER),
    "reader": Method("Reader", _reader, defaults=_DEEP),
    "probe": Method("Probe", _probe, defaults=_DEEP | {"standardize": False}, probes=True),
    "reader-probe": Method("Reader with probes", _reader_with_probes, defaults=_DEEP, probes=True),
}
"""Predictors by name. Like the paper, `unf` permutes every axis, but not the coordinates of
implicit networks. So does `unf-plus`, which also multiplies weight matrices, pools more than means,
reads the statistics of the weights themselves, and trains a little longer with a learning-rate
schedule. `tied` reads networks of any architecture, and on a mixed zoo `deepset` and `statnn` do
too: they pool by role. `reader` is the deeper `unf.models.reader`, `probe` runs the networks on
learned inputs, and `reader-probe` does both."""


def problem_of(
    zoo: Zoo, method: str, classes: int | None, network: Runnable | None = None
) -> Problem:
    """What a predictor of one architecture is made for."""
    known = known_about(zoo)
    if METHODS[method].probes:  # others need neither the task nor its data
        network = network or network_of(zoo, method)
    return Problem(zoo.space, classes or 1, network, known is not None and known.keeps_fixed)


def network_of(zoo: Zoo | MixedZoo, method: str) -> Runnable:
    """How to run the networks of a zoo.

    Raises:
        PredictError: if that is not known.
    """
    known = known_about(zoo)
    network = None if known is None else getattr(known.task, "network", None)
    if network is None:
        raise PredictError(
            f"{method!r} runs the networks, and nothing says how to run those of this zoo "
            f"({zoo.kind}); pass network=, or choose another method"
        )
    return network


def defaults_of(method: str, mixed: bool) -> Training:
    """How a method is trained unless told otherwise.

    Raises:
        PredictError: if there is no such method.
    """
    if method not in METHODS:
        raise PredictError(f"unknown method {method!r}; expected one of {list(METHODS)}")
    return Training(**(MIXED if mixed else METHODS[method].defaults))


def make_optimizer(training: Training, steps: int) -> optax.GradientTransformation:
    """The optimizer for a training with that many steps in an epoch."""
    total = training.epochs * steps
    return default_optimizer(
        training.learning_rate,
        total,
        warmup=max(1, min(steps, total // 10)) if training.schedule == "cosine" else 0,
        clip=training.clip,
        weight_decay=training.weight_decay,
    )


def invariance_gap(
    models: Sequence[Fitted], space: WeightSpace, weights: PyTree, *, seed: int
) -> float:
    """The largest change of a prediction when each network's hidden neurons are reordered."""
    keys = jax.random.split(jax.random.key(seed), len(jax.tree.leaves(weights)[0]))
    permute = jax.jit(lambda x, key: space.permute(x, space.sample_permutation(key)))
    moved = jax.tree.map(np.asarray, jax.vmap(permute)(weights, keys))
    before, after = (
        predict_together(models, networks_of(models[0], [x], [space]))[0] for x in (weights, moved)
    )
    return float(np.max(np.abs(before - after)))


def networks_of(
    model: Fitted, weights: Sequence[PyTree], spaces: Sequence[WeightSpace]
) -> list[Networks]:
    """Weights as the model reads them, checked."""
    if model.space is None:
        return check_networks(model.model, list(weights), list(spaces))
    return check_networks(model.model, weights[0], None)
