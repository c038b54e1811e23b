"""Fitting models to pairs of weights and targets."""

import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import groupby
from math import gcd
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree

from .._devices import connect, enough_memory, even_mesh, in_threads, is_first, put, to_host
from .._persistence import Checkpoints, digest
from .._progress import Progress
from ..nn._pool import GROUPS, groups_of
from ..spec import WeightSpace
from ..spec._signs import check_names
from ._fitted import (
    Fitted,
    Loss,
    LossFunction,
    Networks,
    Where,
    check_networks,
    check_targets,
    fan_in_roots,
    join_model,
    losses_of,
    outputs_of,
    scores_of,
    split_models,
)

Keys = Key[Array, " models"]
Metrics = Mapping[str, Any]
Augment = Callable[[PyTree, PRNGKeyArray], PyTree]
"""Changes one network's weights at random."""

_STEPS_PER_CALL = 50
_READ_AT_ONCE = 32
_CALLS_AHEAD = 16
"""Calls that wait for the device, if there are many short ones."""
_MANY_PARAMETERS = 10_000
"""Parameters for each example above which a fit is hardly more than a lookup table."""


class Fit(NamedTuple):
    """What `fit` returns.

    Attributes:
        model: the fitted model, of the epoch that was best on the validation networks.
        history: "loss", "valid_loss" and the scores, with an entry for each epoch.
        score: the scores of the model on the validation networks; see `Fitted.score`.
    """

    model: Any
    history: dict[str, np.ndarray]
    score: dict[str, Any]


class _State(NamedTuple):
    """What training continues from: arrays with a leading axis of models."""

    models: Any
    states: Any
    best: Any


