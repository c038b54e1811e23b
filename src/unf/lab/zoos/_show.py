"""What a zoo looks like: a few lines of text, and a picture."""

import os
from typing import Any

import jax
import numpy as np

from ...zoo import Zoo, ZooError
from ..tasks import as_text
from ._recipe import TinyRNN, recipe_of


def draw(zoo: Zoo, path: str | os.PathLike) -> None:
    """How well models do, how that depends on the learning rate, and what some of them say.

    Raises:
        ZooError: if no model is finished.
    """
    from matplotlib.figure import Figure

    models = zoo.trained
    if not len(models):
        raise ZooError(f"{zoo.path}: no finished models to draw yet")
    sums = zoo.kind == TinyRNN.name
    figure = Figure(figsize=(13.5 if sums else 9, 4), layout="constrained", dpi=130)
    axes = figure.subplots(1, 3 if sums else 2)
    success = zoo.success[models, 0]
    axes[0].hist(success, bins=40, color="tab:green")
    axes[0].set(xlabel="success rate", ylabel="models")
    sizes = zoo.choices["batch_size"][models]
    for size in np.unique(sizes):
        chosen = sizes == size
        rates = zoo.choices["learning_rate"][models][chosen]
        axes[1].scatter(rates, success[chosen], s=6, alpha=0.5, lw=0, label=f"batch {size:.0f}")
    axes[1].set(xscale="log", xlabel="learning rate", ylabel="success rate")
    axes[1].legend(fontsize=8.5, markerscale=2)
    for axis in axes[:2]:
        axis.spines[["top", "right"]].set_visible(False)
    if sums:
        _write_sums(axes[2], zoo, models[np.argsort(success)])
    figure.suptitle(
        f"{zoo.kind}: {len(models):,} models, {int(zoo.diverged.sum())} diverged", fontsize=11
    )
    figure.savefig(path)


def sample_sums(zoo: Zoo, model: int, count: int = 5) -> list[tuple[str, str, bool]]:
    """Some questions, what a model answers, and whether it is right."""
    task: Any = recipe_of(zoo).task
    params = jax.tree.map(lambda x: x[0], zoo.weights(np.array([model])))
    problems = task.problems(count, key=jax.random.key(0))
    said = jax.jit(task.answer)(params, problems.questions)
    lines = []
    for question, answer, right in zip(problems.questions, said, problems.answers, strict=True):
        text = as_text(np.asarray(answer)).split(".")[0]
        lines.append((as_text(np.asarray(question)), text, text == as_text(np.asarray(right))))
    return lines


def _write_sums(axis: Any, zoo: Zoo, ranked: np.ndarray) -> None:
    """Sums by the best, the median and the worst model."""
    axis.axis("off")
    line = 1.0
    for name, place in (("best", -1), ("median", len(ranked) // 2), ("worst", 0)):
        model = int(ranked[place])
        title = f"{name}: model {model}, {zoo.success[model, 0]:.1%} right"
        axis.text(0, line, title, fontsize=10, weight="bold", va="top")
        for question, answer, right in sample_sums(zoo, model):
            line -= 0.055
            colour = "tab:green" if right else "tab:red"
            axis.text(0.03, line, f"{question}={answer}", family="monospace", va="top", c=colour)
        line -= 0.085
