"""One experiment: train predictors on a zoo, test each once, write down everything."""

import dataclasses
import json
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._devices import is_first
from ..._persistence import write_whole
from ...models import Fit, fit, save_model
from ...models._fit import Augment
from ...spec import SpecError
from ...spec._signs import check_names
from ...zoo import MixedZoo, Zoo
from ...zoo._mixed import MixedSplit
from ...zoo._zoo import Split
from .._folder import claim
from ..tasks._task import Runnable
from ..zoos._published import known_about
from ._apply import MODELS
from ._evaluate import evaluate, evaluate_held_out, largest_gap, settings_predictions
from ._examples import (
    check_score,
    classes_of,
    load_each,
    load_examples,
    loss_of,
    num_classes,
    parts_of,
)
from ._methods import (
    METHODS,
    PredictError,
    Training,
    defaults_of,
    make_optimizer,
    problem_of,
)
from ._report import RESULT, Report, read_report

CHECKPOINT = "checkpoint of a predictor training"
_JOB = ("method", "score", "training", "seeds", "include_diverged", "zoo")


def train(
    zoo: Zoo | MixedZoo,
    method: str,
    out: str | os.PathLike,
    *,
    score: str | None = None,
    training: Training | None = None,
    seeds: int = 5,
    seed: int = 0,
    sizes: tuple[int, ...] | None = None,
    network: Runnable | None = None,
    include_diverged: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    show_progress: bool = True,
) -> Report:
    """Train predictors of one method, and test each of them once.

    The folder `out` gets the predictors and `result.json`. If training stops at any moment,
    `resume=True` continues after the last complete epoch, to the same result. Batches are
    sharded across all devices of all processes that `jax.distributed` knows.

    On a mixed zoo, predictors are trained and tested on networks of the architectures that are not
    held out, then also tested on the networks of those that are.

    Args:
        zoo: the networks whose scores to predict.
        method: one of `METHODS`; for a mixed zoo, one that makes predictors for any network.
        out: the folder for results.
        score: which of the zoo's scores, by default the first; it is fitted with binary
            cross-entropy if it is from 0 to 1, else with squared errors. Or a setting that is a
            class: `label`, which is the default where there is one, or any setting of words.
        training: the training settings, by default the method's.
        seeds: how many predictors to train together.
        seed: the first predictor's seed.
        sizes: how many networks for training, validation and test; by default 8:1:1.
        network: how to run the networks, for methods that probe them; recipes and published zoos
            of implicit networks know that by themselves.
        include_diverged: also use networks whose weights are not finite, with zeros in place.
        resume: continue an earlier run with the same arguments, if there is one; if it has
            finished, return its result.
        overwrite: delete the results of an earlier run in `out`.
        show_progress: show the rate and the time left on standard error.

    Raises:
        PredictError: if the method or the score is unknown, there are results already, or the
            run to be resumed had other arguments.
        ZooError: if the zoo has too few networks, or is damaged.
    """
    mixed = isinstance(zoo, MixedZoo)
    usual = defaults_of(method, mixed)  # refuses unknown methods
    training = training or usual
    if mixed and METHODS[method].make_tied is None:
        tied = [name for name, each in METHODS.items() if each.make_tied is not None]
        raise PredictError(
            f"{method!r} reads networks of one architecture, and the zoo has {len(zoo.zoos)}; "
            f"expected one of {tied}"
        )
    if network is not None and not METHODS[method].probes:
        raise PredictError(f"{method!r} does not run networks; leave out network=")
    if seeds < 1 or seed < 0:
        raise PredictError(f"seeds is {seeds} and seed {seed}; expected at least 1 and 0")
    score = check_score(zoo, score)
    training = dataclasses.replace(training, signs=_signs(zoo, training))
    started, folder = time.perf_counter(), Path(out)
    split = zoo.split(sizes, diverged=include_diverged)
    all_seeds = list(range(seed, seed + seeds))
    values = (method, score, dataclasses.asdict(training), all_seeds, include_diverged, zoo.origin)
    about: dict[str, Any] = dict(zip(_JOB, values, strict=True))
    about["network"] = network and network.about
    finished = read_report(folder)
    checkpoints = claim(
        folder,
        _job(about, [len(rows) for rows in split]),
        outputs=(RESULT, MODELS.format("*")),
        known=finished and _job(vars(finished), list(finished.split.values())),
        resume=resume,
        overwrite=overwrite,
        error=PredictError,
    )
    if resume and finished:
        return finished
    settings = settings_predictions(zoo, split.train, score)
    fitted = _fit(
        zoo,
        method,
        split,
        score,
        seeds=all_seeds,
        training=training,
        network=network,
        checkpoints=checkpoints,
        progress=METHODS[method].title if show_progress else False,
    )
    tested = evaluate(zoo, fitted.model, split.test, score, settings)
    classes = classes_of(zoo, score)
    valid = fitted.history["tau" if classes is None else "accuracy"]
    report = Report(
        **about,
        split={name: len(rows) for name, rows in split._asdict().items()},
        **dict(zip(("trained", "validated"), split[:2], strict=True)),
        **tested,
        **evaluate_held_out(zoo, fitted.model, split, score, settings, tested),
        valid_scores=valid,
        classes=classes,
        loss=fitted.model[0].loss,
        losses=fitted.history["loss"],
        invariance=largest_gap(zoo, fitted.model, split, seed),
        parameters=_count_parameters(fitted.model[0].model),
        seconds=time.perf_counter() - started,
    )
    if is_first():
        for number, model in zip(all_seeds, fitted.model, strict=True):
            save_model(folder / MODELS.format(number), model)
        write_whole(folder / RESULT, report.to_json())
    return report