def fit(
    model: Any,
    weights: PyTree,
    targets: Any,
    *,
    key: PRNGKeyArray | Keys,
    spaces: Sequence[WeightSpace] | None = None,
    validation: float | tuple[PyTree, Any] = 0.1,
    loss: Loss | LossFunction = "mse",
    epochs: int = 50,
    batch_size: int = 32,
    learning_rate: float = 1e-3,
    optimizer: optax.GradientTransformation | None = None,
    standardize: bool | None = None,
    signs: Sequence[str] = (),
    augment: Augment | str | None = None,
    patience: int | None = 10,
    keep: Literal["loss", "score"] = "loss",
    on_epoch: Callable[[int, Metrics], Any] | None = None,
    checkpoints: str | os.PathLike | Checkpoints | None = None,
    progress: bool | str | None = None,
) -> Fit:
    """Fit a model to networks' weights and what is to be predicted from them.

    >>> import jax, unf
    >>> space = unf.testing.spaces.mlp(2, 4, 1)
    >>> weights = unf.testing.random_features(space, 50, key=jax.random.key(0))
    >>> weights = jax.tree.map(lambda leaf: jax.numpy.moveaxis(leaf, -1, 0), weights)
    >>> targets = sum(leaf.reshape(50, -1).mean(1) for leaf in jax.tree.leaves(weights))
    >>> model = unf.models.StatNN(space, 1, 1, key=jax.random.key(1), mlp_layers=1)
    >>> result = unf.fit(model, weights, targets, key=jax.random.key(2), epochs=1)
    >>> sorted(result.history), result.model.predict(weights).shape
    (['loss', 'r2', 'tau', 'valid_loss'], (50,))

    Every leaf is standardized by its mean and standard deviation over the training networks, two
    numbers for each channel, which no permutation changes. Several models are trained together in
    one program, which costs a GPU little more than one; then each entry of the result has one
    part for each. Batches are sharded across all devices of all processes.

    A model for any network, such as `InvariantTied`, is fitted on networks of several weight
    spaces: `weights` and `targets` are then lists with an entry for each of `spaces`, and so are
    those of `validation`. A batch has networks of one space, and the batches of all spaces come in
    random order. Weights are multiplied by √fan-in and standardized by group (`unf.nn.RolePool`),
    so that the constants also serve spaces that were not fitted. All programs are compiled first,
    several at a time.

    A loss that is a function trains through whatever it computes: to edit networks, let it run the
    network that the model has written (`unf.models.editor`).

    Args:
        model: maps features to a vector, e.g. an `InvariantUNF`, or with a loss that is a function
            to anything; or a list of models that differ only in their parameters.
        weights: the networks' weights, as a pytree with leaves stacked along a leading axis; or
            features, if the leaves also have a trailing channel axis.
        targets: a number or a vector for each network, or the number of its class; with a loss
            that is a function, any arrays with a leading axis of networks.
        key: shuffles the networks and draws dropout; for several models, one key for each if it
            is an array of keys.
        spaces: the weight space of each entry of `weights`, for a model that fits any.
        validation: networks to choose the epoch by: a fraction, or their weights and targets.
        loss: squared errors; binary cross-entropy for targets from 0 to 1; cross-entropy for
            classes; or a function of one network's output and target.
        epochs: the largest number of passes over the training networks.
        batch_size: networks in a batch.
        learning_rate: the largest rate of Adam, which rises for one epoch and then decays as a
            cosine; gradients are clipped to norm 1.
        optimizer: another optimizer, in place of that one.
        standardize: whether to standardize weights, by default yes, except for a `Probe`.
        signs: names whose neurons have odd activations, such as sin and tanh. All their weights
            can be negated (`WeightSpace.flip`), so each network is read with the signs that
            `WeightSpace.orient` chooses, and predictions do not depend on them.
            `unf.verify(signs=)` checks whether this is so.
        augment: changes the weights of each network of a batch at random, such as by a symmetry
            that the model does not know: a function of one network's weights and a key. "permute"
            permutes neurons at random, for a model that is not equivariant; its weight space is
            `model.space`, or the only one of `spaces`. Targets must not depend on their order.
        patience: stop after this many epochs that were not better on the validation networks;
            None goes through all epochs.
        keep: whether the epoch is chosen by the validation "loss" or "score" (τ or accuracy, which
            a loss that is a function does not have).
        on_epoch: called after each epoch with its number, from 1, and its part of the history.
        checkpoints: a folder for the state after each epoch. If it holds some, training goes on
            from the last one, to the same result; those of another fit are refused, except that
            functions are told apart by their names only, and optimizers by their states.
        progress: show the rate and the time left on standard error, by default on a terminal;
            a string is shown in front.

    Raises:
        SpecError: if the weights do not fit the model.
        ValueError: if targets or options do not fit, or a model diverges in every epoch.
    """
    models = list(model) if isinstance(model, Sequence) else [model]
    _check_options(models, loss, keep, epochs, batch_size)
    if patience is not None and patience < 1:
        raise ValueError(f"patience is {patience}; expected at least 1, or None")
    keys = _keys(key, len(models))
    augment = _find_augmentation(augment, models[0], spaces)
    train, valid = _examples(models[0], weights, targets, spaces, validation, loss, keys[0])
    if keep == "score" and loss != "cross-entropy" and sum(x.num_networks for x in valid) < 2:
        raise ValueError("keep is 'score', and one network has no τ; validate with at least 2")
    networks = sum(part.num_networks for part in train)
    _check_size(models[0], networks)
    sizes = [min(batch_size, part.num_networks) for part in train]
    steps = sum(part.num_networks // size for part, size in zip(train, sizes, strict=True))
    if optimizer is None:
        optimizer = default_optimizer(learning_rate, epochs * steps, warmup=steps, clip=1.0)
    raw = getattr(models[0], "reads_raw", False)
    if raw and standardize:
        raise ValueError(
            f"a {type(models[0]).__name__} reads weights as they are; leave out standardize=True"
        )
    standardize = not raw if standardize is None else standardize
    signs = _check_signs(signs, models[0], train)
    constants = _constants(_oriented(train, models[0], signs), loss, standardize)
    grouped = train[0].space is not None
    fitted = Fitted(None, **constants, loss=loss, signs=signs, grouped=grouped)
    if callable(loss):
        _check_cost(loss, replace(fitted, model=models[0]), train[0])
    if loss == "mse":
        train, valid = ([_in_units(part, fitted) for part in parts] for parts in (train, valid))
    if isinstance(checkpoints, str | os.PathLike):
        options = {"epochs": epochs, "batch_size": max(sizes), "learning_rate": learning_rate}
        options |= {"loss": _name(loss), "standardize": standardize, "keep": keep}
        options |= {} if augment is None else {"augment": _name(augment)}
        options |= {"signs": list(signs)} if signs else {}
        data = _digest(models, keys, [*train, *valid])
        job = {"what": "checkpoint of a fit", **options, "data": data}
        checkpoints = Checkpoints(Path(checkpoints), job)
    show = is_first() and (sys.stderr.isatty() if progress is None else bool(progress))
    label = progress if isinstance(progress, str) else "fit"
    with (
        enough_memory(ValueError, f"batches of {max(sizes)}", "choose a smaller batch_size="),
        Progress(label, epochs * steps, unit="steps", show=show) as bar,
    ):
        together = _Together(
            models, fitted, keys, train, valid, sizes, optimizer, augment, keep, bar
        )
        best, history, chosen = together.train(epochs, patience, checkpoints, on_epoch)
    score = {name: rows[chosen, range(len(models))] for name, rows in history.items()}
    score = {name: values for name, values in score.items() if "loss" not in name}
    if isinstance(model, Sequence):
        return Fit(best, history, score)
    history = {name: rows[:, 0] for name, rows in history.items()}
    return Fit(best[0], history, {name: float(x[0]) for name, x in score.items()})


@lru_cache  # the same functions again, so that nothing is recompiled
def default_optimizer(
    learning_rate: float,
    steps: int,
    *,
    warmup: int = 0,
    clip: float = 0.0,
    weight_decay: float = 0.0,
) -> optax.GradientTransformation:
    """Adam with a cosine schedule after linear warm-up, or a constant rate without warm-up."""
    rate: Any = learning_rate
    if warmup:
        total = max(2, steps)
        rate = optax.warmup_cosine_decay_schedule(0.0, rate, min(warmup, total // 2), total)
    adam = optax.adamw(rate, weight_decay=weight_decay)
    return optax.chain(optax.clip_by_global_norm(clip), adam) if clip else adam


class _Examples(NamedTuple):
    """Networks' features and targets, each with a leading axis of networks."""

    features: PyTree
    targets: Any


class _Part(NamedTuple):
    """The examples of one weight space."""

    examples: _Examples
    space: WeightSpace | None

    @property
    def num_networks(self) -> int:
        """How many networks there are."""
        return self.networks.num_networks

    @property
    def networks(self) -> Networks:
        """Them without their targets."""
        return Networks(self.examples.features, self.space)


class _Together:
    """Training several models at once."""

    def __init__(
        self,
        models: list[Any],
        fitted: Fitted,
        keys: Keys,
        train: list[_Part],
        valid: list[_Part],
        sizes: list[int],
        optimizer: optax.GradientTransformation,
        augment: Augment | None,
        keep: str,
        progress: Progress,
    ):
        self.keys, self.sizes, self.optimizer, self.augment = keys, sizes, optimizer, augment
        self.keep, self.progress = keep, progress
        self.loss: Any = fitted.loss
        self.count = len(models)
        self.steps = [part.num_networks // size for part, size in zip(train, sizes, strict=True)]
        mesh = even_mesh(gcd(*sizes), "batch")
        connect(mesh)
        self.replicated = NamedSharding(mesh, PartitionSpec())
        self.sharded = NamedSharding(mesh, PartitionSpec(None, None, "batch"))
        params, self.static = split_models(models, fitted)
        jax.block_until_ready(params)  # fail here if memory is short, not later at each array
        states = jax.block_until_ready(jax.jit(jax.vmap(optimizer.init))(params))
        self.start = _State(params, states, params)
        self.parts = [x._replace(examples=put(x.examples, self.replicated)) for x in train]
        targets = [part.examples.targets for part in valid]
        self.targets = jax.tree.map(lambda *x: np.concatenate(x), *targets)
        self.valid = [x._replace(examples=jax.device_put(x.examples)) for x in valid]
        self.dropout = "key" in inspect.signature(type(models[0]).__call__).parameters

    def train(
        self,
        epochs: int,
        patience: int | None,
        checkpoints: Checkpoints | None,
        on_epoch: Callable[[int, Metrics], Any] | None,
    ) -> tuple[list[Fitted], dict[str, np.ndarray], np.ndarray]:
        """Train to the end; the best models, the history, and the epochs that were best."""
        restored = None if checkpoints is None else checkpoints.restore(self.start)
        done, state, notes = restored or (0, self.start, {})
        history: dict[str, list] = {
            name: list(np.array(rows, float).reshape(done, self.count))
            for name, rows in notes.items()
        }
        state = put(state, self.replicated)
        self.progress.advance(done * sum(self.steps))
        if len(self.parts) > 1 and done < epochs:
            self._compile(state)
        for epoch in range(done, epochs):
            chosen, waited = self._best(history)
            if patience is not None and waited >= patience:
                break
            models, states, loss = self._epoch(epoch, epochs, state)
            found = {"loss": loss, **self._validate(models)}
            for name, values in found.items():
                history.setdefault(name, []).append(np.asarray(values, float))
            chosen, _ = self._best(history)
            best = _choose(jnp.asarray(chosen == epoch), models, state.best)
            state = _State(models, states, best)
            word, value = self._criterion(found)
            self.progress.advance(0, f"validation {word} {np.mean(value):.4f}")
            if on_epoch is not None:
                alone = {n: x if self.count > 1 else float(x[0]) for n, x in found.items()}
                on_epoch(epoch + 1, alone)
            if checkpoints is not None:  # numbers as text, since JSON has no NaN
                text = {n: np.array(rows).astype(str).tolist() for n, rows in history.items()}
                checkpoints.save(epoch + 1, state, text)
        chosen, _ = self._best(history)
        if np.any(chosen < 0):
            bad = np.flatnonzero(chosen < 0).tolist()
            which = "the model" if self.count == 1 else f"models {bad}"
            raise ValueError(f"{which} diverged in every epoch; {self._remedy()}")
        best = [join_model(_pick(to_host(state.best), i), self.static) for i in range(self.count)]
        return best, {name: np.array(rows) for name, rows in history.items()}, chosen

    def _compile(self, state: _State) -> None:
        """Compile the programs of all spaces, several at a time, by training for no steps."""
        training = [
            partial(self._advance, state.models, state.states, i, self._order(0, i), (0, 0), 0)
            for i in range(len(self.parts))
        ]
        models = jax.device_put(to_host(state.models))
        reading = [partial(self._read, models, [part]) for part in self.valid]
        self.progress.advance(0, f"compiling {len(training) + len(reading)} programs")
        in_threads(lambda run: run(), [*training, *reading])

    def _order(self, epoch: int, index: int) -> Array:
        """The batches of one space in an epoch."""
        several = [index] if len(self.parts) > 1 else []
        count = self.parts[index].num_networks
        return put(
            _order(self.keys, [epoch, *several], self.steps[index], self.sizes[index], count),
            self.sharded,
        )

    def _epoch(self, epoch: int, epochs: int, state: _State) -> tuple[Any, Any, np.ndarray]:
        models, states, _ = state
        orders = [self._order(epoch, index) for index in range(len(self.parts))]
        total, waiting = np.zeros(self.count), []
        ahead = _CALLS_AHEAD if len(self.parts) > 1 else 0
        for index, first, last in _schedule(self.keys[0], epoch, self.steps):
            models, states, loss = self._advance(
                models, states, index, orders[index], (first, last), epoch
            )
            waiting.append(loss)
            if len(waiting) > ahead:
                total += np.asarray(waiting.pop(0), np.float64)
            self.progress.advance(last - first, f"epoch {epoch + 1} of {epochs}")
        total += sum(np.asarray(loss, np.float64) for loss in waiting)
        return models, states, total / sum(self.steps)

    def _advance(
        self, models: Any, states: Any, index: int, order: Array, span: tuple[int, int], epoch: int
    ) -> tuple[Any, Any, Array]:
        """Train on some batches of one space."""
        part, keys = self.parts[index], None
        if self.dropout or self.augment is not None:
            number = epoch if len(self.parts) == 1 else epoch * len(self.parts) + index
            keys = jax.vmap(lambda key: jax.random.fold_in(key, number))(self.keys)
        return _advance(
            models, self.static, states, self.optimizer.update, part.examples, order,
            jnp.array(span), keys, self.dropout, self.augment, part.networks.where,
        )  # fmt: skip

    def _read(self, models: Any, parts: list[_Part]) -> list[np.ndarray]:
        """The outputs for some networks; with a loss that is a function, what they cost."""
        if not callable(self.loss):
            return outputs_of(models, self.static, [x.networks for x in parts], _READ_AT_ONCE)
        return [
            losses_of(models, self.static, x.networks, x.examples.targets, _READ_AT_ONCE)
            for x in parts
        ]

    def _remedy(self) -> str:
        """What helps against divergence: another rate, unless it was there before training."""
        models, finite = jax.device_put(to_host(self.start.models)), []
        for part in (*self.parts, *self.valid):
            (outputs,) = self._read(models, [part._replace(examples=to_host(part.examples))])
            finite += (
                np.isfinite(outputs.sum(axis=0)).reshape(part.num_networks, -1).all(axis=1).tolist()
            )
        if all(finite):
            return "choose a smaller learning_rate="
        return (
            f"even before training, outputs for {finite.count(False)} of {len(finite)} networks "
            "are not finite; leave out networks with very large weights"
        )

    def _validate(self, models: Any) -> dict[str, np.ndarray]:
        models = jax.device_put(to_host(models))  # once, not for every batch
        outputs = np.concatenate(self._read(models, self.valid), axis=1)
        if callable(self.loss):
            return {"valid_loss": outputs.mean(axis=1)}
        losses = [float(_loss(self.loss, jnp.asarray(y), self.targets)) for y in outputs]
        scores = [scores_of(y, self.targets, self.loss) for y in outputs]
        return {
            "valid_loss": np.array(losses),
            **{name: np.array([each[name] for each in scores]) for name in scores[0]},
        }

    def _criterion(self, found: Mapping[str, Any]) -> tuple[str, np.ndarray]:
        """The name of what epochs are compared by, and its values."""
        name = "valid_loss" if self.keep == "loss" else "tau" if "tau" in found else "accuracy"
        words = {"valid_loss": "loss", "tau": "τ"}
        return words.get(name, name), np.asarray(found[name])

    def _best(self, history: Mapping[str, Any]) -> tuple[np.ndarray, int]:
        """Each model's best epoch so far, or -1, and how long the last of them is ago."""
        if not history:
            return np.full(self.count, -1), 0
        values = self._criterion(history)[1] * (-1 if self.keep == "loss" else 1)
        values = np.where(np.isfinite(values), values, -np.inf)
        best = np.where(np.isfinite(values.max(axis=0)), values.argmax(axis=0), -1)
        return best, len(values) - 1 - int(best.max())


def _check_options(models: list, loss: Any, keep: str, epochs: int, batch_size: int) -> None:
    if not models:
        raise ValueError("no models to fit; pass at least one")
    if not callable(loss) and loss not in get_args(Loss):
        raise ValueError(
            f"loss is {loss!r}; expected one of {list(get_args(Loss))}, or a function of one "
            "network's output and target"
        )
    if any(isinstance(each, Fitted) for each in models):
        raise ValueError(
            "the model was fitted before, with constants of its own; pass the model inside it, "
            "model.model"
        )
    if callable(loss) and keep == "score":
        raise ValueError(
            "keep is 'score', which a loss that is a function does not have; leave keep='loss'"
        )
    if keep not in ("loss", "score"):
        raise ValueError(f"keep is {keep!r}; expected 'loss' or 'score'")
    if epochs < 1 or batch_size < 1:
        raise ValueError(f"epochs is {epochs} and batch_size {batch_size}; expected at least 1")
    structures = {jax.tree.structure(each) for each in models}
    if len(structures) > 1:
        raise ValueError("the models differ in more than their parameters; fit them one by one")


def _check_cost(loss: LossFunction, fitted: Fitted, part: _Part) -> None:
    """A loss that is a function returns one number for one network."""

    def cost(fitted: Fitted, x: PyTree, y: Any) -> Any:
        return loss((fitted if part.space is None else fitted.on(part.space))(x), y)

    one = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape[1:], jax.dtypes.canonicalize_dtype(x.dtype)),
        tuple(part.examples),
    )
    found = eqx.filter_eval_shape(cost, fitted, *one)
    if getattr(found, "shape", None) != ():
        got = getattr(found, "shape", jax.tree.structure(found))
        raise ValueError(
            f"the loss of one network has shape {got}; expected a single number, such as the mean"
        )


def _check_size(model: Any, networks: int) -> None:
    count = sum(x.size for x in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))
    if count > _MANY_PARAMETERS * networks:
        warnings.warn(
            f"the model has {count:,} parameters and there are {networks:,} training networks; "
            "choose smaller hidden_channels=, mlp_width= or max_fixed=, or a smaller size= of a "
            "reader or editor, or a model with fewer parameters, such as "
            "unf.models.InvariantDeepSet",
            stacklevel=3,
        )


def _keys(key: Any, models: int) -> Keys:
    """A key for each model."""
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.wrap_key_data(key)
    if key.ndim == 0:
        return key[None] if models == 1 else jax.random.split(key, models)
    if key.shape != (models,):
        raise ValueError(f"key has shape {key.shape}; expected one key, or one for each model")
    return key


def _name(option: Any) -> str:
    """An option that may be a function, as text."""
    option = getattr(option, "func", option)  # of a partial
    return getattr(option, "__qualname__", type(option).__name__) if callable(option) else option


def _seed(key: PRNGKeyArray) -> int:
    """A key's words as one number."""
    return int.from_bytes(np.asarray(jax.random.key_data(key)).astype(">u4").tobytes())


def _digest(models: list[Any], keys: Keys, parts: list[_Part]) -> str:
    """A checksum of what training starts from: models, keys, weights and targets."""
    examples = [part.examples for part in parts]
    trees = (eqx.filter(models, eqx.is_array), jax.random.key_data(keys), examples)
    arrays = {str(i): np.asarray(x) for i, x in enumerate(jax.tree.leaves(trees))}
    _, options = getattr(models[0], "made_by", None) or ("", ())
    text = repr([(name, _name(x) if callable(x) else repr(x)) for name, x in options])
    return digest({**arrays, "options": np.frombuffer(text.encode(), np.uint8)})


def _examples(
    model: Any,
    weights: PyTree,
    targets: Any,
    spaces: Sequence[WeightSpace] | None,
    validation: Any,
    loss: Loss | LossFunction,
    key: PRNGKeyArray,
) -> tuple[list[_Part], list[_Part]]:
    """The examples to train on and to validate with, for each weight space that has some."""
    groups = check_networks(model, weights, spaces)
    out_size = 0 if callable(loss) else _out_size(model, groups[0])

    def parts(groups: list[Networks], targets: Any) -> list[_Part]:
        given = [targets] if spaces is None else list(targets)
        if len(given) != len(groups):
            raise ValueError(f"there are {len(given)} arrays of targets for {len(groups)} spaces")
        found = [
            _Part(_Examples(x.features, check_targets(y, loss, x.num_networks, out_size)), x.space)
            for x, y in zip(groups, given, strict=True)
        ]
        return [part for part in found if part.num_networks]

    train = parts(groups, targets)
    if not isinstance(validation, float | int):
        valid = parts(check_networks(model, validation[0], spaces), validation[1])
        if not valid:
            raise ValueError("validation= has no networks; pass some, or a fraction such as 0.1")
        return train, valid
    held = [round(validation * part.num_networks) for part in train]
    count = sum(part.num_networks for part in train)
    if not 0 < validation < 1 or sum(held) < 2 or count - sum(held) < 1:
        raise ValueError(
            f"validation is {validation} of {count} networks; expected a fraction that leaves at "
            "least 2 to validate with and 1 to train on, or a pair of weights and targets"
        )
    rng = np.random.default_rng(_seed(key))
    kept, others = [], []
    for part, number in zip(train, held, strict=True):
        order = rng.permutation(part.num_networks)
        for found, rows in ((kept, order[number:]), (others, order[:number])):
            if len(rows):
                rows = np.sort(rows)
                some = jax.tree.map(lambda x, i=rows: x[i], part.examples)
                found.append(part._replace(examples=some))
    return kept, others


def _out_size(model: Any, networks: Networks) -> int:
    features, space = networks
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], "float32"), features)
    out = eqx.filter_eval_shape(lambda m, x: (m if space is None else m.on(space))(x), model, one)
    if not isinstance(out, jax.ShapeDtypeStruct) or len(out.shape) != 1:
        raise ValueError(
            f"the model returns {jax.tree.structure(out)} rather than a vector; fit models such "
            "as unf.models.InvariantUNF, or pass a function as loss="
        )
    return out.shape[0]


