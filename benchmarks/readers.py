"""Invariant models on networks of real size, with their vocabulary and classes fixed."""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from unf.models import InvariantUNF, reader
from unf.spec import WeightSpace
from unf.testing import spaces

NETWORKS = {"ResNet-50": spaces.resnet50, "GPT-2 small": spaces.gpt2}
MODELS: dict[str, Callable[[WeightSpace, Any], Any]] = {
    "InvariantUNF, 4 channels": lambda space, key: InvariantUNF(
        space, 1, 1, hidden_channels=4, key=key
    ),
    "InvariantUNF, 16 channels": lambda space, key: InvariantUNF(space, 1, 1, key=key),
    "reader, small": lambda space, key: reader(space, 1, size="small", key=key),
    "reader, base": lambda space, key: reader(space, 1, key=key),
}


def run(name: str, of_model: str, kind: str) -> dict[str, Any]:
    """Make a model, compile its `kind`, "forward" or "gradient", and run it."""
    space, key = NETWORKS[name](), jax.random.key(0)
    model = MODELS[of_model](space, key)
    params, static = eqx.partition(model, eqx.is_array)
    x = jax.tree.map(lambda s: jnp.ones(s.shape, s.dtype), space.to_shapes(1))

    def forward(params: Any, x: Any) -> Any:
        return eqx.combine(params, static)(x)[0]

    function = forward if kind == "forward" else jax.grad(forward)
    started = time.perf_counter()
    compiled: Any = jax.jit(function).lower(params, x).compile()
    compile_s, times = time.perf_counter() - started, []
    for _ in range(6):
        started = time.perf_counter()
        jax.block_until_ready(compiled(params, x))
        times.append(time.perf_counter() - started)
    return {
        "network": name,
        "model": of_model,
        "kind": kind,
        "weights": space.num_weights,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "compile_s": compile_s,
        "run_s": min(times[1:]),
        "temporary_bytes": compiled.memory_analysis().temp_size_in_bytes,
    }


def report(rows: list[dict[str, Any]]) -> str:
    """A table."""
    lines = [
        "| network | model | parameters | pass | compile | run | temporary memory |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['network']} | {row['model']} | {row['parameters']:,} | {row['kind']} | "
            f"{row['compile_s']:.0f} s | {row['run_s'] * 1e3:.1f} ms | "
            f"{row['temporary_bytes'] / 2**30:.1f} GiB |"
        )
    return "\n".join(lines)
