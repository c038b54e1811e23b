"""A first job: tell from a network's weights alone how accurate it will be.

`unf demo` trains small networks on two moons, each with its own learning
rate, initial scale, number of examples and wrong labels. `InvariantUNF` and `StatNN` learn to
predict their accuracy from the weights, and are scored on networks that neither has seen.
"""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray, PyTree

from ...spec import WeightSpace
from .. import plots
from .._scores import summary
from ..predict import invariance_gap
from ._networks import (
    SPEC,
    TEST_POINTS,
    Config,
    network,
    train_networks,
    true_accuracies,
    two_moons,
)
from ._predictors import Score, make_splits, score_predictors

__all__ = ["TEST_POINTS", "Config", "Result", "run", "two_moons"]
_EXTENT, _SIDE = 2.0, 160
"""Half the side of the square in which decisions are drawn, and points along it."""


class Result(NamedTuple):
    """The networks and what was found out about them; the last fifth of them are for testing."""

    params: PyTree
    accuracies: Float[np.ndarray, " networks"]
    scores: dict[str, Score]
    invariance: float
    picture: Path


def run(config: Config) -> Result:
    """Do the whole job: prints as it goes, and writes the picture.

    Raises:
        ValueError: if there are too few networks to split and rank.
    """
    if config.networks < 20:
        raise ValueError(f"networks is {config.networks}; expected at least 20")
    zoo, truth = jax.random.split(jax.random.key(config.seed))
    params = train_networks(config, key=zoo)
    accuracies = true_accuracies(params, key=truth)
    low, middle, high = np.quantile(accuracies, [0.05, 0.5, 0.95])
    print(f"their accuracy: median {middle:.2f}, nine in ten between {low:.2f} and {high:.2f}")
    space = WeightSpace.from_spec(SPEC, jax.tree.map(lambda x: x[0], params))
    splits = make_splits(params, accuracies)
    scores, models = score_predictors(space, splits, config)
    print(table(scores, len(splits[2].success)))
    gap = invariance_gap(models, space, splits[2].weights, seed=config.seed)
    print(f"reordering hidden neurons changes UNF's predictions by at most {gap:.0e}")
    result = Result(params, accuracies, scores, gap, config.out / "demo.png")
    _draw(result, key=truth)
    print(f"picture: {result.picture}")
    return result


def table(scores: dict[str, Score], networks: int) -> str:
    """The scores, and which predictor is best."""
    repeats = len(next(iter(scores.values())).tau)
    lines = [
        f"on {networks} test networks, mean ± standard error of {repeats} runs:",
        f"  {'predictor':10} {'Kendall tau':16} R²",
        *(f"  {name:10} {summary(s.tau):16} {summary(s.r2)}" for name, s in scores.items()),
    ]
    winner = max(scores, key=lambda name: scores[name].tau.mean())
    return "\n".join([*lines, f"{winner} ranks networks it has never seen best."])


def _draw(result: Result, *, key: PRNGKeyArray) -> None:
    """Draw what three networks decide, and predicted against true accuracy."""
    points, labels = (np.asarray(x[:200]) for x in two_moons(TEST_POINTS, key=key))
    side = np.linspace(-_EXTENT, _EXTENT, _SIDE, dtype=np.float32)
    grid = jnp.asarray(np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2))
    order, decisions = np.argsort(result.accuracies), {}
    chosen = {"a bad network": len(order) // 20, "the median": len(order) // 2, "the best": -1}
    for name, rank in chosen.items():
        params = jax.tree.map(lambda x, i=order[rank]: x[i], result.params)
        logits = np.asarray(jax.vmap(network, (None, 0))(params, grid)).reshape(_SIDE, _SIDE)
        decisions[f"{name}: {result.accuracies[order[rank]]:.0%} right"] = logits
    predicted = {name: (s.tau, s.predictions[0]) for name, s in result.scores.items()}
    tests = len(next(iter(predicted.values()))[1])
    result.picture.parent.mkdir(parents=True, exist_ok=True)
    true = result.accuracies[-tests:]
    drawn = plots.demo(decisions, _EXTENT, (points, labels), true, predicted)
    plots.save(drawn, result.picture)