def _check_signs(signs: Sequence[str], model: Any, train: list[_Part]) -> tuple[str, ...]:
    """The names, checked against every weight space."""
    for part in train if len(signs) else ():
        space = part.space or getattr(model, "space", None)
        if space is None:
            raise ValueError(
                f"signs= needs a weight space, and a {type(model).__name__} has none: give it an "
                "attribute `space`"
            )
        check_names(signs, space.index_shapes)
    return tuple(signs)


def _oriented(train: list[_Part], model: Any, signs: tuple[str, ...]) -> list[_Part]:
    """The examples as they are read, with the signs of neurons chosen."""
    if not signs:
        return train
    found = []
    for part in train:
        orient = partial((part.space or model.space).orient, names=signs)
        features = jax.jit(partial(jax.lax.map, orient, batch_size=1024))(part.examples.features)
        examples = part.examples._replace(features=jax.tree.map(np.asarray, features))
        found.append(part._replace(examples=examples))
    return found


def _constants(train: list[_Part], loss: Any, standardize: bool) -> dict[str, Any]:
    """Mean and deviation of weights, by leaf or by group, and of targets, over the training set."""
    found: dict[str, Any] = {}
    if standardize and train[0].space is None:
        leaves = [_moments([x]) for x in jax.tree.leaves(train[0].examples.features)]
        found["shift"], found["scale"] = zip(*leaves, strict=True)
    elif standardize:
        members: list[list] = [[] for _ in GROUPS]
        for part in train:
            assert part.space is not None
            leaves = jax.tree.leaves(part.examples.features)
            described = zip(groups_of(part.space), leaves, fan_in_roots(part.space), strict=True)
            for group, leaf, root in described:
                members[group].append(np.asarray(leaf) * root)
        channels = jax.tree.leaves(train[0].examples.features)[0].shape[-1]
        constant = [np.zeros((1, channels))]
        found["shift"], found["scale"] = zip(
            *(_moments(x or constant) for x in members), strict=True
        )
    if loss == "mse":
        targets = np.concatenate([part.examples.targets for part in train])
        found["out_shift"], found["out_scale"] = _moments([targets])
    return found


