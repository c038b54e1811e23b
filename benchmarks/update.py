"""One update of a learned optimizer beside Adam's: time, temporary memory, and state."""

import time
from collections.abc import Mapping
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import optax

from unf import WeightSpace
from unf._devices import in_threads
from unf.lab.generalize import SHIPPED
from unf.optim import FORMS, init_theta, learned_optimizer, load

from ._measure import SEED, as_json, time_together
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
    """Adam; each kind, with normalized features and 32 channels; and those for any network.

    The last ones also with momenta in bfloat16.
    """
    found = {"adam": optax.adam(1e-3)}
    for kind in KINDS:
        theta = init_theta(kind, space, key=jax.random.key(SEED), form=FORMS["normalized"])
        found[kind] = learned_optimizer(theta.on(space))
    for name in SHIPPED:
        theta = load(name).on(space)
        found[name] = learned_optimizer(theta)
        found[f"{name}, bfloat16"] = learned_optimizer(theta, momenta_dtype=jnp.bfloat16)
    return found


def run(name: str) -> dict[str, Any]:
    """Every optimizer on one network, in turns; large networks are only compiled on CPUs."""
    space = NETWORKS[name]().relax()
    shapes = space.unflatten([jax.ShapeDtypeStruct(x.shape, jnp.float32) for x in space.leaves])
    chosen = optimizers(space)
    compiled = in_threads(lambda optimizer: _Training(optimizer, shapes), chosen.values())
    found = dict(zip(chosen, compiled, strict=True))
    row = {"network": name, "weights": space.num_weights}
    row["state"] = {n: _bytes(x.shapes) / space.num_weights for n, x in found.items()}
    if jax.default_backend() == "cpu" and space.num_weights > MOST_ON_CPUS:
        memory = {n: x.memory_analysis().temp_size_in_bytes for n, x in found.items()}
        return {**row, "measured": {n: {"temp_bytes": int(x)} for n, x in memory.items()}}
    keys = jax.random.split(jax.random.key(SEED), len(space.leaves))
    pairs = zip(keys, space.leaves, strict=True)
    params = space.unflatten([jax.random.normal(key, leaf.shape) for key, leaf in pairs])
    for training in found.values():
        training.begin(params)
    compile_s = {n: x.compile_s for n, x in found.items()}
    return {**row, "measured": as_json(time_together(found, compile_s, params, seconds=2.0))}


class _Training:
    """A compiled update that goes on with its state, whose memory it reuses."""

    def __init__(self, optimizer: optax.GradientTransformation, shapes: Any):
        self._optimizer, start = optimizer, time.perf_counter()
        self.shapes: Any = jax.eval_shape(optimizer.init, shapes)
        update = jax.jit(optimizer.update, donate_argnums=1)
        self._update: Any = update.lower(shapes, self.shapes, shapes).compile()
        self.as_text, self.memory_analysis = self._update.as_text, self._update.memory_analysis
        self.compile_s = time.perf_counter() - start  # beside the others

    def begin(self, params: Any) -> None:
        self._state = self._optimizer.init(params)

    def __call__(self, params: Any) -> Any:
        updates, self._state = self._update(params, self._state, params)
        return updates


def _bytes(state: Any) -> int:
    return sum(prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(state))


def report(rows: list[dict[str, Any]]) -> str:
    """A table."""
    lines = [
        "| network | optimizer | update | in a queue | times Adam's | wanted on an H200 "
        "| temporary memory | bytes of state per weight |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        adam = row["measured"]["adam"].get("run_s")
        for name, one in row["measured"].items():
            seconds, wanted = one.get("run_s"), WANTED.get(row["network"], {}).get(name)
            cells = [
                row["network"],
                name,
                f"{seconds * 1e3:.2f} ms" if seconds else "",
                f"{one['queued_s'] * 1e3:.2f} ms" if seconds else "",
                f"{seconds / adam:.1f}×" if seconds else "",
                f"≤ {wanted * 1e3:.0f} ms" if wanted else "",
                f"{one['temp_bytes'] / 2**20:,.1f} MiB",
                f"{row['state'][name]:.1f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
