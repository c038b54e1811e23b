"""The networks of a zoo as examples: their weights, and what is to be predicted of them."""

from collections.abc import Sequence
from typing import Literal

import jax
import numpy as np
from jaxtyping import Int, PyTree

from ...zoo import MixedZoo, Status, Zoo
from ...zoo._mixed import Part
from ._methods import PredictError


def load_examples(
    zoo: Zoo, rows: Int[np.ndarray, " rows"], score: str = "success"
) -> tuple[PyTree, np.ndarray]:
    """Weights, zero where they are not finite, and scores by the first measurement, or classes."""
    targets = targets_of(zoo, score)[rows]
    classes = np.issubdtype(targets.dtype, np.integer)
    return finite_weights(zoo, rows), targets.astype(np.int32 if classes else np.float32)


def load_each(
    zoo: Zoo | MixedZoo, rows: Int[np.ndarray, " rows"], names: Sequence[str], score: str
) -> tuple[list[PyTree], list[np.ndarray]]:
    """Weights and scores of some networks of each of these architectures, which may be none."""
    parts, none = parts_of(zoo, rows), np.zeros(0, int)
    zoos = zoo.zoos if isinstance(zoo, MixedZoo) else {"": zoo}
    found = [
        load_examples(zoos[name], parts[name].rows if name in parts else none, score)
        for name in names
    ]
    return [weights for weights, _ in found], [targets for _, targets in found]


def finite_weights(zoo: Zoo, rows: Int[np.ndarray, " rows"]) -> PyTree:
    """Weights of some networks, zero where they are not finite."""
    weights = zoo.weights(rows)
    if zoo.diverged[rows].any():
        weights = jax.tree.map(lambda x: np.nan_to_num(x, posinf=0.0, neginf=0.0), weights)
    return weights


def parts_of(zoo: Zoo | MixedZoo, rows: Int[np.ndarray, " rows"]) -> dict[str, Part]:
    """Some networks by architecture."""
    if isinstance(zoo, MixedZoo):
        return zoo.parts(rows)
    return {"": Part(zoo, rows, np.arange(len(rows)))}


def check_score(zoo: Zoo | MixedZoo, score: str | None) -> str:
    """The score or the class to predict."""
    settings = {} if isinstance(zoo, MixedZoo) else zoo.settings
    classes = [name for name, x in settings.items() if name == "label" or x.dtype.kind == "U"]
    if score is None:
        return "label" if "label" in classes else next(iter(zoo.scores))
    if score not in [*zoo.scores, *classes]:
        known = [*zoo.scores, *classes]
        raise PredictError(f"the zoo has no score {score!r}; expected one of {known}")
    return score


def loss_of(zoo: Zoo | MixedZoo, score: str) -> Literal["bce", "mse", "cross-entropy"]:
    """Cross-entropy for classes and for scores from 0 to 1, squared errors for others."""
    if num_classes(zoo, score) is not None:
        return "cross-entropy"
    values = zoo.scores[score][zoo.trained, 0]
    return "bce" if np.all((values >= 0) & (values <= 1)) else "mse"


def targets_of(zoo: Zoo | MixedZoo, score: str) -> np.ndarray:
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


def classes_of(zoo: Zoo | MixedZoo, score: str) -> list[str] | None:
    """The names of the classes, if classes are to be predicted."""
    targets = targets_of(zoo, score)
    if not np.issubdtype(targets.dtype, np.integer):
        return None
    if zoo.settings[score].dtype.kind == "U":
        return np.unique(zoo.settings[score]).tolist()
    return [str(number) for number in range(int(targets.max()) + 1)]


def num_classes(zoo: Zoo | MixedZoo, score: str) -> int | None:
    """How many classes there are, if classes are to be predicted."""
    names = classes_of(zoo, score)
    return None if names is None else len(names)
