"""Small networks on two moons, trained all at once, some well and some badly."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray, PyTree

from .._progress import Progress

SPEC = {"w0": "[in] hidden", "b0": "hidden", "w1": "hidden [out]", "b1": "[out]"}
EXAMPLES, TEST_POINTS, BATCH = 256, 4000, 32


@dataclass(frozen=True)
class Config:
    """What the demo does; `width` is that of the networks."""

    networks: int = 2000
    width: int = 16
    steps: int = 300
    epochs: int = 40
    repeats: int = 3
    seed: int = 0
    out: Path = Path("out")


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
    choices, weights, data, flip = jax.random.split(key, 4)
    rate, scale, examples, flips = jax.random.uniform(choices, (4,))
    points, labels = two_moons(EXAMPLES, key=data)
    wrong = jax.random.bernoulli(flip, 0.2 * flips, (EXAMPLES,))
    normal = 2 ** (2.5 * scale - 1.5) * jax.random.normal(weights, (3, config.width))
    params = {
        "w0": normal[:2],
        "b0": jnp.zeros(config.width),
        "w1": normal[2:].T * (2 / config.width) ** 0.5,
        "b1": jnp.zeros(1),
    }
    return {
        "params": params,
        "points": points,
        "labels": (labels ^ wrong).astype(points.dtype),
        "examples": EXAMPLES ** (0.5 + 0.5 * examples),
        "rate": 10 ** (2.2 * rate - 3.5),
    }


def train_networks(config: Config, *, key: PRNGKeyArray) -> PyTree:
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
    with Progress(f"training {config.networks:,} networks", 10) as progress:
        for chunk in range(10):
            chunk_key = jax.random.fold_in(train_key, chunk)
            keys = jax.random.split(chunk_key, max(config.steps // 10, 1))
            runs, states = jax.block_until_ready(advance(runs, states, keys))
            progress.advance()
    return runs["params"]


def true_accuracies(params: PyTree, *, key: PRNGKeyArray) -> Float[np.ndarray, " networks"]:
    """The accuracy of each network on fresh points with the right labels."""
    points, labels = two_moons(TEST_POINTS, key=key)
    measure = jax.jit(partial(jax.lax.map, lambda p: accuracy(p, points, labels), batch_size=32))
    return np.asarray(measure(params))
