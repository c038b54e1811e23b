"""One experiment: train predictors on a zoo, test them once, write down everything."""

import dataclasses
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray, PyTree

from ..._devices import UnevenError, enough_memory, is_first, to_host, wait_for_all
from ..._files import write_whole
from ...models import load_model, save_model
from ...spec import WeightSpace
from ...zoo import Zoo, ZooError
from .._checkpoint import CheckpointError, Checkpoints, difference
from .._progress import Progress, say
from .._provenance import provenance
from .._scores import kendall_tau, r_squared, standard_error, summary
from ._batches import Examples, Split, labels, load_examples, split_models, to_device
from ._fit import Fit, fit, predict
from ._methods import METHODS, PredictError, Predictor, Training
from ._settings import boosted_trees, settings_tau

MODELS, RESULT = "model-{}.safetensors", "result.json"
CHECKPOINT = "checkpoint of a predictor training"
_ARRAYS = dict.fromkeys(("tau", "r2", "valid_tau", "losses", "predicted", "true"), float)
_ARRAYS |= {"tested": int}


@dataclasses.dataclass(frozen=True)
class Report:
    """What an experiment found; arrays have a row or an entry for each seed."""

    method: str
    zoo: dict[str, Any]
    training: dict[str, Any]
    split: dict[str, int]
    include_diverged: bool
    seeds: list[int]
    tau: Float[np.ndarray, " seeds"]
    r2: Float[np.ndarray, " seeds"]
    cap: float
    settings: float
    valid_tau: Float[np.ndarray, "epochs seeds"]
    losses: Float[np.ndarray, "epochs seeds"]
    predicted: Float[np.ndarray, "seeds test"]
    true: Float[np.ndarray, " test"]
    tested: Int[np.ndarray, " test"]
    invariance: float
    parameters: int
    seconds: float

    @property
    def title(self) -> str:
        """The method's name in tables."""
        return METHODS[self.method].title

    def to_json(self) -> str:
        """Everything, with versions, machine and date."""
        record = dataclasses.asdict(self)
        record |= {
            "tau_mean": float(self.tau.mean()),
            "tau_standard_error": standard_error(self.tau),
            "best_valid_tau": np.nanmax(self.valid_tau, axis=0),
            **provenance(),
        }
        fields = [
            f"{json.dumps(k)}: {json.dumps(v, allow_nan=False)}" for k, v in _plain(record).items()
        ]
        return "{\n" + ",\n".join(fields) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """Read back what `to_json` wrote.

        Raises:
            PredictError: if it is something else.
        """
        try:
            record = json.loads(text)
            fields: dict[str, Any] = {f.name: record[f.name] for f in dataclasses.fields(cls)}
            fields |= {name: np.asarray(fields[name], dtype) for name, dtype in _ARRAYS.items()}
            return cls(**fields)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise PredictError(f"not the result of an experiment ({error!r})") from error

    def __str__(self) -> str:
        return (
            f"{self.title}: τ {summary(self.tau, 4)}, R² {summary(self.r2, 4)} on "
            f"{len(self.true):,} models never seen ({len(self.seeds)} seeds; "
            f"τ between two measurements of the truth {self.cap:.4f}, "
            f"τ of the training settings alone {self.settings:.4f})"
        )


