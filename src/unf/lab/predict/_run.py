"""One experiment: train predictors on a zoo, test each once, write down everything."""

import dataclasses
import json
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PyTree

from ..._devices import is_first
from ..._persistence import write_whole
from ...models import Fit, Fitted, fit, load_model, save_model
from ...models._fit import Augment
from ...models._fitted import predict_together
from ...models._scores import kendall_tau, r_squared
from ...spec import SpecError
from ...spec._signs import check_names
from ...zoo import MixedZoo, Status, Zoo, ZooError
from ...zoo._mixed import MixedSplit, Part
from ...zoo._zoo import ABOUT_IMAGES, Split
from .._folder import claim, provenance
from .._scores import jackknife_error, leave_one_out_tau, standard_error, summary, too_few
from ..zoos._recipe import RECIPES, recipe_of
from ._methods import (
    METHODS,
    PredictError,
    Problem,
    Training,
    defaults_of,
    invariance_gap,
    make_optimizer,
    networks_of,
)

MODELS, RESULT = "model-{}.safetensors", "result.json"
PROBED = "model-{}.eqx"
"""Predictors that run networks; only together with a zoo can they be read."""
CHECKPOINT = "checkpoint of a predictor training"
_JOB = ("method", "score", "training", "seeds", "include_diverged", "zoo")
_ARRAYS: dict[str, type] = dict.fromkeys(
    ("tau", "r2", "accuracy", "valid_scores", "losses", "predicted", "true"), float
)
_ARRAYS |= dict.fromkeys(("trained", "validated", "tested"), int)
_LATER: dict[str, Any] = {"trained": [], "validated": [], "score": "success"}
_LATER |= {"held_out": None, "architectures": None, "accuracy": None}
_LATER |= {"classes": None, "loss": "bce"}
"""Fields that early versions did not write."""
_PERMUTED = 3
"""Architectures of each part of a mixed zoo whose networks are permuted in the test."""