def _moments(arrays: Sequence[Any]) -> tuple[Array, Array]:
    """Mean and deviation of channels, where each array counts as its first axis is long."""
    rows = [np.asarray(x, np.float64).reshape(-1, x.shape[-1]) for x in arrays]
    share = np.array([len(x) for x in arrays], np.float64)
    share = (share / share.sum())[:, None]
    mean = np.sum(share * [x.mean(axis=0) for x in rows], axis=0)
    variance = np.sum(share * [np.mean((x - mean) ** 2, axis=0) for x in rows], axis=0)
    scale = np.where(variance > 0, np.sqrt(variance), 1.0)  # a leaf that never varies
    return jnp.asarray(mean, jnp.float32), jnp.asarray(scale, jnp.float32)


def _order(
    keys: Keys, numbers: list[int], steps: int, size: int, count: int
) -> Int[np.ndarray, "{steps} models {size}"]:
    """The examples of every batch of an epoch, in each model's own random order."""
    orders = [np.random.default_rng([_seed(key), *numbers]).permutation(count) for key in keys]
    batches = np.stack(orders)[:, : steps * size].reshape(len(orders), steps, size)
    return np.ascontiguousarray(batches.swapaxes(0, 1), np.int32)


def _schedule(
    key: PRNGKeyArray, epoch: int, steps: Sequence[int]
) -> Iterator[tuple[int, int, int]]:
    """The order of an epoch's batches: a space, and which of its batches come next."""
    sequence = np.repeat(np.arange(len(steps)), steps)
    if len(steps) > 1:
        sequence = np.random.default_rng([_seed(key), epoch]).permutation(sequence)
    done = [0] * len(steps)
    for index, run in groupby(sequence.tolist()):
        end = done[index] + len(list(run))
        for first in range(done[index], end, _STEPS_PER_CALL):
            yield index, first, min(first + _STEPS_PER_CALL, end)
        done[index] = end


