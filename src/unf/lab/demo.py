"""A first job: predict from a network's weights alone how accurate it is.

`unf demo` trains a zoo of small networks on two moons, each with its own learning rate, initial
scale, examples and wrong labels. `InvariantUNF` and `StatNN` learn to predict their accuracy from
the weights, and are scored on networks that neither has seen.
"""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree

from .._progress import Progress
from ..models import InvariantUNF, StatNN, fit
from ..models._scores import kendall_tau, r_squared
from . import plots
from ._scores import summary
from .predict._methods import invariance_gap
from .tasks._moons import TwoMoons
from .zoos import TwoMoonsZoo
from .zoos._train import train_in_parts


@dataclass(frozen=True)
class Config:
    """How large the demo is; `width` and `steps` are those of the networks."""

    networks: int = 2000
    width: int = 16
    steps: int = 300
    epochs: int = 40
    repeats: int = 3
    seed: int = 0
    out: Path = Path("out")


class Score(NamedTuple):
    """How well a kind of predictor does on the test networks, for each repeat."""

    tau: Float[np.ndarray, " repeats"]
    r2: Float[np.ndarray, " repeats"]
    predictions: Float[np.ndarray, "repeats test"]


class Result(NamedTuple):
    """The networks, and how well their accuracy was predicted; the last fifth are for testing."""

    task: TwoMoons
    params: PyTree
    accuracies: Float[np.ndarray, " networks"]
    scores: dict[str, Score]
    invariance: float
    picture: Path

    def __str__(self) -> str:
        score = self.scores["UNF"]
        lines = [
            f"on {score.predictions.shape[1]} test networks, mean ± standard error of "
            f"{len(score.tau)} runs:",
            f"  {'predictor':10} {'Kendall tau':16} R²",
            *(f"  {x:10} {summary(s.tau):16} {summary(s.r2)}" for x, s in self.scores.items()),
            f"reordering hidden neurons changes UNF's predictions by at most {self.invariance:.0e}",
            f"picture: {self.picture}",
        ]
        return "\n".join(lines)


def run(config: Config) -> Result:
    """Do the whole job, print what comes out, and draw it.

    Raises:
        ValueError: if there are too few networks to split and rank.
    """
    if config.networks < 20:
        raise ValueError(f"networks is {config.networks}; expected at least 20")
    recipe = TwoMoonsZoo(width=config.width, steps=config.steps)
    keys = jax.random.split(jax.random.key(config.seed), config.networks)
    total = config.networks * config.steps
    with Progress(f"training {config.networks:,} networks", total, unit="steps") as progress:
        trained, _ = train_in_parts(
            recipe, keys, recipe.batch_sizes[0], at_once=len(keys), on_model_steps=progress.advance
        )
    params, accuracies = trained.params, np.asarray(trained.success[:, 0])
    low, middle, high = np.quantile(accuracies, [0.05, 0.5, 0.95])
    print(f"their accuracy: median {middle:.2f}, 90 % between {low:.2f} and {high:.2f}")
    space = recipe.task.space
    train, valid, test = _split(params, accuracies)
    kinds = {  # smaller than in the paper, to be quick
        "UNF": partial(InvariantUNF, space, 1, 1, mlp_width=128),
        "StatNN": partial(StatNN, space, 1, 1, mlp_width=128, mlp_layers=3),
    }
    keys = jnp.stack([jax.random.key(config.seed + i) for i in range(config.repeats)])
    scores, models = {}, {}
    for name, make in kinds.items():
        models[name] = fit(
            [make(key=key) for key in keys], *train, key=keys, validation=valid, loss="bce",
            epochs=config.epochs, learning_rate=3e-3, patience=None, keep="score",
            progress=f"{name}, {config.repeats} runs together",
        ).model  # fmt: skip
        predictions = np.stack([model.predict(test[0]) for model in models[name]])
        tau = np.array([kendall_tau(p, test[1]) for p in predictions])
        r2 = np.array([r_squared(p, test[1]) for p in predictions])
        scores[name] = Score(tau, r2, predictions)
    gap = invariance_gap(models["UNF"], space, test[0], seed=config.seed)
    result = Result(recipe.task, params, accuracies, scores, gap, config.out / "demo.png")
    _draw(result)
    print(result)
    return result


def _split(params: PyTree, accuracies: Float[np.ndarray, " networks"]) -> list[tuple]:
    """Weights and accuracies: three fifths for training, one for validation, one for testing."""
    cuts = [0, 3 * len(accuracies) // 5, 4 * len(accuracies) // 5, len(accuracies)]
    examples = (params, accuracies.astype(np.float32))
    return [jax.tree.map(lambda x, a=a, b=b: x[a:b], examples) for a, b in pairwise(cuts)]


def _draw(result: Result) -> None:
    """Draw what three networks decide, and predicted against true accuracy."""
    order, panels = np.argsort(result.accuracies), []
    chosen = {"a bad network": len(order) // 20, "the median": len(order) // 2, "the best": -1}
    for name, rank in chosen.items():
        params = jax.tree.map(lambda x, i=order[rank]: x[i], result.params)
        title = f"{name}: {result.accuracies[order[rank]]:.0%} right"
        panels.append(plots.Panel(title, partial(_draw_decisions, task=result.task, params=params)))
    for name, score in result.scores.items():
        predicted, labels = score.predictions[0], ("true accuracy", "predicted from the weights")
        true, color = result.accuracies[-len(predicted) :], plots.COLORS[name.lower()]
        chart = plots.points(true, predicted, labels, color=color, diagonal=True)
        panels.append(plots.Panel(f"{name}: τ {summary(score.tau)}", chart))
    result.picture.parent.mkdir(parents=True, exist_ok=True)
    rows = [[0, 0, 1, 1, 2, 2], [3, 3, 3, 4, 4, 4]]
    plots.save(plots.figure(panels, rows, heights=[2.5, 3.5]), result.picture)


def _draw_decisions(axis: Any, task: TwoMoons, params: PyTree) -> None:
    """Draw a network's probabilities in a square, its decision boundary, and some data."""
    points, labels, _ = (np.asarray(x[:200]) for x in task.data().heldout)
    side = np.linspace(-2, 2, 160, dtype=np.float32)
    grid = jnp.asarray(np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2))
    logits = np.asarray(task.logits(params, grid)).reshape(len(side), len(side))
    shades = {"cmap": "RdBu", "vmin": -0.6, "vmax": 1.6, "extent": (-2, 2, -2, 2)}
    axis.imshow(jax.nn.sigmoid(logits), origin="lower", **shades)
    axis.contour(side, side, logits, [0.0], colors="black", linewidths=1)
    colors = np.where(labels, plots.PALETTE[0], plots.PALETTE[4])
    axis.scatter(*points.T, c=colors, s=9, edgecolors="white", linewidths=0.4)
    axis.set(xticks=[], yticks=[])