@dataclasses.dataclass(frozen=True)
class Report:
    """What an experiment found; arrays have a row or an entry for each seed.

    If a class was predicted there are its `accuracy` and the names of the `classes`, else `tau` and
    `r2`; `valid_scores` are those of the validation networks after each epoch, accuracies or τ.
    `loss` is what predictors were fitted with.

    `cap` is the test–retest ceiling: τ between two measurements of the test networks, None if
    there is only one. `settings` is the τ or accuracy of a model that sees only the settings each
    network was trained with, None if the zoo has no settings. `invariance` is the largest change
    of a prediction when hidden neurons are reordered. `trained`, `validated` and `tested` are rows
    of the zoo; early versions recorded only the last. `score` is what was predicted.

    A mixed zoo also has `held_out`, with `tau`, `r2`, `cap`, `settings`, `predicted`, `true` and
    `tested` of the networks of held-out architectures, None if there are none; and
    `architectures`, with the number of tested `networks` and the `tau` of each seed for each
    architecture, and whether it is `held_out`.
    """

    method: str
    zoo: dict[str, Any]
    training: dict[str, Any]
    split: dict[str, int]
    include_diverged: bool
    seeds: list[int]
    tau: Any
    r2: Any
    cap: float | None
    settings: float | None
    valid_scores: Float[np.ndarray, "epochs seeds"]
    losses: Float[np.ndarray, "epochs seeds"]
    predicted: Float[np.ndarray, "seeds test"]
    true: Float[np.ndarray, " test"]
    tested: Int[np.ndarray, " test"]
    invariance: float
    parameters: int
    seconds: float
    trained: Int[np.ndarray, " train"] | tuple[()] = ()
    validated: Int[np.ndarray, " valid"] | tuple[()] = ()
    score: str = "success"
    held_out: dict[str, Any] | None = None
    architectures: dict[str, dict[str, Any]] | None = None
    accuracy: Float[np.ndarray, " seeds"] | None = None
    classes: list[str] | None = None
    loss: str = "bce"

    @property
    def main(self) -> Float[np.ndarray, " seeds"]:
        """The accuracies if there are any, else τ."""
        return self.tau if self.accuracy is None else self.accuracy

    @property
    def measure(self) -> str:
        """What `main` is, in a word."""
        return "τ" if self.accuracy is None else "accuracy"

    @property
    def title(self) -> str:
        """The method's name in tables."""
        return METHODS[self.method].title

    @property
    def on_held_out(self) -> "Report":
        """The report with the networks of held-out architectures as its test networks."""
        if self.held_out is None:
            raise PredictError("no architectures were held out of this zoo")
        return dataclasses.replace(self, **self.held_out, held_out=None)

    @property
    def error_over_networks(self) -> float:
        """The standard error of the mean of `main` over the choice of test networks."""
        if self.accuracy is None:
            return jackknife_error(leave_one_out_tau(self.predicted, self.true))
        return standard_error(np.mean(self.predicted == self.true, axis=0))

    @property
    def baselines(self) -> str:
        """The test–retest ceiling and the settings' τ in words, as far as there are any."""
        ceiling = f"test–retest ceiling of τ {self.cap:.4f}" if self.cap is not None else ""
        alone = "a model that sees only the training settings reaches "
        settings = f"{alone}{self.settings:.4f}" if self.settings is not None else ""
        return "; ".join(filter(None, (ceiling, settings)))

    def to_json(self) -> str:
        """Everything, with versions, machine and date."""
        record = dataclasses.asdict(self)
        name = "tau" if self.accuracy is None else "accuracy"
        record |= {
            f"{name}_mean": float(self.main.mean()),
            f"{name}_standard_error": standard_error(self.main),
            f"{name}_error_over_networks": self.error_over_networks,
            "best_valid_score": np.nanmax(self.valid_scores, axis=0),
            **provenance(),
        }
        text = json.dumps(record, default=np.ndarray.tolist)
        record = json.loads(text, parse_constant=lambda name: None)  # NaN is not JSON
        return "{\n" + ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in record.items()) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """Read what `to_json` wrote, also in an earlier version.

        Raises:
            PredictError: if the text is something else.
        """
        try:
            record = {**_LATER, **json.loads(text)}
            if "valid_tau" in record:  # of an early version
                record["valid_scores"] = record["valid_tau"]
            fields: dict[str, Any] = {f.name: record[f.name] for f in dataclasses.fields(cls)}
            fields |= {
                name: np.asarray(fields[name], dtype)
                for name, dtype in _ARRAYS.items()
                if fields[name] is not None
            }
            if fields["held_out"] is not None:
                held = dict(fields["held_out"])
                names = [name for name in _ARRAYS if name in held]
                held |= {name: np.asarray(held[name], _ARRAYS[name]) for name in names}
                fields["held_out"] = held
            return cls(**fields)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise PredictError(f"not the result of an experiment ({error!r})") from error

    def __str__(self) -> str:
        error, fits = self.error_over_networks, ""
        few = too_few(len(self.true), error, self.measure)
        if self.accuracy is None:
            fits = f", R² {summary(self.r2, 4)}"
        lines = (
            f"{self.title}: {self.measure} {summary(self.main, 4)}{fits} on "
            f"{len(self.true):,} test networks ({len(self.seeds)} seeds)",
            self.baselines,
            f"standard error of {self.measure} over test networks: {error:.4f}{few and f'; {few}'}",
            self._about_held_out(),
        )
        return "\n".join(filter(None, lines))

    def _about_held_out(self) -> str:
        held = self.held_out
        if held is None:
            return ""
        alone = held["settings"]
        trees = "" if alone is None else f"; the training settings alone reach {alone:.4f}"
        return (
            f"held-out architectures: τ {summary(held['tau'], 4)}, R² {summary(held['r2'], 4)} on "
            f"{len(held['true']):,} networks{trees}"
        )


Examples = tuple[PyTree, np.ndarray]