@eqx.filter_jit
def _advance(
    models: Any,
    static: Fitted,
    states: Any,
    update: Callable,
    examples: _Examples,
    order: Int[Array, "steps models batch"],
    span: Int[Array, "2"],
    keys: Keys | None,
    dropout: bool,
    augment: Augment | None,
    where: Where,
) -> tuple[Any, Any, Float[Array, " models"]]:
    """Train on the batches from one step to another; the loss is summed over them."""

    def loss(model: Any, batch: _Examples, key: PRNGKeyArray | None) -> Array:
        joined = join_model(model, static, where[0])
        apply = joined if callable(static.loss) else joined.standardized
        if key is None or not dropout:
            outputs = jax.vmap(apply)(batch.features)
        else:
            split = jax.random.split(key, order.shape[2])
            outputs = jax.vmap(lambda x, k: apply(x, key=k))(batch.features, split)
        if callable(static.loss):
            return jnp.mean(jax.vmap(static.loss)(outputs, batch.targets))
        return _loss(static.loss, outputs, batch.targets)

    def step(model: Any, state: Any, rows: Array, key: PRNGKeyArray | None) -> tuple:
        batch = jax.tree.map(lambda x: x[rows], examples)
        if augment is not None:
            assert key is not None
            key, other = jax.random.split(key)
            split = jax.random.split(other, len(rows))
            batch = batch._replace(features=jax.vmap(_augmented(augment))(batch.features, split))
        value, gradient = jax.value_and_grad(loss)(model, batch, key)
        updates, state = update(gradient, state, model)
        return optax.apply_updates(model, updates), state, value

    def body(i: Array, carry: Any) -> Any:
        models, states, total = carry
        now = None if keys is None else jax.vmap(lambda key: jax.random.fold_in(key, i))(keys)
        models, states, values = jax.vmap(step)(models, states, order[i], now)
        return models, states, total + values

    total = jnp.zeros(order.shape[1])
    return jax.lax.fori_loop(span[0], span[1], body, (models, states, total))


