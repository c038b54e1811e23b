"""A first job: tell from a network's weights alone how accurate it will be.

`python -m unf.experiments.demo` trains small networks on two moons. Each has its own learning
rate, initial scale, number of examples and wrong labels, and sees a world turned by an angle of
its own. Which of them will work in ours, which is not turned? `InvariantUNF` and `StatNN` learn
to answer from the weights, and are scored on networks that neither has seen.
"""

import argparse
import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray, PyTree

from ..models import InvariantUNF, StatNN
from ..nn import stack_channels
from ..spec import WeightSpace

SPEC = {"w0": "[in] hidden", "b0": "hidden", "w1": "hidden [out]", "b1": "[out]"}
EXAMPLES, TEST_POINTS, BATCH, RATE = 256, 4000, 32, 3e-3


@dataclass(frozen=True)
class Config:
    """What the demo does: `turn` is the largest angle, in degrees, and `width` the networks'."""

    networks: int = 2000
    turn: float = 60.0
    width: int = 16
    steps: int = 300
    epochs: int = 40
    repeats: int = 3
    seed: int = 0
    out: Path = Path("out")


class Score(NamedTuple):
    """How well a kind of predictor did on the test networks, once for each repeat."""

    tau: Float[np.ndarray, " repeats"]
    r2: Float[np.ndarray, " repeats"]
    predictions: Float[np.ndarray, "repeats test"]


class Result(NamedTuple):
    """The networks and what was found out about them; the last fifth of them are for testing."""

    params: PyTree
    accuracies: Float[np.ndarray, " networks"]
    scores: dict[str, Score]
    invariance: float
    picture: Path


def two_moons(
    size: int, *, key: PRNGKeyArray
) -> tuple[Float[Array, "{size} 2"], Bool[Array, " {size}"]]:
    """Points of two interleaved half circles with noise, centred, and which one each is of."""
    angle_key, label_key, noise_key = jax.random.split(key, 3)
    angles = jnp.pi * jax.random.uniform(angle_key, (size,))
    labels = jax.random.bernoulli(label_key, 0.5, (size,))
    sign = jnp.where(labels, -1.0, 1.0)
    points = jnp.stack([sign * (jnp.cos(angles) - 0.5), sign * (jnp.sin(angles) - 0.25)], axis=-1)
    return points + 0.15 * jax.random.normal(noise_key, (size, 2)), labels


def network(params: PyTree, point: Float[Array, " 2"]) -> Float[Array, ""]:
    """The logit of the second moon."""
    hidden = jax.nn.relu(point @ params["w0"] + params["b0"])
    return (hidden @ params["w1"] + params["b1"])[0]


def accuracy(params: PyTree, points: Float[Array, "n 2"], labels: Bool[Array, " n"]) -> Array:
    """The fraction of points on which a network is right."""
    return jnp.mean((jax.vmap(network, (None, 0))(params, points) > 0) == labels)


def _draw_network(config: Config, *, key: PRNGKeyArray) -> dict[str, Any]:
    """A network's initial weights, its training data and how it will be trained."""
    rate, scale, examples, flips, turn, w0, w1, data, flip = jax.random.split(key, 9)
    angle = jnp.deg2rad(config.turn) * jax.random.uniform(turn, minval=-1)
    rotation = jnp.array([[jnp.cos(angle), jnp.sin(angle)], [-jnp.sin(angle), jnp.cos(angle)]])
    points, labels = two_moons(EXAMPLES, key=data)
    wrong = jax.random.bernoulli(flip, jax.random.uniform(flips, maxval=0.2), (EXAMPLES,))
    deviation = 2 ** jax.random.uniform(scale, minval=-1.5, maxval=1)
    params = {
        "w0": deviation * jax.random.normal(w0, (2, config.width)),
        "b0": jnp.zeros(config.width),
        "w1": deviation * jax.random.normal(w1, (config.width, 1)) * (2 / config.width) ** 0.5,
        "b1": jnp.zeros(1),
    }
    return {
        "params": params,
        "points": points @ rotation,
        "labels": (labels ^ wrong).astype(points.dtype),
        "examples": EXAMPLES ** jax.random.uniform(examples, minval=0.5),
        "rate": 10 ** jax.random.uniform(rate, minval=-3.5, maxval=-1.3),
    }


