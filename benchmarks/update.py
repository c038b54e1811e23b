"""One update of a learned optimizer beside Adam's: time, temporary memory, and state."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import optax

from unf import WeightSpace
from unf.lab.generalize import SHIPPED
from unf.optim import FORMS, init_theta, learned_optimizer, load

from ._measure import SEED, as_json, measure_together
from .tied import NETWORKS

KINDS = ("sgdm", "deepset", "unf", "tied")
MOST_ON_CPUS = 2**22
"""Networks with more weights are only compiled there."""
WANTED = {
    "ResNet-50": {"deepset": 8e-3, "unf": 12e-3, "tied": 12e-3},
    "GPT-2 small": {"deepset": 12e-3, "unf": 18e-3, "tied": 18e-3},
}
"""Seconds on one H200."""


def optimizers(space: WeightSpace) -> Mapping[str, optax.GradientTransformation]:
    """Adam; each kind, with normalized features and 32 channels; and those for any network."""
    found = {"adam": optax.adam(1e-3)}
    for kind in KINDS:
        theta = init_theta(kind, space, key=jax.random.key(SEED), form=FORMS["normalized"])
        found[kind] = learned_optimizer(theta.on(space))
    return found | {name: learned_optimizer(load(name).on(space)) for name in SHIPPED}


def run(name: str) -> dict[str, Any]:
    """Every optimizer on one network, in turns; large networks are only compiled on CPUs."""
    space = NETWORKS[name]().relax()
    made = optimizers(space)
    shapes = space.unflatten([jax.ShapeDtypeStruct(x.shape, jnp.float32) for x in space.leaves])
    states: Any = jax.eval_shape(lambda p: {n: o.init(p) for n, o in made.items()}, shapes)
    row = {"network": name, "weights": space.num_weights}
    row["state"] = {n: _size(state) / space.num_weights for n, state in states.items()}
    functions = {n: _update(n, o) for n, o in made.items()}
    if jax.default_backend() == "cpu" and space.num_weights > MOST_ON_CPUS:
        measured = {}
        for n, function in functions.items():
            compiled: Any = jax.jit(function).lower(shapes, states, shapes).compile()
            measured[n] = {"temp_bytes": int(compiled.memory_analysis().temp_size_in_bytes)}
        return {**row, "measured": measured}
    keys = jax.random.split(jax.random.key(SEED), len(space.leaves))
    pairs = zip(keys, space.leaves, strict=True)
    params = space.unflatten([jax.random.normal(key, leaf.shape) for key, leaf in pairs])
    states = {n: o.init(params) for n, o in made.items()}
    timed = measure_together(functions, params, states, params, seconds=2.0)
    return {**row, "measured": as_json(timed)}


def _update(name: str, optimizer: optax.GradientTransformation) -> Callable:
    return lambda gradients, states, params: optimizer.update(gradients, states[name], params)


def _size(state: Any) -> int:
    return sum(prod(x.shape) for x in jax.tree.leaves(state))


def report(rows: list[dict[str, Any]]) -> str:
    """A table."""
    lines = [
        "| network | optimizer | update | times Adam's | wanted on an H200 | temporary memory | "
        "numbers of state per weight |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        adam = row["measured"]["adam"].get("run_s")
        for name, one in row["measured"].items():
            seconds, wanted = one.get("run_s"), WANTED.get(row["network"], {}).get(name)
            cells = [
                row["network"],
                name,
                f"{seconds * 1e3:.2f} ms" if seconds else "",
                f"{seconds / adam:.1f}×" if seconds else "",
                f"≤ {wanted * 1e3:.0f} ms" if wanted else "",
                f"{one['temp_bytes'] / 2**20:,.1f} MiB",
                f"{row['state'][name]:.1f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
