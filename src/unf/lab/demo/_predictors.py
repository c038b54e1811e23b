"""Predicting a network's accuracy from its weights, with `InvariantUNF` and with `StatNN`."""

from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PyTree

from ...models import InvariantUNF, StatNN
from ...spec import WeightSpace
from .._progress import Progress
from .._scores import kendall_tau, r_squared
from ..predict import Examples, Training, fit, predict
from ._networks import Config

BATCH, RATE = 32, 3e-3


class Score(NamedTuple):
    """How well a kind of predictor did on the test networks, once for each repeat."""

    tau: Float[np.ndarray, " repeats"]
    r2: Float[np.ndarray, " repeats"]
    predictions: Float[np.ndarray, "repeats test"]


def make_splits(params: PyTree, accuracies: Float[np.ndarray, " networks"]) -> list[Examples]:
    """Three fifths for training, one for validation, one for testing; leaves standardised.

    A leaf's mean and deviation are two numbers from the training networks, so standardising
    respects every permutation.
    """
    cuts = [0, 3 * len(accuracies) // 5, 4 * len(accuracies) // 5, len(accuracies)]
    params = jax.tree.map(lambda x: (x - x[: cuts[1]].mean()) / x[: cuts[1]].std(), params)
    examples = Examples(params, accuracies)
    return [jax.tree.map(lambda x, a=a, b=b: x[a:b], examples) for a, b in pairwise(cuts)]


def score_predictors(
    space: WeightSpace, splits: list[Examples], config: Config
) -> tuple[dict[str, Score], Any]:
    """Train each kind of predictor `repeats` times; the scores, and the UNFs.

    Of each run, the epoch with the best validation tau is kept. Only that model, once, sees
    the test networks. Rate and sizes were chosen on validation networks; the paper's StatNN,
    600 wide with 6 layers, is as good there and slower.
    """
    train, valid, test = splits
    true = np.asarray(test.success, np.float64)
    kinds = {
        "UNF": partial(InvariantUNF, space, 1, 1, mlp_width=128),
        "StatNN": partial(StatNN, space, 1, 1, mlp_width=128, mlp_layers=3),
    }
    training = Training(config.epochs, BATCH, RATE, "cosine")
    seeds = [config.seed + i for i in range(config.repeats)]
    steps = config.epochs * max(len(train.success) // BATCH, 1)
    scores, models = {}, {}
    for name, make in kinds.items():
        with Progress(f"{name}, {config.repeats} runs together", steps, unit="steps") as progress:
            models[name] = fit(
                lambda key, make=make: make(key=key),
                train,
                valid,
                training,
                seeds=seeds,
                progress=progress,
            ).models
        predictions = predict(models[name], test.weights)
        tau = np.array([kendall_tau(p, true) for p in predictions])
        r2 = np.array([r_squared(p, true) for p in predictions])
        scores[name] = Score(tau, r2, predictions)
    return scores, models["UNF"]
