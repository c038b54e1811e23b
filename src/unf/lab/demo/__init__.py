"""A first job: tell from a network's weights alone how accurate it will be.

`unf demo` trains small networks on two moons, each with its own learning
rate, initial scale, number of examples and wrong labels. `InvariantUNF` and `StatNN` learn to
predict their accuracy from the weights, and are scored on networks that neither has seen.
"""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

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
    order, panels = np.argsort(result.accuracies), []
    data = tuple(np.asarray(x[:200]) for x in two_moons(TEST_POINTS, key=key))
    chosen = {"a bad network": len(order) // 20, "the median": len(order) // 2, "the best": -1}
    for name, rank in chosen.items():
        params = jax.tree.map(lambda x, i=order[rank]: x[i], result.params)
        title = f"{name}: {result.accuracies[order[rank]]:.0%} right"
        panels.append(plots.Panel(title, partial(_draw_decisions, params=params, data=data)))
    colors = {"UNF": plots.PALETTE[2], "StatNN": plots.PALETTE[1]}
    for name, score in result.scores.items():
        predicted, labels = score.predictions[0], ("true accuracy", "predicted from the weights")
        true = result.accuracies[-len(predicted) :]
        chart = plots.points(true, predicted, labels, color=colors[name], diagonal=True)
        panels.append(plots.Panel(f"{name}: τ {summary(score.tau)}", chart))
    result.picture.parent.mkdir(parents=True, exist_ok=True)
    rows = [[0, 0, 1, 1, 2, 2], [3, 3, 3, 4, 4, 4]]
    plots.save(plots.figure(panels, rows, heights=[2.5, 3.5]), result.picture)


def _draw_decisions(axis: Any, params: PyTree, data: tuple[np.ndarray, ...]) -> None:
    """Draw a network's probabilities in a square, its decision boundary and some data."""
    side = np.linspace(-2, 2, 160, dtype=np.float32)
    grid = jnp.asarray(np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2))
    logits = np.asarray(jax.vmap(network, (None, 0))(params, grid)).reshape(len(side), len(side))
    shades = {"cmap": "RdBu", "vmin": -0.6, "vmax": 1.6, "extent": (-2, 2, -2, 2)}
    axis.imshow(jax.nn.sigmoid(logits), origin="lower", **shades)
    axis.contour(side, side, logits, [0.0], colors="black", linewidths=1)
    colors = np.where(data[1], plots.PALETTE[0], plots.PALETTE[4])
    axis.scatter(*data[0].T, c=colors, s=9, edgecolors="white", linewidths=0.4)
    axis.set(xticks=[], yticks=[])