def _find_augmentation(
    given: Augment | str | None, model: Any, spaces: Sequence[WeightSpace] | None
) -> Augment | None:
    if given is None or callable(given):
        return given
    if given != "permute":
        raise ValueError(f'augment: expected a function or "permute", got {given!r}')
    space = getattr(model, "space", None) or (spaces[0] if spaces and len(spaces) == 1 else None)
    if space is None:
        raise ValueError(
            f'augment="permute" needs one weight space, and a {type(model).__name__} has none: '
            "give it an attribute `space`, or pass a function"
        )
    return _permuting(space)


@lru_cache  # the same function again, so that nothing is recompiled
def _permuting(space: WeightSpace) -> Augment:
    def permute(params: PyTree, key: PRNGKeyArray) -> PyTree:
        return space.permute(params, space.sample_permutation(key))

    return permute


def _augmented(augment: Augment) -> Augment:
    """An augmentation of weights as one of features with one channel."""

    def change(x: PyTree, key: PRNGKeyArray) -> PyTree:
        if any(leaf.shape[-1] != 1 for leaf in jax.tree.leaves(x)):
            return augment(x, key)
        changed = augment(jax.tree.map(lambda leaf: leaf[..., 0], x), key)
        return jax.tree.map(lambda leaf: leaf[..., None], changed)

    return change


def _loss(kind: Any, outputs: Any, targets: Any) -> Array:
    """The mean loss of some networks."""
    if kind == "mse":
        return jnp.mean((outputs - targets) ** 2)
    if kind == "bce":
        return jnp.mean(optax.sigmoid_binary_cross_entropy(outputs, targets))
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(outputs, targets))


def _pick(models: Any, index: int) -> Any:
    return jax.tree.map(lambda x: x[index], models)


def _in_units(part: _Part, fitted: Fitted) -> _Part:
    """Examples with standardized targets."""
    targets = part.examples.targets - np.asarray(fitted.out_shift)
    targets = targets / np.asarray(fitted.out_scale)
    return part._replace(examples=part.examples._replace(targets=targets))


@jax.jit
def _choose(better: Array, new: Any, old: Any) -> Any:
    """For each model, one of two."""
    return jax.tree.map(
        lambda a, b: jnp.where(better.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, old
    )
