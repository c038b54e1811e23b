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
from ...models._scores import kendall_tau, r_squared
from ...spec import WeightSpace
from ...zoo import Zoo, ZooError
from ...zoo._zoo import Split
from .._folder import claim, provenance
from .._scores import jackknife_error, leave_one_out_tau, standard_error, summary, too_few
from ._methods import METHODS, PredictError, Training, invariance_gap, make_optimizer

MODELS, RESULT = "model-{}.safetensors", "result.json"
CHECKPOINT = "checkpoint of a predictor training"
_JOB = ("method", "score", "training", "seeds", "include_diverged", "zoo")
_ARRAYS = dict.fromkeys(("tau", "r2", "valid_tau", "losses", "predicted", "true"), float)
_ARRAYS |= dict.fromkeys(("trained", "validated", "tested"), int)


@dataclasses.dataclass(frozen=True)
class Report:
    """What an experiment found; arrays have a row or an entry for each seed.

    `cap` is the test–retest ceiling: τ between two measurements of the test networks, None if
    there is only one. `settings` is the τ of a model that sees only the settings each network was
    trained with, None if the zoo has no settings. `invariance` is the largest change of a
    prediction when hidden neurons are reordered. `trained`, `validated` and `tested` are rows of
    the zoo; early versions recorded only the last. `score` is the one that was predicted.
    """

    method: str
    zoo: dict[str, Any]
    training: dict[str, Any]
    split: dict[str, int]
    include_diverged: bool
    seeds: list[int]
    tau: Float[np.ndarray, " seeds"]
    r2: Float[np.ndarray, " seeds"]
    cap: float | None
    settings: float | None
    valid_tau: Float[np.ndarray, "epochs seeds"]
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

    @property
    def title(self) -> str:
        """The method's name in tables."""
        return METHODS[self.method].title

    @property
    def tau_error(self) -> float:
        """The standard error of the mean τ over the choice of test networks (jackknife)."""
        return jackknife_error(leave_one_out_tau(self.predicted, self.true))

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
        record |= {
            "tau_mean": float(self.tau.mean()),
            "tau_standard_error": standard_error(self.tau),
            "tau_error_over_networks": self.tau_error,
            "best_valid_tau": np.nanmax(self.valid_tau, axis=0),
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
            record = {"trained": [], "validated": [], "score": "success", **json.loads(text)}
            fields: dict[str, Any] = {f.name: record[f.name] for f in dataclasses.fields(cls)}
            fields |= {name: np.asarray(fields[name], dtype) for name, dtype in _ARRAYS.items()}
            return cls(**fields)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise PredictError(f"not the result of an experiment ({error!r})") from error

    def __str__(self) -> str:
        error = self.tau_error
        few = too_few(len(self.true), error)
        lines = (
            f"{self.title}: τ {summary(self.tau, 4)}, R² {summary(self.r2, 4)} on "
            f"{len(self.true):,} test networks ({len(self.seeds)} seeds)",
            self.baselines,
            f"standard error of τ over test networks: {error:.4f}{few and f'; {few}'}",
        )
        return "\n".join(filter(None, lines))


Examples = tuple[PyTree, Float[np.ndarray, " networks"]]


def load_examples(zoo: Zoo, rows: Int[np.ndarray, " rows"], score: str = "success") -> Examples:
    """Weights, zero where they are not finite, and scores by the first measurement."""
    weights = zoo.weights(rows)
    if zoo.diverged[rows].any():
        weights = jax.tree.map(lambda x: np.nan_to_num(x, posinf=0.0, neginf=0.0), weights)
    return weights, zoo.scores[score][rows, 0].astype(np.float32)


def train(
    zoo: Zoo,
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

    Args:
        zoo: the networks whose scores to predict.
        method: one of `METHODS`.
        out: the folder for results.
        score: which of the zoo's scores, by default the first; it is fitted with binary
            cross-entropy if it is from 0 to 1, else with squared errors.
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
    if method not in METHODS:
        raise PredictError(f"unknown method {method!r}; expected one of {list(METHODS)}")
    if seeds < 1 or seed < 0:
        raise PredictError(f"seeds is {seeds} and seed {seed}; expected at least 1 and 0")
    score = _check_score(zoo, score)
    started, folder = time.perf_counter(), Path(out)
    training = training or Training(**METHODS[method].defaults)
    split = zoo.split(sizes, diverged=include_diverged)
    all_seeds = list(range(seed, seed + seeds))
    values = (method, score, dataclasses.asdict(training), all_seeds, include_diverged, zoo.origin)
    about: dict[str, Any] = dict(zip(_JOB, values, strict=True))
    finished = _read(folder)
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
    settings = settings_tau(zoo, split, score)
    learn, choose, test = (load_examples(zoo, rows, score) for rows in split)
    fitted = _fit(
        [METHODS[method].make(zoo.space, jax.random.key(number)) for number in all_seeds],
        learn,
        key=jnp.stack([jax.random.key(number) for number in all_seeds]),
        validation=choose,
        loss=_loss(zoo, score),
        training=training,
        checkpoints=checkpoints,
        progress=METHODS[method].title if show_progress else False,
    )
    report = Report(
        **about,
        split={name: len(rows) for name, rows in split._asdict().items()},
        **dict(zip(("trained", "validated", "tested"), split, strict=True)),
        cap=_ceiling(zoo.scores[score][split.test]),
        settings=settings,
        **_tested(zoo.space, test, fitted, seed),
        seconds=time.perf_counter() - started,
    )
    if is_first():
        for i, number in enumerate(all_seeds):
            save_model(folder / MODELS.format(number), fitted.model[i])
        write_whole(folder / RESULT, report.to_json())
    return report


def _check_score(zoo: Zoo, score: str | None) -> str:
    """The score to predict."""
    score = next(iter(zoo.scores)) if score is None else score
    if score not in zoo.scores:
        raise PredictError(f"the zoo has no score {score!r}; expected one of {list(zoo.scores)}")
    return score


def _loss(zoo: Zoo, score: str) -> Literal["bce", "mse"]:
    """Cross-entropy for scores from 0 to 1, squared errors for others."""
    values = zoo.scores[score][zoo.trained, 0]
    return "bce" if np.all((values >= 0) & (values <= 1)) else "mse"


def _fit(models: list[Any], learn: Examples, *, training: Training, **options: Any) -> Fit:
    """Train as the paper does: no standardization, every epoch, the one with the best τ kept."""
    size = min(training.batch_size, len(learn[1]))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the model has")  # methods are what they are
        try:
            return fit(
                models,
                *learn,
                epochs=training.epochs,
                batch_size=size,
                optimizer=make_optimizer(training, len(learn[1]) // size),
                standardize=False,
                patience=None,
                keep="score",
                **options,
            )
        except ValueError as error:
            raise PredictError(str(error)) from error


def _ceiling(scores: Float[np.ndarray, "test repeats"]) -> float | None:
    """Kendall's τ between two measurements, if there are two."""
    return kendall_tau(scores[:, 0], scores[:, 1]) if scores.shape[1] > 1 else None


def _job(about: Mapping[str, Any], split: Sequence[int]) -> dict[str, Any]:
    """What distinguishes this training from all others, as JSON holds it."""
    job = {"what": CHECKPOINT, **{name: about[name] for name in _JOB}, "split": list(split)}
    return json.loads(json.dumps(job))


def _read(folder: Path) -> Report | None:
    """The result in a folder, if there is one that can be read."""
    try:
        return Report.from_json((folder / RESULT).read_text())
    except (OSError, ValueError):
        return None


def _tested(space: WeightSpace, test: Examples, fitted: Fit, seed: int) -> dict[str, Any]:
    """What a report says about predictors after their one test."""
    weights, true = test[0], test[1].astype(float)
    predicted = np.stack([model.predict(weights) for model in fitted.model])
    some = jax.tree.map(lambda x: x[:20], weights)
    params = eqx.filter(fitted.model[0].model, eqx.is_inexact_array)
    return {
        "tau": np.array([kendall_tau(row, true) for row in predicted]),
        "r2": np.array([r_squared(row, true) for row in predicted]),
        "valid_tau": fitted.history["tau"],
        "losses": fitted.history["loss"],
        "predicted": predicted,
        "true": true,
        "invariance": max(invariance_gap(x, space, some, seed=seed) for x in fitted.model),
        "parameters": sum(x.size for x in jax.tree.leaves(params)),
    }


def settings_tau(zoo: Zoo, split: Split, score: str = "success") -> float | None:
    """Test τ of boosted trees that see the settings each network was trained with, no weights.

    A predictor that reads weights and does no better may have learned to recognize the learning
    rate, and nothing that the networks themselves do. None if the zoo has no settings.

    Raises:
        PredictError: if scikit-learn is missing.
    """
    if not zoo.settings:
        return None
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        raise PredictError(
            "scikit-learn is missing; run: pip install 'universal-neural-functionals[lab]'"
        ) from error
    settings = np.stack([_as_numbers(x) for x in zoo.settings.values()], axis=1)
    true = zoo.scores[score][:, 0].astype(float)
    trees = HistGradientBoostingRegressor(random_state=0)
    with threadpool_limits(1):  # more threads are slower, and much slower on a busy machine
        predicted = trees.fit(settings[split.train], true[split.train]).predict(settings)
    return kendall_tau(predicted[split.test], true[split.test])


def _as_numbers(setting: np.ndarray) -> Float[np.ndarray, " networks"]:
    """A setting as trees read it: words as their positions in the alphabet."""
    words = setting.dtype.kind == "U"
    return np.asarray(np.unique(setting, return_inverse=True)[1] if words else setting, float)


class Predictions(NamedTuple):
    """What `apply` predicts for the finished networks of a zoo."""

    rows: Int[np.ndarray, " networks"]
    predicted: Float[np.ndarray, " networks"]
    measured: Float[np.ndarray, " networks"]
    split: np.ndarray


def apply(checkpoint: str | os.PathLike, zoo: Zoo) -> Predictions:
    """Predict the score of every finished network of a zoo.

    Args:
        checkpoint: a predictor's file, or the folder of an experiment, whose predictors'
            predictions are averaged.
        zoo: the networks whose weights to read.

    Returns:
        `rows`, the networks' rows in the zoo; `predicted`, their predicted scores; `measured`,
        the same score by the zoo's first measurement, NaN if the zoo does not have it; and
        `split`: "train", "valid" or "test" for networks that the predictors were trained on,
        chosen by or tested on, "" for all others, and where that is not on record.

    Raises:
        PredictError: if there is no predictor, or it is damaged or reads other weights.
        ZooError: if the zoo has no finished networks.
    """
    path = Path(checkpoint)
    files = sorted(path.glob(MODELS.format("*"))) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise PredictError(f"{path}: no predictor here; unf.lab.predict.train makes them")
    rows = zoo.trained
    if not len(rows):
        raise ZooError(f"{zoo}: no finished networks yet")
    weights, predictions = zoo.weights(rows), []
    for file in files:
        try:
            model: Any = load_model(file)
        except ValueError as error:
            raise PredictError(str(error)) from error
        if not isinstance(model, Fitted):  # written by an early version
            model = Fitted(model, loss="bce")
        _check_fits(model, zoo.space, file)
        predictions.append(model.predict(weights))
    names = np.full(zoo.models, "", "<U5")
    report = _read(files[0].parent)
    if report is not None and report.zoo == zoo.origin:
        used = (report.trained, report.validated, report.tested)
        for name, part in zip(Split._fields, used, strict=True):
            names[np.asarray(part, int)] = name
    score = next(iter(zoo.scores)) if report is None else report.score
    measured = zoo.scores.get(score, np.full((zoo.models, 1), np.nan))[rows, 0]
    return Predictions(rows, np.mean(predictions, axis=0), measured, names[rows])


def _check_fits(model: Fitted, space: WeightSpace, file: Path) -> None:
    """Compare tensors and shapes; axes may differ, since a predictor may relax fixed ones."""
    ours, theirs = ({leaf.path: leaf.shape for leaf in x.leaves} for x in (space, model.space))
    for path in dict.fromkeys([*theirs, *ours]):
        if ours.get(path) != theirs.get(path):
            raise PredictError(
                f"{file}: the predictor reads other weights: {path} has shape "
                f"{theirs.get(path, 'none')} there and {ours.get(path, 'none')} in the zoo"
            )
