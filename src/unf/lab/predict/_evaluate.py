"""What is said of predictors once they are trained: scores, agreement, and baselines."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ...models import Fitted
from ...models._scores import kendall_tau, r_squared
from ...zoo import MixedZoo, Zoo
from ...zoo._mixed import MixedSplit
from ...zoo._zoo import ABOUT_IMAGES, Split
from ._apply import predict
from ._examples import finite_weights, num_classes, parts_of, targets_of
from ._methods import PredictError, invariance_gap

_PERMUTED = 3
"""Architectures of each part of a mixed zoo whose networks are permuted in the test."""


def evaluate(
    zoo: Zoo | MixedZoo,
    models: Sequence[Fitted],
    rows: Int[np.ndarray, " rows"],
    score: str,
    settings: Float[np.ndarray, " models"] | None,
) -> dict[str, Any]:
    """What a report says about the one test on some networks."""
    predicted, true = predict(zoo, models, rows), targets_of(zoo, score)[rows]
    if num_classes(zoo, score) is not None:
        chosen = predicted.argmax(axis=-1)
        return {
            "tau": None,
            "r2": None,
            "accuracy": np.mean(chosen == true, axis=1),
            "retest": None,
            "settings": None if settings is None else float(np.mean(settings[rows] == true)),
            "predicted": chosen.astype(float),
            "true": true.astype(float),
            "tested": rows,
        }
    return {
        "tau": np.array([kendall_tau(row, true) for row in predicted]),
        "r2": np.array([r_squared(row, true) for row in predicted]),
        "retest": _agreement(zoo.scores[score][rows]),
        "settings": None if settings is None else kendall_tau(settings[rows], true),
        "predicted": predicted,
        "true": true,
        "tested": rows,
    }


def evaluate_held_out(
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
        held_out = evaluate(zoo, models, split.held_out, score, settings)
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


def _agreement(scores: Float[np.ndarray, "test repeats"]) -> float | None:
    """Kendall's τ between two measurements, if there are two."""
    return kendall_tau(scores[:, 0], scores[:, 1]) if scores.shape[1] > 1 else None


def largest_gap(
    zoo: Zoo | MixedZoo, models: Sequence[Fitted], split: Split | MixedSplit, seed: int
) -> float:
    """How much predictions change when test networks are permuted, of some architectures."""
    gaps = []
    for rows in split[2:]:
        for part in list(parts_of(zoo, rows).values())[:_PERMUTED]:
            weights = finite_weights(part.zoo, part.rows[:20])
            gaps.append(invariance_gap(models, part.zoo.space, weights, seed=seed))
    return max(gaps)


def settings_predictions(
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
    settings, true = np.stack([_as_numbers(x) for x in told], axis=1), targets_of(zoo, score)
    classes = num_classes(zoo, score) is not None
    kind: Any = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    trees = kind(random_state=0)
    with threadpool_limits(1):  # more threads are slower, and much slower on a busy machine
        return trees.fit(settings[train], true[train]).predict(settings).astype(float)


def _as_numbers(setting: np.ndarray) -> Float[np.ndarray, " networks"]:
    """A setting as trees read it: words as their positions in the alphabet."""
    words = setting.dtype.kind == "U"
    return np.asarray(np.unique(setting, return_inverse=True)[1] if words else setting, float)