def load_examples(zoo: Zoo, rows: Int[np.ndarray, " rows"], score: str = "success") -> Examples:
    """Weights, zero where they are not finite, and scores by the first measurement, or classes."""
    targets = _targets(zoo, score)[rows]
    classes = np.issubdtype(targets.dtype, np.integer)
    return _finite_weights(zoo, rows), targets.astype(np.int32 if classes else np.float32)


def _targets(zoo: Zoo | MixedZoo, score: str) -> np.ndarray:
    """What is to be predicted for every network: a number, or the number of its class."""
    if score in zoo.scores:
        return zoo.scores[score][:, 0].astype(float)
    values = zoo.settings[score]
    if values.dtype.kind == "U":
        return np.unique(values, return_inverse=True)[1].astype(int)
    finished = zoo.status != Status.MISSING
    wrong = finished & ~((values >= 0) & (values == np.floor(values)))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise PredictError(
            f"{score} of network {row} is {values[row]}; expected the number of a class, from 0 on"
        )
    return np.where(finished, values, 0).astype(int)


def _classes(zoo: Zoo | MixedZoo, score: str) -> list[str] | None:
    """The names of the classes, if classes are to be predicted."""
    targets = _targets(zoo, score)
    if not np.issubdtype(targets.dtype, np.integer):
        return None
    if zoo.settings[score].dtype.kind == "U":
        return np.unique(zoo.settings[score]).tolist()
    return [str(number) for number in range(int(targets.max()) + 1)]


def _num_classes(zoo: Zoo | MixedZoo, score: str) -> int | None:
    """How many classes there are, if classes are to be predicted."""
    names = _classes(zoo, score)
    return None if names is None else len(names)


def _finite_weights(zoo: Zoo, rows: Int[np.ndarray, " rows"]) -> PyTree:
    weights = zoo.weights(rows)
    if zoo.diverged[rows].any():
        weights = jax.tree.map(lambda x: np.nan_to_num(x, posinf=0.0, neginf=0.0), weights)
    return weights


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
    if seeds < 1 or seed < 0:
        raise PredictError(f"seeds is {seeds} and seed {seed}; expected at least 1 and 0")
    score = _check_score(zoo, score)
    training = dataclasses.replace(training, signs=_signs(zoo, training))
    started, folder = time.perf_counter(), Path(out)
    split = zoo.split(sizes, diverged=include_diverged)
    all_seeds = list(range(seed, seed + seeds))
    values = (method, score, dataclasses.asdict(training), all_seeds, include_diverged, zoo.origin)
    about: dict[str, Any] = dict(zip(_JOB, values, strict=True))
    finished = _read(folder)
    checkpoints = claim(
        folder,
        _job(about, [len(rows) for rows in split]),
        outputs=(RESULT, MODELS.format("*"), PROBED.format("*")),
        known=finished and _job(vars(finished), list(finished.split.values())),
        resume=resume,
        overwrite=overwrite,
        error=PredictError,
    )
    if resume and finished:
        return finished
    settings = _settings_predictions(zoo, split.train, score)
    fitted = _fit(
        zoo,
        method,
        split,
        score,
        seeds=all_seeds,
        training=training,
        checkpoints=checkpoints,
        progress=METHODS[method].title if show_progress else False,
    )
    tested = _test(zoo, fitted.model, split.test, score, settings)
    classes = _classes(zoo, score)
    valid = fitted.history["tau" if classes is None else "accuracy"]
    report = Report(
        **about,
        split={name: len(rows) for name, rows in split._asdict().items()},
        **dict(zip(("trained", "validated"), split[:2], strict=True)),
        **tested,
        **_test_held_out(zoo, fitted.model, split, score, settings, tested),
        valid_scores=valid,
        classes=classes,
        loss=fitted.model[0].loss,
        losses=fitted.history["loss"],
        invariance=_invariance(zoo, fitted.model, split, seed),
        parameters=_count_parameters(fitted.model[0].model),
        seconds=time.perf_counter() - started,
    )
    if is_first():
        for number, model in zip(all_seeds, fitted.model, strict=True):
            if METHODS[method].probes:
                eqx.tree_serialise_leaves(folder / PROBED.format(number), model)
            else:
                save_model(folder / MODELS.format(number), model)
        write_whole(folder / RESULT, report.to_json())
    return report