def train_networks(config: Config, *, report: "Reporter", key: PRNGKeyArray) -> PyTree:
    """Train all networks at once with Adam; leaves of the result are stacked."""
    adam = optax.scale_by_adam()
    draw_key, train_key = jax.random.split(key)

    def loss(params: PyTree, points: Array, labels: Array) -> Array:
        logits = jax.vmap(network, (None, 0))(params, points)
        return jnp.mean(optax.sigmoid_binary_cross_entropy(logits, labels))

    def step(run: dict[str, Any], state: Any, key: PRNGKeyArray) -> tuple[dict[str, Any], Any]:
        index = jnp.floor(run["examples"] * jax.random.uniform(key, (BATCH,))).astype(int)
        gradient = jax.grad(loss)(run["params"], run["points"][index], run["labels"][index])
        update, state = adam.update(gradient, state)
        params = jax.tree.map(lambda p, u: p - run["rate"] * u, run["params"], update)
        return run | {"params": params}, state

    @jax.jit
    def advance(runs: dict[str, Any], states: Any, keys: Key[Array, " steps"]) -> Any:
        def body(carry: Any, key: PRNGKeyArray) -> tuple[Any, None]:
            runs, states = carry
            return jax.vmap(step)(runs, states, jax.random.split(key, config.networks)), None

        return jax.lax.scan(body, (runs, states), keys)[0]

    draw = jax.jit(jax.vmap(lambda key: _draw_network(config, key=key)))
    runs = draw(jax.random.split(draw_key, config.networks))
    states = jax.vmap(adam.init)(runs["params"])
    for chunk in report.track(f"training {config.networks:,} networks", range(10)):
        keys = jax.random.split(jax.random.fold_in(train_key, chunk), max(config.steps // 10, 1))
        runs, states = jax.block_until_ready(advance(runs, states, keys))
    return runs["params"]


def true_accuracies(params: PyTree, *, key: PRNGKeyArray) -> Float[np.ndarray, " networks"]:
    """The accuracy of each network on fresh points, not turned and with the right labels."""
    points, labels = two_moons(TEST_POINTS, key=key)
    measure = jax.jit(partial(jax.lax.map, lambda p: accuracy(p, points, labels), batch_size=32))
    return np.asarray(measure(params))


class Split(NamedTuple):
    """Weights as features, with a channel axis, and the accuracies to predict."""

    features: PyTree
    accuracies: Float[Array, " networks"]


def make_splits(params: PyTree, accuracies: Float[np.ndarray, " networks"]) -> list[Split]:
    """Three fifths for training, one for validation, one for testing; leaves standardised.

    A leaf's mean and deviation are two numbers from the training networks, so standardising
    respects every permutation.
    """
    cuts = [0, 3 * len(accuracies) // 5, 4 * len(accuracies) // 5, len(accuracies)]
    params = jax.tree.map(lambda x: (x - x[: cuts[1]].mean()) / x[: cuts[1]].std(), params)
    features = stack_channels(params)
    return [
        Split(jax.tree.map(lambda x, a=a, b=b: x[a:b], features), jnp.asarray(accuracies[a:b]))
        for a, b in pairwise(cuts)
    ]


@eqx.filter_jit
def predict(model: Callable, features: PyTree) -> Float[Array, " networks"]:
    """The predicted accuracy of each network."""
    return jax.nn.sigmoid(jax.vmap(model)(features)[:, 0])


def fit(
    model: Any, train: Split, valid: Split, epochs: int, *, key: PRNGKeyArray
) -> Iterator[tuple[Any, float]]:
    """Train by cross entropy; after each epoch, yield the model and its validation tau."""
    size = len(train.accuracies)
    batches = max(size // BATCH, 1)
    adam = _adam(batches, max(epochs, 2) * batches)
    state = adam.init(eqx.filter(model, eqx.is_array))
    for epoch in range(epochs):
        order = jax.random.permutation(jax.random.fold_in(key, epoch), size)
        batch_indices = order[: batches * BATCH].reshape(batches, -1)
        model, state = _epoch(model, state, adam.update, train, batch_indices)
        predicted = np.asarray(predict(model, valid.features))
        yield model, kendall_tau(predicted, np.asarray(valid.accuracies))


@lru_cache  # the same functions again, so that nothing is compiled again
def _adam(warmup: int, steps: int) -> optax.GradientTransformation:
    return optax.adam(optax.warmup_cosine_decay_schedule(0.0, RATE, warmup, steps))


@eqx.filter_jit
def _epoch(model: Any, state: Any, update: Callable, train: Split, batch_indices: Array) -> Any:
    dynamic, static = eqx.partition(model, eqx.is_array)

    def loss(dynamic: Any, batch: Split) -> Array:
        logits = jax.vmap(eqx.combine(dynamic, static))(batch.features)[:, 0]
        return jnp.mean(optax.sigmoid_binary_cross_entropy(logits, batch.accuracies))

    def step(carry: Any, index: Array) -> tuple[Any, None]:
        dynamic, state = carry
        gradient = jax.grad(loss)(dynamic, jax.tree.map(lambda x: x[index], train))
        updates, state = update(gradient, state)
        return (optax.apply_updates(dynamic, updates), state), None

    (dynamic, state), _ = jax.lax.scan(step, (dynamic, state), batch_indices)
    return eqx.combine(dynamic, static), state


def kendall_tau(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> float:
    """Kendall's rank correlation, tau-b; 0 if either is constant."""
    dx, dy = (np.sign(v[:, None] - v[None, :]) for v in (x, y))
    return float(np.sum(dx * dy) / max(np.linalg.norm(dx) * np.linalg.norm(dy), 1.0))


def r_squared(predicted: Float[np.ndarray, " n"], true: Float[np.ndarray, " n"]) -> float:
    """The fraction of the truth's variance that is predicted."""
    return float(1 - np.mean((predicted - true) ** 2) / np.var(true))


def score_predictors(
    space: WeightSpace,
    splits: list[Split],
    config: Config,
    *,
    report: "Reporter",
    key: PRNGKeyArray,
) -> tuple[dict[str, Score], Any]:
    """Train each kind of predictor `repeats` times; the scores, and the first UNF.

    Of each run, the epoch with the best validation tau is kept. Only that model, once, sees
    the test networks. Rate and sizes were chosen on validation networks; the paper's StatNN,
    600 wide with 6 layers, is as good there and slower.
    """
    train, valid, test = splits
    true = np.asarray(test.accuracies)
    kinds = {
        "UNF": partial(InvariantUNF, space, 1, 1, mlp_width=128),
        "StatNN": partial(StatNN, space, 1, 1, mlp_width=128, mlp_layers=3),
    }
    scores, models = {}, {}
    for name, make in kinds.items():
        predictions = []
        for repeat in range(config.repeats):
            model_key, fit_key = jax.random.split(jax.random.fold_in(key, repeat))
            history = fit(make(key=model_key), train, valid, config.epochs, key=fit_key)
            label = f"training {name}, {repeat + 1} of {config.repeats}"
            best, _ = max(report.track(label, history, config.epochs), key=lambda entry: entry[1])
            predictions.append(np.asarray(predict(best, test.features)))
            models.setdefault(name, best)
        tau = np.array([kendall_tau(p, true) for p in predictions])
        r2 = np.array([r_squared(p, true) for p in predictions])
        scores[name] = Score(tau, r2, np.stack(predictions))
    return scores, models["UNF"]


def invariance_gap(model: Any, space: WeightSpace, features: PyTree, *, key: PRNGKeyArray) -> float:
    """How much predictions change when each network's hidden neurons are reordered."""
    keys = jax.random.split(key, len(jax.tree.leaves(features)[0]))
    reorder = jax.vmap(lambda x, key: space.permute(x, space.sample_permutation(key)))
    change = predict(model, features) - predict(model, reorder(features, keys))
    return float(jnp.max(jnp.abs(change)))


class Reporter:
    """Progress bars on a terminal, plain lines elsewhere."""

    def __init__(self):
        from rich.console import Console

        self.console = Console(highlight=False)

    def track(self, label: str, steps: Any, total: int | None = None) -> Iterator[Any]:
        """Pass on `steps` while showing how far they are."""
        from rich.progress import track

        started = time.perf_counter()
        if self.console.is_terminal:
            yield from track(steps, f"{label:26}", total, console=self.console)
        else:
            yield from steps
            self.console.print(f"{label:26} {time.perf_counter() - started:5.1f} s")

    def table(self, scores: dict[str, Score], networks: int) -> None:
        """Print the scores, and who won."""
        from rich.table import Table

        table = Table("predictor", "Kendall's tau", "R²")
        for name, score in scores.items():
            table.add_row(name, summary(score.tau), summary(score.r2))
        repeats = len(next(iter(scores.values())).tau)
        self.console.print(f"on {networks} test networks, mean ± standard error of {repeats} runs:")
        self.console.print(table)
        winner = max(scores, key=lambda name: scores[name].tau.mean())
        self.console.print(f"{winner} ranks networks it has never seen best.")


def summary(values: Float[np.ndarray, " n"]) -> str:
    """Mean ± standard error, or the value if there is but one."""
    error = f" ± {values.std(ddof=1) / len(values) ** 0.5:.3f}" if len(values) > 1 else ""
    return f"{values.mean():.3f}{error}"


def draw(result: Result, *, key: PRNGKeyArray) -> None:
    """Three networks' decisions, and predicted against true accuracy."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.5, 3.9), layout="constrained", dpi=130)
    axes = figure.subplots(1, 4, width_ratios=[1, 1, 1, 1.45])
    order = np.argsort(result.accuracies)
    points, labels = two_moons(200, key=key)
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
    for name, colour in (("StatNN", "tab:orange"), ("UNF", "tab:green")):
        score = result.scores[name]
        label = f"{name}: tau {summary(score.tau)}"
        axis.scatter(true, score.predictions[0], s=12, c=colour, alpha=0.6, lw=0, label=label)
    limits = (min(true.min(), *(s.predictions[0].min() for s in result.scores.values())) - 0.03, 1)
    axis.set(xlabel="true accuracy", ylabel="predicted from the weights")
    axis.set(xlim=limits, ylim=limits, aspect="equal")
    axis.set_title(f"{tests} networks never seen before", fontsize=11)
    axis.legend(loc="lower right", fontsize=8.5, markerscale=1.8, handletextpad=0.2)
    axis.spines[["top", "right"]].set_visible(False)


def run(config: Config) -> Result:
    """Do the whole job: prints as it goes, and writes the picture.

    Raises:
        ValueError: if there are too few networks to split and rank.
    """
    if config.networks < 20:
        raise ValueError(f"networks is {config.networks}; expected at least 20")
    report = Reporter()
    say = report.console.print
    zoo, truth, fits, shuffle = jax.random.split(jax.random.key(config.seed), 4)
    params = train_networks(config, report=report, key=zoo)
    accuracies = true_accuracies(params, key=truth)
    low, middle, high = np.quantile(accuracies, [0.05, 0.5, 0.95])
    say(f"their accuracy: median {middle:.2f}, nine in ten between {low:.2f} and {high:.2f}")
    space = WeightSpace.from_spec(SPEC, jax.tree.map(lambda x: x[0], params))
    splits = make_splits(params, accuracies)
    scores, model = score_predictors(space, splits, config, report=report, key=fits)
    report.table(scores, len(splits[2].accuracies))
    gap = invariance_gap(model, space, splits[2].features, key=shuffle)
    say(f"reordering hidden neurons changes UNF's predictions by at most {gap:.0e}")
    result = Result(params, accuracies, scores, gap, config.out / "demo.png")
    draw(result, key=truth)
    say(f"picture: {result.picture}")
    return result


def main() -> None:
    """The command."""
    started = time.perf_counter()
    parser = argparse.ArgumentParser(
        prog="python -m unf.experiments.demo",
        description="Predict how accurate small networks are, from their weights alone.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    option = parser.add_argument
    option("--networks", type=int, default=Config.networks, help="how many networks to train")
    option("--turn", type=float, default=Config.turn, help="largest angle, in degrees")
    option("--repeats", type=int, default=Config.repeats, help="training runs of each predictor")
    option("--seed", type=int, default=Config.seed, help="of everything random")
    option("--out", type=Path, default=Config.out, help="folder for the picture")
    config = Config(**vars(parser.parse_args()))
    missing = [name for name in ("matplotlib", "rich") if importlib.util.find_spec(name) is None]
    if missing:
        remedy = "pip install 'universal-neural-functionals[plots]'"
        parser.error(f"{' and '.join(missing)} not installed; run: {remedy}")
    run(config)
    print(f"{time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