def train(
    zoo: Zoo,
    method: str,
    out: str | os.PathLike,
    *,
    training: Training | None = None,
    seeds: int = 5,
    seed: int = 0,
    sizes: tuple[int, ...] | None = None,
    include_diverged: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    show_progress: bool = True,
) -> Report:
    """Train predictors of one method, and test each once.

    The folder `out` gets the predictors and `result.json`.
    Stopped at any moment, training goes on with `resume` after the last whole epoch, to the same
    result. Batches are spread over all devices of all processes that `jax.distributed` knows.

    Args:
        zoo: whose models' success to predict.
        method: one of `METHODS`.
        out: folder for results.
        training: how to train, by default as the method says.
        seeds: how many predictors, trained together.
        seed: the first one's.
        sizes: how many models to train on, validate with and test on; by default 8:1:1.
        include_diverged: use models whose weights are not finite too, with zeros in their place.
        resume: go on from the last epoch of an earlier run with the same arguments, if any.
        overwrite: remove what an earlier run left in `out`; else that is an error.
        show_progress: show rate and time left on standard error.

    Raises:
        PredictError: if the method is unknown, there are results already, or what is to be
            resumed is another training.
        ZooError: if the zoo has too few models, or is damaged.
    """
    if method not in METHODS:
        raise PredictError(f"unknown method {method!r}; expected one of {list(METHODS)}")
    if seeds < 1 or seed < 0:
        raise PredictError(f"seeds is {seeds} and seed {seed}; expected at least 1 and 0")
    boosted_trees()  # to know now if they are missing, not when all is trained
    started = time.perf_counter()
    training = training or Training(**METHODS[method].defaults)
    folder, split = Path(out), split_models(zoo, sizes, diverged=include_diverged)
    all_seeds = list(range(seed, seed + seeds))
    about = {
        "method": method,
        "training": dataclasses.asdict(training),
        "seeds": all_seeds,
        "include_diverged": include_diverged,
        "zoo": zoo.origin,
    }
    train_part, valid_part = (to_device(load_examples(zoo, rows)) for rows in split[:2])
    job = {"what": CHECKPOINT, **about, "split": [len(rows) for rows in split]}
    checkpoints = _begin(folder, job, resume=resume, overwrite=overwrite)
    make = partial(METHODS[method].make, zoo.space)
    show = METHODS[method].title if show_progress and is_first() else ""
    fitted = _fitted(make, train_part, valid_part, training, all_seeds, checkpoints, show)
    report = Report(
        **about,
        split={name: len(rows) for name, rows in split._asdict().items()},
        **_tested(zoo, split, fitted, seed),
        seconds=time.perf_counter() - started,
    )
    if is_first():
        for i, number in enumerate(all_seeds):
            save_model(folder / MODELS.format(number), _pick(fitted.models, i))
        write_whole(folder / RESULT, report.to_json())
    return report