def _job(about: Mapping[str, Any], split: Sequence[int]) -> dict[str, Any]:
    """What distinguishes this training from all others, as JSON holds it."""
    job = {"what": CHECKPOINT, **{name: about[name] for name in _JOB}, "split": list(split)}
    job |= {"network": about["network"]} if about["network"] else {}
    # Early versions did not write these.
    later = {"standardize": False, "augment": False, "signs": []}
    return json.loads(json.dumps(job | {"training": later | about["training"]}))


def _fit(
    zoo: Zoo | MixedZoo,
    method: str,
    split: Split | MixedSplit,
    score: str,
    *,
    seeds: Sequence[int],
    training: Training,
    network: Runnable | None,
    **options: Any,
) -> Fit:
    """Train as the paper does: every epoch, the one with the best τ or accuracy kept."""
    keys, make = [jax.random.key(number) for number in seeds], METHODS[method].make
    zoos = zoo.zoos if isinstance(zoo, MixedZoo) else {"": zoo}
    out_size = num_classes(zoo, score) or 1
    if isinstance(zoo, MixedZoo) or make is None:
        used = list(parts_of(zoo, split.train))
        learn, choose = (load_each(zoo, rows, used, score) for rows in split[:2])
        spaces = [zoos[name].space for name in used]
        make_tied = METHODS[method].make_tied
        assert make_tied is not None
        models = [make_tied(spaces, out_size, key) for key in keys]
        options |= {"spaces": spaces, "standardize": True}
        counts = [len(targets) for targets in learn[1]]
    else:
        learn, choose = (load_examples(zoo, rows, score) for rows in split[:2])
        problem = problem_of(zoo, method, num_classes(zoo, score), network)
        models = [make(problem, key) for key in keys]  # one problem: they share what they run
        options |= {"standardize": training.standardize}
        counts = [len(learn[1])]
    steps = sum(count // min(training.batch_size, count) for count in counts)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the model has")  # methods are what they are
        try:
            return fit(
                models,
                *learn,
                key=jnp.stack(keys),
                validation=choose,
                loss=loss_of(zoo, score),
                epochs=training.epochs,
                batch_size=training.batch_size,
                optimizer=make_optimizer(training, steps),
                signs=training.signs or (),
                augment=_augment(zoo) if training.augment else None,
                patience=None,
                keep="score",
                **options,
            )
        except ValueError as error:
            raise PredictError(str(error)) from error


def _signs(zoo: Zoo | MixedZoo, training: Training) -> tuple[str, ...]:
    """The permutations whose neurons' signs are chosen.

    Raises:
        PredictError: if they are not permutations of the zoo.
    """
    if training.signs is None:
        return () if (known := known_about(zoo)) is None else known.signs
    for space in [zoo.space] if isinstance(zoo, Zoo) else [x.space for x in zoo.zoos.values()]:
        try:
            check_names(training.signs, space.index_shapes)
        except SpecError as error:
            raise PredictError(f"signs: {error}") from error
    return training.signs


def _augment(zoo: Zoo | MixedZoo) -> Augment:
    """How the weights of a zoo may be changed."""
    known = known_about(zoo)
    change = None if known is None else getattr(known.task, "augment", None)
    if change is None:
        raise PredictError(
            "augment=True needs a zoo of implicit networks, of kind inr or imported with a "
            f"layout; this one is {zoo.kind}"
        )
    return change


def _count_parameters(model: Any) -> int:
    return sum(x.size for x in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))
