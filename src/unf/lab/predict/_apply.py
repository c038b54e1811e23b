"""Predictors in files, and what they predict."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from ...models import Fitted, load_model
from ...models._fitted import predict_together
from ...spec import SpecError
from ...zoo import MixedZoo, Zoo, ZooError
from ...zoo._zoo import Split
from ..tasks._task import Runnable
from ._examples import finite_weights, parts_of
from ._methods import METHODS, PredictError, network_of, networks_of
from ._report import RESULT, read_report

MODELS = "model-{}.safetensors"


class Predictions(NamedTuple):
    """What `apply` predicts for the finished networks of a zoo."""

    rows: Int[np.ndarray, " networks"]
    predicted: np.ndarray
    measured: np.ndarray
    split: np.ndarray


def apply(
    checkpoint: str | os.PathLike, zoo: Zoo | MixedZoo, *, network: Runnable | None = None
) -> Predictions:
    """Predict the score of every finished network of a zoo.

    Args:
        checkpoint: a predictor's file, or the folder of an experiment, whose predictors'
            predictions are averaged.
        zoo: the networks whose weights to read.
        network: how to run the networks, as for `train`.

    Returns:
        `rows`, the networks' rows in the zoo; `predicted`, their predicted scores, or the names
        of classes; `measured`, the same score by the zoo's first measurement, NaN if the zoo does
        not have it, or the name of the class, empty if it is not known; and
        `split`: "train", "valid" or "test" for networks that the predictors were trained on,
        chosen by or tested on, "" for all others, and where that is not on record.

    Raises:
        PredictError: if there is no predictor, or it is damaged or reads other weights.
        ZooError: if the zoo has no finished networks.
    """
    path = Path(checkpoint)
    files = [path]
    if path.is_dir():
        files = sorted(path.glob(MODELS.format("*")))
    if not files or not files[0].is_file():
        raise PredictError(f"{path}: no predictor here; unf.lab.predict.train makes them")
    rows = zoo.trained
    if not len(rows):
        raise ZooError(f"{zoo}: no finished networks yet")
    report, models = read_report(files[0].parent), []
    probes = report is not None and METHODS[report.method].probes
    if report is not None and network is not None and not probes:
        raise PredictError(f"{report.method!r} does not run networks; leave out network=")
    if report is not None and isinstance(zoo, Zoo) and probes:
        network = network or network_of(zoo, report.method)
    fn = network and network.fn
    for file in files:
        try:
            model: Any = load_model(file, fn=fn)
        except SpecError as error:
            beside = f"it runs networks, and only {RESULT} beside it says how; or pass network="
            raise PredictError(f"{file}: {beside if fn is None else error}") from error
        except ValueError as error:
            raise PredictError(str(error)) from error
        if not isinstance(model, Fitted):  # written by an early version
            model = Fitted(model, loss="bce")
        _check_fits(model, zoo, file)
        models.append(model)
    names = np.full(zoo.models, "", "<U5")
    if report is not None and report.zoo == zoo.origin:
        used = (report.trained, report.validated, report.tested)
        for name, part in zip(Split._fields, used, strict=True):
            names[np.asarray(part, int)] = name
        if report.held_out is not None:
            names[report.held_out["tested"]] = "test"
    predicted = np.mean([predict(zoo, [model], rows)[0] for model in models], axis=0)
    if predicted.ndim > 1:
        known = report.classes if report is not None else None
        classes = np.array(known or [str(i) for i in range(predicted.shape[1])])
        measured = _class_names(zoo, report.score if report is not None else "label", rows)
        return Predictions(rows, classes[predicted.argmax(axis=-1)], measured, names[rows])
    score = next(iter(zoo.scores)) if report is None else report.score
    measured = zoo.scores.get(score, np.full((zoo.models, 1), np.nan))[rows, 0]
    return Predictions(rows, predicted, measured, names[rows])


def predict(
    zoo: Zoo | MixedZoo, models: Sequence[Fitted], rows: Int[np.ndarray, " rows"]
) -> np.ndarray:
    """What each model predicts for some networks: numbers, or probabilities of classes."""
    parts = list(parts_of(zoo, rows).values())
    weights = [finite_weights(part.zoo, part.rows) for part in parts]
    groups = networks_of(models[0], weights, [part.zoo.space for part in parts])
    found = predict_together(models, groups)
    predicted = np.empty((len(models), len(rows), *found[0].shape[2:]))
    for part, each in zip(parts, found, strict=True):
        predicted[:, part.places] = each
    return predicted


def _class_names(zoo: Zoo | MixedZoo, score: str, rows: Int[np.ndarray, " rows"]) -> np.ndarray:
    """The names of networks' classes, empty where they are not known."""
    values = zoo.settings.get(score)
    if values is None:
        return np.full(len(rows), "")
    if values.dtype.kind == "U":
        return values[rows]
    return np.array(["" if np.isnan(x) else str(int(x)) for x in values[rows]])


def _check_fits(model: Fitted, zoo: Zoo | MixedZoo, file: Path) -> None:
    """Compare tensors and shapes; axes may differ, since a predictor may relax fixed ones."""
    if model.space is None:
        return
    if isinstance(zoo, MixedZoo):
        raise PredictError(
            f"{file}: the predictor reads networks of one architecture, and the zoo has "
            f"{len(zoo.zoos)}; apply it to one of them, or train one with the method 'tied'"
        )
    ours, theirs = ({leaf.path: leaf.shape for leaf in x.leaves} for x in (zoo.space, model.space))
    for path in dict.fromkeys([*theirs, *ours]):
        if ours.get(path) != theirs.get(path):
            raise PredictError(
                f"{file}: the predictor reads other weights: {path} has shape "
                f"{theirs.get(path, 'none')} there and {ours.get(path, 'none')} in the zoo"
            )