def _fitted(
    make: Callable[[PRNGKeyArray], Predictor],
    train: Examples,
    valid: Examples,
    training: Training,
    seeds: list[int],
    checkpoints: Checkpoints,
    title: str,
) -> Fit:
    """Predictors after their last epoch, errors as people can mend them; a title is shown."""
    models = len(train.success)
    steps = training.epochs * (models // min(training.batch_size, models))
    what = f"{len(seeds)} predictors at once, in batches of {training.batch_size}"
    remedy = "choose fewer --seeds or a smaller --batch-size"
    try:
        with (
            enough_memory(PredictError, what, remedy),
            Progress(title, steps, unit="steps", show=bool(title)) as progress,
        ):
            fitted = fit(
                make, train, valid, training, seeds=seeds, progress=progress,
                checkpoints=checkpoints,
            )  # fmt: skip
    except (CheckpointError, UnevenError) as error:
        raise PredictError(f"{checkpoints.folder.parent}: {error}") from error
    return fitted._replace(models=to_host(fitted.models))


def _tested(zoo: Zoo, split: Split, fitted: Fit, seed: int) -> dict[str, Any]:
    """What a report says about predictors after their one test."""
    test = load_examples(zoo, split.test)
    predicted, true = predict(fitted.models, test.weights), labels(test)
    one = eqx.filter(_pick(fitted.models, 0), eqx.is_array)
    return {
        "tau": np.array([kendall_tau(row, true) for row in predicted]),
        "r2": np.array([r_squared(row, true) for row in predicted]),
        "cap": kendall_tau(zoo.success[split.test, 0], zoo.success[split.test, 1]),
        "settings": settings_tau(zoo, split),
        "valid_tau": fitted.valid_tau,
        "losses": fitted.losses,
        "predicted": predicted,
        "true": true,
        "tested": split.test,
        "invariance": invariance_gap(
            fitted.models, zoo.space, jax.tree.map(lambda x: x[:20], test.weights), seed=seed
        ),
        "parameters": sum(x.size for x in jax.tree.leaves(one)),
    }


def _begin(folder: Path, job: dict[str, Any], *, resume: bool, overwrite: bool) -> Checkpoints:
    """Make sure that the folder is new, or this training's, or may be cleared."""
    job = json.loads(json.dumps(job))
    checkpoints = Checkpoints(folder / "checkpoints", job, warn=say)
    earlier = checkpoints.descriptions()
    if not (resume or overwrite) and (earlier or (folder / RESULT).exists()):
        raise PredictError(
            f"{folder}: there is a predictor's training already; go on with --resume, choose "
            "another folder with --out, or replace it with --overwrite"
        )
    for known in earlier if resume else ():
        if differs := difference(known, job):
            raise PredictError(f"{folder}: the training there has {differs}")
    wait_for_all("the folder is known")
    if is_first():
        folder.mkdir(parents=True, exist_ok=True)
        if not resume:
            checkpoints.clear()
        for old in [folder / RESULT, *folder.glob(MODELS.format("*"))]:
            old.unlink(missing_ok=True)
    wait_for_all("the folder is ready")
    return checkpoints


def invariance_gap(models: Any, space: WeightSpace, weights: PyTree, *, seed: int) -> float:
    """The largest change of a prediction when each network's hidden neurons are reordered."""
    keys = jax.random.split(jax.random.key(seed), len(jax.tree.leaves(weights)[0]))
    moved = jax.vmap(lambda x, key: space.permute(x, space.sample_permutation(key)))(weights, keys)
    return float(np.max(np.abs(predict(models, weights) - predict(models, moved))))


def apply(checkpoint: str | os.PathLike, zoo: Zoo) -> tuple[Int[np.ndarray, " models"], np.ndarray]:
    """Predict the success of every finished model of a zoo; returns their numbers and a row each.

    Args:
        checkpoint: a predictor's file, or the folder of an experiment with several, whose
            predictions are averaged.
        zoo: whose weights to read.

    Raises:
        PredictError: if there is no predictor, it is damaged, or was made for other weights.
    """
    path = Path(checkpoint)
    files = sorted(path.glob(MODELS.format("*"))) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise PredictError(f"{path}: no predictor here; make one with: unf predict train")
    rows, predictions = zoo.trained, []
    if not len(rows):
        raise ZooError(f"{zoo.path}: no finished models yet")
    weights = zoo.weights(rows)
    for file in files:
        try:
            model: Any = load_model(file)
        except ValueError as error:
            raise PredictError(str(error)) from error
        _check_fits(model, zoo.space, file)
        stacked = jax.tree.map(lambda x: x[None] if eqx.is_array(x) else x, model)
        predictions.append(predict(stacked, weights)[0])
    return rows, np.mean(predictions, axis=0)


def _check_fits(model: Predictor, space: WeightSpace, file: Path) -> None:
    """Compare tensors and shapes; axes may differ, since a predictor may relax fixed ones."""
    ours = {leaf.path: leaf.shape for leaf in space.leaves}
    theirs = {leaf.path: leaf.shape for leaf in model.space.leaves}
    for path in dict.fromkeys([*theirs, *ours]):
        if ours.get(path) != theirs.get(path):
            raise PredictError(
                f"{file}: the predictor reads other weights than these: {path} has shape "
                f"{theirs.get(path, 'none')} there and {ours.get(path, 'none')} here"
            )


def _plain(x: Any) -> Any:
    """Lists and numbers for JSON, which has no NaN."""
    if isinstance(x, dict):
        return {key: _plain(value) for key, value in x.items()}
    if isinstance(x, np.ndarray | list | tuple):
        return [_plain(value) for value in (x.tolist() if isinstance(x, np.ndarray) else x)]
    return None if isinstance(x, float) and not np.isfinite(x) else x


def _pick(models: Any, index: int) -> Any:
    return jax.tree.map(lambda x: x[index] if eqx.is_array(x) else x, models)