def _check_score(zoo: Zoo | MixedZoo, score: str | None) -> str:
    """The score or the class to predict."""
    settings = {} if isinstance(zoo, MixedZoo) else zoo.settings
    classes = [name for name, x in settings.items() if name == "label" or x.dtype.kind == "U"]
    if score is None:
        return "label" if "label" in classes else next(iter(zoo.scores))
    if score not in [*zoo.scores, *classes]:
        known = [*zoo.scores, *classes]
        raise PredictError(f"the zoo has no score {score!r}; expected one of {known}")
    return score


def _loss(zoo: Zoo | MixedZoo, score: str) -> Literal["bce", "mse", "cross-entropy"]:
    """Cross-entropy for classes and for scores from 0 to 1, squared errors for others."""
    if _num_classes(zoo, score) is not None:
        return "cross-entropy"
    values = zoo.scores[score][zoo.trained, 0]
    return "bce" if np.all((values >= 0) & (values <= 1)) else "mse"


def _fit(
    zoo: Zoo | MixedZoo,
    method: str,
    split: Split | MixedSplit,
    score: str,
    *,
    seeds: Sequence[int],
    training: Training,
    **options: Any,
) -> Fit:
    """Train as the paper does: every epoch, the one with the best τ or accuracy kept."""
    keys, make = [jax.random.key(number) for number in seeds], METHODS[method].make
    zoos = zoo.zoos if isinstance(zoo, MixedZoo) else {"": zoo}
    out_size = _num_classes(zoo, score) or 1
    if isinstance(zoo, MixedZoo) or make is None:
        used = list(_parts(zoo, split.train))
        learn, choose = (_load_each(zoo, rows, used, score) for rows in split[:2])
        spaces = [zoos[name].space for name in used]
        make_tied = METHODS[method].make_tied
        assert make_tied is not None
        models = [make_tied(spaces, out_size, key) for key in keys]
        options |= {"spaces": spaces, "standardize": True}
        counts = [len(targets) for targets in learn[1]]
    else:
        learn, choose = (load_examples(zoo, rows, score) for rows in split[:2])
        problem = _problem(zoo, method, _num_classes(zoo, score))  # one: models share what they run
        models = [make(problem, key) for key in keys]
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
                loss=_loss(zoo, score),
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


def _problem(zoo: Zoo, method: str, classes: int | None) -> Problem:
    """What a predictor of one architecture is made for.

    Raises:
        PredictError: if the method runs networks, and those of the zoo cannot be run.
    """
    network = None
    if METHODS[method].probes:  # others need neither the task nor its data
        task = recipe_of(zoo).task if zoo.kind in RECIPES else None
        network = getattr(task, "network", None)
        if network is None:
            raise PredictError(
                f"{method!r} runs the networks, and those of this zoo ({zoo.kind}) cannot be run; "
                "expected a zoo of tiny-rnn, varied-rnn, small-cnn or inr, or another method"
            )
    return Problem(zoo.space, classes or 1, network)


def _signs(zoo: Zoo | MixedZoo, training: Training) -> tuple[str, ...]:
    """The permutations whose neurons' signs are chosen.

    Raises:
        PredictError: if they are not permutations of the zoo.
    """
    if training.signs is None:
        return RECIPES[zoo.kind].signs if isinstance(zoo, Zoo) and zoo.kind in RECIPES else ()
    for space in [zoo.space] if isinstance(zoo, Zoo) else [x.space for x in zoo.zoos.values()]:
        try:
            check_names(training.signs, space.index_shapes)
        except SpecError as error:
            raise PredictError(f"signs: {error}") from error
    return training.signs


