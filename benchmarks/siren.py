"""One training step of everything that reads weights, on SIRENs with 1,185 weights, 64 at once."""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from unf._devices import in_threads
from unf.lab.predict._methods import METHODS, Problem
from unf.lab.tasks import ImplicitImage
from unf.models import reader

from ._measure import SEED, as_json, time_together

BATCH, CLASSES = 64, 10
SIZES = ("small", "base", "large")
CASES = ("statnn", "deepset", "unf", "tied", "probe", *(f"reader {size}" for size in SIZES))
CASES += ("reader-probe",)


def run(cases: tuple[str, ...] = CASES) -> list[dict[str, Any]]:
    """Gradients of the cross-entropy and an update of Adam for each model, in turns."""
    task = ImplicitImage("digits")
    keys = jax.random.split(jax.random.key(SEED), BATCH)
    x = jax.vmap(lambda key: task.init(key=key))(keys)
    x = jax.tree.map(lambda leaf: leaf[..., None], x)
    classes = jnp.arange(BATCH) % CLASSES
    steps = {name: _Step(_make(name, task), x, classes) for name in cases}
    in_threads(_Step.compile, steps.values())
    compile_s = {name: step.compile_s for name, step in steps.items()}
    measured = as_json(time_together(steps, compile_s, x, classes))
    return [
        {"model": name, **measured[name], **steps[name].facts, "batch": BATCH} for name in cases
    ]


def _make(name: str, task: ImplicitImage) -> Any:
    key = jax.random.key(SEED)
    if name.startswith("reader "):
        size: Any = name.split()[1]
        return reader(task.space, CLASSES, key=key, size=size)
    method = METHODS[name]
    if method.make is None:
        assert method.make_tied is not None
        return method.make_tied([task.space], CLASSES, key).on(task.space)
    return method.make(Problem(task.space, CLASSES, task.network), key)


class _Step:
    """A compiled training step, which goes on with its own state."""

    def __init__(self, model: Any, x: Any, classes: Any):
        self.params, static = eqx.partition(model, eqx.is_inexact_array)
        optimizer = optax.adam(1e-3)
        self.state = optimizer.init(self.params)

        def loss(params: Any, x: Any, classes: Any) -> Any:
            logits = jax.vmap(eqx.combine(params, static))(x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, classes).mean()

        def step(params: Any, state: Any, x: Any, classes: Any) -> Any:
            value, gradient = jax.value_and_grad(loss)(params, x, classes)
            updates, state = optimizer.update(gradient, state)
            return optax.apply_updates(params, updates), state, value

        self._lower = jax.jit(step, donate_argnums=(0, 1)).lower, (x, classes)

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

    def __call__(self, x: Any, classes: Any) -> Any:
        self.params, self.state, loss = self._step(self.params, self.state, x, classes)
        return loss  # the rest is donated to the next step


def report(rows: list[dict[str, Any]]) -> str:
    """A table."""
    lines = [
        "| model | parameters | step | in a queue | GFLOP | GB read and written "
        "| temporary memory |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        flops, moved = (f"{(row[name] or 0) / 1e9:.2f}" for name in ("flops", "bytes"))
        lines.append(
            f"| {row['model']} | {row['parameters']:,} | {row['run_s'] * 1e3:.2f} ms | "
            f"{row['queued_s'] * 1e3:.2f} ms | {flops} | {moved} | "
            f"{row['temp_bytes'] / 2**20:,.0f} MiB |"
        )
    return "\n".join(lines)
