"""What the demo shows: a table and a picture."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray, PyTree

from .._scores import summary
from ._networks import TEST_POINTS, network, two_moons
from ._predictors import Score


class Result(NamedTuple):
    """The networks and what was found out about them; the last fifth of them are for testing."""

    params: PyTree
    accuracies: Float[np.ndarray, " networks"]
    scores: dict[str, Score]
    invariance: float
    picture: Path


def table(scores: dict[str, Score], networks: int) -> str:
    """The scores, and who won."""
    repeats = len(next(iter(scores.values())).tau)
    lines = [
        f"on {networks} test networks, mean ± standard error of {repeats} runs:",
        f"  {'predictor':10} {'Kendall tau':16} R²",
        *(f"  {name:10} {summary(s.tau):16} {summary(s.r2)}" for name, s in scores.items()),
    ]
    winner = max(scores, key=lambda name: scores[name].tau.mean())
    return "\n".join([*lines, f"{winner} ranks networks it has never seen best."])


def draw(result: Result, *, key: PRNGKeyArray) -> None:
    """Three networks' decisions, and predicted against true accuracy."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.5, 3.9), layout="constrained", dpi=130)
    axes = figure.subplots(1, 4, width_ratios=[1, 1, 1, 1.45])
    order = np.argsort(result.accuracies)
    points, labels = (x[:200] for x in two_moons(TEST_POINTS, key=key))
    chosen = {"a bad network": len(order) // 20, "the median": len(order) // 2, "the best": -1}
    for axis, (name, rank) in zip(axes, chosen.items(), strict=False):
        _draw_decisions(axis, jax.tree.map(lambda x, i=order[rank]: x[i], result.params))
        colours = np.where(labels, "tab:blue", "tab:red")
        axis.scatter(*np.asarray(points).T, c=colours, s=9, edgecolors="white", linewidths=0.4)
        axis.set_title(f"{name}: {result.accuracies[order[rank]]:.0%} right", fontsize=11)
    _draw_predictions(axes[-1], result)
    result.picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(result.picture)


def _draw_decisions(axis: Any, params: PyTree, extent: float = 2.0, size: int = 160) -> None:
    side = np.linspace(-extent, extent, size)
    grid = jnp.asarray(np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2))
    logits = jax.vmap(network, (None, 0))(params, grid).reshape(size, size)
    corners = (-extent, extent, -extent, extent)
    shades = {"cmap": "RdBu", "vmin": -0.6, "vmax": 1.6, "interpolation": "bilinear"}
    axis.imshow(jax.nn.sigmoid(logits), origin="lower", extent=corners, **shades)
    axis.contour(side, side, logits, [0.0], colors="black", linewidths=1)
    axis.set(xticks=[], yticks=[])


def _draw_predictions(axis: Any, result: Result) -> None:
    tests = next(iter(result.scores.values())).predictions.shape[1]
    true = result.accuracies[-tests:]
    axis.axline((0, 0), slope=1, color="0.6", linewidth=1, zorder=0)
    for name, colour in (("UNF", "tab:green"), ("StatNN", "tab:orange")):
        score = result.scores[name]
        label = f"{name}: tau {summary(score.tau)}"
        axis.scatter(true, score.predictions[0], s=12, c=colour, alpha=0.6, lw=0, label=label)
    limits = (min(true.min(), *(s.predictions[0].min() for s in result.scores.values())) - 0.03, 1)
    axis.set(xlabel="true accuracy", ylabel="predicted from the weights")
    axis.set(xlim=limits, ylim=limits, aspect="equal")
    axis.set_title(f"{tests} networks never seen before", fontsize=11)
    axis.legend(loc="lower right", fontsize=8.5, markerscale=1.8, handletextpad=0.2)
    axis.spines[["top", "right"]].set_visible(False)
