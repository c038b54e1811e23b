"""One training step of everything that reads weights, 64 networks at once, from three zoos."""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from unf import WeightSpace
from unf._devices import in_threads
from unf.lab.predict._methods import METHODS, Problem
from unf.lab.zoos import ImplicitZoo, SmallCNNZoo, VariedRNN
from unf.models import Invariant, reader

from ._measure import SEED, as_json, time_together

BATCH = 64
SIZES = ("small", "base", "large")
MODELS = ("statnn", "deepset", "unf", "tied", "probe", *(f"reader {size}" for size in SIZES))
MODELS += ("reader-probe",)
NETWORKS = {
    "SIREN": (ImplicitZoo(dataset="digits"), 10),
    "CNN": (SmallCNNZoo(), 1),
    "RNN": (VariedRNN(), 1),
}
"""What is read, and the number of classes; 1 is a number from 0 to 1."""


def run(network: str, models: tuple[str, ...] = MODELS) -> list[dict[str, Any]]:
    """Gradients of the cross-entropy and an update of Adam for each model, in turns."""
    recipe, out_size = NETWORKS[network]
    task: Any = recipe.task
    keys = jax.random.split(jax.random.key(SEED), BATCH)
    x = jax.vmap(lambda key: task.init(key=key))(keys)
    x = jax.tree.map(lambda leaf: leaf[..., None], x)
    numbers = np.arange(BATCH)
    targets = jnp.asarray(numbers % out_size if out_size > 1 else numbers / BATCH)
    steps = {name: _Step(_make(name, recipe, out_size), x, targets) for name in models}
    in_threads(_Step.compile, steps.values())
    compile_s = {name: step.compile_s for name, step in steps.items()}
    measured = as_json(time_together(steps, compile_s, x, targets))
    shared = {"network": network, "weights": task.space.num_weights, "batch": BATCH}
    return [{"model": name, **measured[name], **steps[name].facts, **shared} for name in models]


def _make(name: str, recipe: Any, out_size: int) -> Any:
    key, task, network = jax.random.key(SEED), recipe.task, recipe.task.network
    if name.startswith("reader "):
        size: Any = name.split()[1]
        return reader(task.space, out_size, key=key, size=size)
    if isinstance(recipe, SmallCNNZoo):
        shape = (16, 16, 1)  # as CIFAR-10 is stored, in gray
        network = network._replace(
            input_shape=shape, start=lambda size, key: jnp.zeros((size, *shape), jnp.float32)
        )
    method = METHODS[name]
    if method.make is None:
        assert method.make_tied is not None
        return _Bound(method.make_tied([task.space], out_size, key), task.space)
    return method.make(Problem(task.space, out_size, network, recipe.keeps_fixed), key)


class _Bound(eqx.Module):
    """A model for any network, bound to one space in every step, as `unf predict train` does."""

    model: Invariant
    space: WeightSpace = eqx.field(static=True)

    def __call__(self, x: Any) -> Any:
        return self.model.on(self.space)(x)


def _loss(outputs: Any, targets: Any) -> Any:
    if outputs.shape[-1] > 1:
        return optax.softmax_cross_entropy_with_integer_labels(outputs, targets)
    return optax.sigmoid_binary_cross_entropy(outputs[..., 0], targets)


class _Step:
    """A compiled training step, which goes on with its own state."""

    def __init__(self, model: Any, x: Any, targets: Any):
        self.params, static = eqx.partition(model, eqx.is_inexact_array)
        optimizer = optax.adam(1e-3)
        self.state = optimizer.init(self.params)

        def loss(params: Any, x: Any, targets: Any) -> Any:
            return _loss(jax.vmap(eqx.combine(params, static))(x), targets).mean()

        def step(params: Any, state: Any, x: Any, targets: Any) -> Any:
            value, gradient = jax.value_and_grad(loss)(params, x, targets)
            updates, state = optimizer.update(gradient, state)
            return optax.apply_updates(params, updates), state, value

        self._lower = jax.jit(step, donate_argnums=(0, 1)).lower, (x, targets)

    def compile(self) -> None:
        start, (lower, inputs) = time.perf_counter(), self._lower
        self._step: Any = lower(self.params, self.state, *inputs).compile()
        self.compile_s = time.perf_counter() - start  # beside the others
        self.as_text, self.memory_analysis = self._step.as_text, self._step.memory_analysis
        cost = self._step.cost_analysis() or {}
        cost = cost[0] if isinstance(cost, list) else cost
        self.facts = {
            "parameters": sum(leaf.size for leaf in jax.tree.leaves(self.params)),
            "flops": cost.get("flops"),
            "bytes": cost.get("bytes accessed"),
        }

    def __call__(self, x: Any, targets: Any) -> Any:
        self.params, self.state, loss = self._step(self.params, self.state, x, targets)
        return loss  # the rest is donated to the next step


def report(rows: list[dict[str, Any]]) -> str:
    """A table."""
    lines = [
        "| networks | model | parameters | step | in a queue | GFLOP | GB read and written "
        "| temporary memory |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        flops, moved = (f"{(row[name] or 0) / 1e9:.2f}" for name in ("flops", "bytes"))
        lines.append(
            f"| {row['network']} | {row['model']} | {row['parameters']:,} | "
            f"{row['run_s'] * 1e3:.2f} ms | {row['queued_s'] * 1e3:.2f} ms | {flops} | {moved} | "
            f"{row['temp_bytes'] / 2**20:,.0f} MiB |"
        )
    return "\n".join(lines)