def _augment(zoo: Zoo | MixedZoo) -> Augment:
    """How the weights of a zoo may be changed."""
    change = None
    if isinstance(zoo, Zoo) and zoo.kind in RECIPES:
        change = getattr(recipe_of(zoo).task, "augment", None)
    if change is None:
        raise PredictError(f"augment=True needs a zoo of kind inr; this one is {zoo.kind}")
    return change


def _parts(zoo: Zoo | MixedZoo, rows: Int[np.ndarray, " rows"]) -> dict[str, Part]:
    """Some networks by architecture."""
    if isinstance(zoo, MixedZoo):
        return zoo.parts(rows)
    return {"": Part(zoo, rows, np.arange(len(rows)))}


def _load_each(
    zoo: Zoo | MixedZoo, rows: Int[np.ndarray, " rows"], names: Sequence[str], score: str
) -> tuple[list[PyTree], list[np.ndarray]]:
    """Weights and scores of some networks of each of these architectures, which may be none."""
    parts, none = _parts(zoo, rows), np.zeros(0, int)
    zoos = zoo.zoos if isinstance(zoo, MixedZoo) else {"": zoo}
    found = [
        load_examples(zoos[name], parts[name].rows if name in parts else none, score)
        for name in names
    ]
    return [weights for weights, _ in found], [targets for _, targets in found]


def _ceiling(scores: Float[np.ndarray, "test repeats"]) -> float | None:
    """Kendall's τ between two measurements, if there are two."""
    return kendall_tau(scores[:, 0], scores[:, 1]) if scores.shape[1] > 1 else None


def _job(about: Mapping[str, Any], split: Sequence[int]) -> dict[str, Any]:
    """What distinguishes this training from all others, as JSON holds it."""
    job = {"what": CHECKPOINT, **{name: about[name] for name in _JOB}, "split": list(split)}
    # Early versions did not write these.
    later = {"standardize": False, "augment": False, "signs": []}
    return json.loads(json.dumps(job | {"training": later | about["training"]}))


def _read(folder: Path) -> Report | None:
    """The result in a folder, if there is one that can be read."""
    try:
        return Report.from_json((folder / RESULT).read_text())
    except (OSError, ValueError):
        return None


def _predict(
    zoo: Zoo | MixedZoo, models: Sequence[Fitted], rows: Int[np.ndarray, " rows"]
) -> np.ndarray:
    """What each model predicts for some networks: numbers, or probabilities of classes."""
    parts = list(_parts(zoo, rows).values())
    weights = [_finite_weights(part.zoo, part.rows) for part in parts]
    groups = networks_of(models[0], weights, [part.zoo.space for part in parts])
    found = predict_together(models, groups)
    predicted = np.empty((len(models), len(rows), *found[0].shape[2:]))
    for part, each in zip(parts, found, strict=True):
        predicted[:, part.places] = each
    return predicted


def _test(
    zoo: Zoo | MixedZoo,
    models: Sequence[Fitted],
    rows: Int[np.ndarray, " rows"],
    score: str,
    settings: Float[np.ndarray, " models"] | None,
) -> dict[str, Any]:
    """What a report says about the one test on some networks."""
    predicted, true = _predict(zoo, models, rows), _targets(zoo, score)[rows]
    if _num_classes(zoo, score) is not None:
        chosen = predicted.argmax(axis=-1)
        return {
            "tau": None,
            "r2": None,
            "accuracy": np.mean(chosen == true, axis=1),
            "cap": None,
            "settings": None if settings is None else float(np.mean(settings[rows] == true)),
            "predicted": chosen.astype(float),
            "true": true.astype(float),
            "tested": rows,
        }
    return {
        "tau": np.array([kendall_tau(row, true) for row in predicted]),
        "r2": np.array([r_squared(row, true) for row in predicted]),
        "cap": _ceiling(zoo.scores[score][rows]),
        "settings": None if settings is None else kendall_tau(settings[rows], true),
        "predicted": predicted,
        "true": true,
        "tested": rows,
    }


