"""What the demo shows: a picture."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._scores import summary
from ..tasks import TwoMoons


def draw(result: Any) -> None:
    """Three networks' decisions, and predicted against true accuracy."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.5, 3.9), layout="constrained", dpi=130)
    axes = figure.subplots(1, 4, width_ratios=[1, 1, 1, 1.45])
    order = np.argsort(result.accuracies)
    points, labels, _ = (x[:200] for x in result.task.data().heldout)
    chosen = {"a bad network": len(order) // 20, "the median": len(order) // 2, "the best": -1}
    for axis, (name, rank) in zip(axes, chosen.items(), strict=False):
        params = jax.tree.map(lambda x, i=order[rank]: x[i], result.params)
        _draw_decisions(axis, result.task, params)
        colors = np.where(labels, "tab:blue", "tab:red")
        axis.scatter(*np.asarray(points).T, c=colors, s=9, edgecolors="white", linewidths=0.4)
        axis.set_title(f"{name}: {result.accuracies[order[rank]]:.0%} right", fontsize=11)
    _draw_predictions(axes[-1], result)
    result.picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(result.picture)


def _draw_decisions(
    axis: Any, task: TwoMoons, params: PyTree, extent: float = 2.0, size: int = 160
) -> None:
    side = np.linspace(-extent, extent, size)
    grid = jnp.asarray(np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2))
    logits = task.logits(params, grid).reshape(size, size)
    corners = (-extent, extent, -extent, extent)
    shades = {"cmap": "RdBu", "vmin": -0.6, "vmax": 1.6, "interpolation": "bilinear"}
    axis.imshow(jax.nn.sigmoid(logits), origin="lower", extent=corners, **shades)
    axis.contour(side, side, logits, [0.0], colors="black", linewidths=1)
    axis.set(xticks=[], yticks=[])


def _draw_predictions(axis: Any, result: Any) -> None:
    tests = next(iter(result.scores.values())).predictions.shape[1]
    true = result.accuracies[-tests:]
    axis.axline((0, 0), slope=1, color="0.6", linewidth=1, zorder=0)
    for name, color in (("UNF", "tab:green"), ("StatNN", "tab:orange")):
        score = result.scores[name]
        label = f"{name}: tau {summary(score.tau)}"
        axis.scatter(true, score.predictions[0], s=12, c=color, alpha=0.6, lw=0, label=label)
    limits = (min(true.min(), *(s.predictions[0].min() for s in result.scores.values())) - 0.03, 1)
    axis.set(xlabel="true accuracy", ylabel="predicted from the weights")
    axis.set(xlim=limits, ylim=limits, aspect="equal")
    axis.set_title(f"{tests} networks never seen before", fontsize=11)
    axis.legend(loc="lower right", fontsize=8.5, markerscale=1.8, handletextpad=0.2)
    axis.spines[["top", "right"]].set_visible(False)