def _test_held_out(
    zoo: Zoo | MixedZoo,
    models: Sequence[Fitted],
    split: Split | MixedSplit,
    score: str,
    settings: Float[np.ndarray, " models"] | None,
    tested: Mapping[str, Any],
) -> dict[str, Any]:
    """The test on held-out architectures, and τ within each architecture of a mixed zoo."""
    if not isinstance(zoo, MixedZoo) or not isinstance(split, MixedSplit):
        return {}
    held_out, results = None, [tested]
    if len(split.held_out):
        held_out = _test(zoo, models, split.held_out, score, settings)
        results.append(held_out)
    architectures = {}
    for result in results:
        for name, part in zoo.parts(result["tested"]).items():
            true = result["true"][part.places]
            architectures[name] = {
                "held_out": name in zoo.held_out,
                "networks": len(true),
                "tau": [kendall_tau(row[part.places], true) for row in result["predicted"]],
            }
    return {"held_out": held_out, "architectures": architectures}


def _invariance(
    zoo: Zoo | MixedZoo, models: Sequence[Fitted], split: Split | MixedSplit, seed: int
) -> float:
    """How much predictions change when test networks are permuted, of some architectures."""
    gaps = []
    for rows in split[2:]:
        for part in list(_parts(zoo, rows).values())[:_PERMUTED]:
            weights = _finite_weights(part.zoo, part.rows[:20])
            gaps.append(invariance_gap(models, part.zoo.space, weights, seed=seed))
    return max(gaps)


def _count_parameters(model: Any) -> int:
    return sum(x.size for x in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))


def settings_tau(zoo: Zoo | MixedZoo, split: Split, score: str = "success") -> float | None:
    """Test τ of boosted trees that see the settings each network was trained with, no weights.

    A predictor that reads weights and does no better may have learned to recognize the learning
    rate, and nothing that the networks themselves do. None if the zoo has no settings.

    Raises:
        PredictError: if scikit-learn is missing.
    """
    predicted = _settings_predictions(zoo, split.train, score)
    if predicted is None:
        return None
    return kendall_tau(predicted[split.test], zoo.scores[score][split.test, 0].astype(float))


def _settings_predictions(
    zoo: Zoo | MixedZoo, train: Int[np.ndarray, " train"], score: str
) -> Float[np.ndarray, " models"] | None:
    """What boosted trees predict for every network from its settings alone."""
    told = [x for name, x in zoo.settings.items() if name not in {*ABOUT_IMAGES, score}]
    told = [x for x in told if len(np.unique(x)) > 1]
    if not told:
        return None
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        raise PredictError(
            "scikit-learn is missing; run: pip install 'universal-neural-functionals[lab]'"
        ) from error
    settings, true = np.stack([_as_numbers(x) for x in told], axis=1), _targets(zoo, score)
    classes = _num_classes(zoo, score) is not None
    kind: Any = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    trees = kind(random_state=0)
    with threadpool_limits(1):  # more threads are slower, and much slower on a busy machine
        return trees.fit(settings[train], true[train]).predict(settings).astype(float)


def _as_numbers(setting: np.ndarray) -> Float[np.ndarray, " networks"]:
    """A setting as trees read it: words as their positions in the alphabet."""
    words = setting.dtype.kind == "U"
    return np.asarray(np.unique(setting, return_inverse=True)[1] if words else setting, float)


class Predictions(NamedTuple):
    """What `apply` predicts for the finished networks of a zoo."""

    rows: Int[np.ndarray, " networks"]
    predicted: np.ndarray
    measured: np.ndarray
    split: np.ndarray


def apply(checkpoint: str | os.PathLike, zoo: Zoo | MixedZoo) -> Predictions:
    """Predict the score of every finished network of a zoo.

    Args:
        checkpoint: a predictor's file, or the folder of an experiment, whose predictors'
            predictions are averaged.
        zoo: the networks whose weights to read.

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
        files = sorted(file for form in (MODELS, PROBED) for file in path.glob(form.format("*")))
    if not files or not files[0].is_file():
        raise PredictError(f"{path}: no predictor here; unf.lab.predict.train makes them")
    rows = zoo.trained
    if not len(rows):
        raise ZooError(f"{zoo}: no finished networks yet")
    models = []
    for file in files:
        try:
            model: Any = _load_probed(file, zoo) if file.suffix == ".eqx" else load_model(file)
        except ValueError as error:
            raise PredictError(str(error)) from error
        if not isinstance(model, Fitted):  # written by an early version
            model = Fitted(model, loss="bce")
        _check_fits(model, zoo, file)
        models.append(model)
    names = np.full(zoo.models, "", "<U5")
    report = _read(files[0].parent)
    if report is not None and report.zoo == zoo.origin:
        used = (report.trained, report.validated, report.tested)
        for name, part in zip(Split._fields, used, strict=True):
            names[np.asarray(part, int)] = name
        if report.held_out is not None:
            names[report.held_out["tested"]] = "test"
    predicted = np.mean([_predict(zoo, [model], rows)[0] for model in models], axis=0)
    if predicted.ndim > 1:
        known = report.classes if report is not None else None
        classes = np.array(known or [str(i) for i in range(predicted.shape[1])])
        measured = _class_names(zoo, report.score if report is not None else "label", rows)
        return Predictions(rows, classes[predicted.argmax(axis=-1)], measured, names[rows])
    score = next(iter(zoo.scores)) if report is None else report.score
    measured = zoo.scores.get(score, np.full((zoo.models, 1), np.nan))[rows, 0]
    return Predictions(rows, predicted, measured, names[rows])


def _class_names(zoo: Zoo | MixedZoo, score: str, rows: Int[np.ndarray, " rows"]) -> np.ndarray:
    """The names of networks' classes, empty where they are not known."""
    values = zoo.settings.get(score)
    if values is None:
        return np.full(len(rows), "")
    if values.dtype.kind == "U":
        return values[rows]
    return np.array(["" if np.isnan(x) else str(int(x)) for x in values[rows]])


def _load_probed(file: Path, zoo: Zoo | MixedZoo) -> Fitted:
    """A predictor that runs networks: the zoo says how."""
    report = _read(file.parent)
    if report is None or isinstance(zoo, MixedZoo):
        raise PredictError(
            f"{file}: it can be read only beside its {RESULT}, for a zoo like its own"
        )
    make, names = METHODS[report.method].make, report.classes
    assert make is not None
    problem = _problem(zoo, report.method, None if names is None else len(names))
    model = eqx.filter_eval_shape(make, problem, jax.random.key(0))
    number = jax.ShapeDtypeStruct((1,), jnp.float32)
    signs = tuple(report.training.get("signs") or ())
    constants: dict[str, Any] = {"loss": report.loss, "signs": signs}
    if report.training.get("standardize"):
        constants |= dict.fromkeys(("shift", "scale"), (number,) * len(zoo.space.leaves))
    if report.loss == "mse":
        constants |= {"out_shift": number, "out_scale": number}
    try:
        return eqx.tree_deserialise_leaves(file, Fitted(model, **constants))
    except (OSError, RuntimeError, ValueError, EOFError) as error:
        raise PredictError(f"{file}: damaged, or of another kind of network ({error})") from error


def _check_fits(model: Fitted, zoo: Zoo | MixedZoo, file: Path) -> None:
    """Compare tensors and shapes; axes may differ, since a predictor may relax fixed ones."""
    if model.space is None:
        return
    if isinstance(zoo, MixedZoo):
        raise PredictError(
            f"{file}: the predictor reads networks of one architecture, and the zoo has "
            f"{len(zoo.zoos)}; apply it to one of the zoos in {zoo.path}, or train one with the "
            "method 'tied'"
        )
    ours, theirs = ({leaf.path: leaf.shape for leaf in x.leaves} for x in (zoo.space, model.space))
    for path in dict.fromkeys([*theirs, *ours]):
        if ours.get(path) != theirs.get(path):
            raise PredictError(
                f"{file}: the predictor reads other weights: {path} has shape "
                f"{theirs.get(path, 'none')} there and {ours.get(path, 'none')} in the zoo"
            )
