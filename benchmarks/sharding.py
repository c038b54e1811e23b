"""A weight space spread over virtual devices: what each holds, and what they exchange."""

import re
import time
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from unf import WeightSpace
from unf.basis import Plan, cost_report, make_plan
from unf.nn import apply, coefficient_shapes, leaf_shardings

from .real import NETWORKS

NETWORK, CHANNELS, DEVICES = "GPT-2 small", (1, 2), (1, 2, 4, 8)
_COLLECTIVE = re.compile(
    r" = (.*?) (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\("
)


CASES = [
    *((kind, devices, "chosen") for kind in ("forward", "gradient") for devices in DEVICES),
    ("forward", max(DEVICES), "first"),
    ("forward", max(DEVICES), "last"),
]


def run(kind: str, devices: int, cut: str) -> dict[str, Any]:
    """Compile a layer's "forward" or "gradient" for so many devices; nothing is run.

    Leaves come cut as `leaf_shardings` chooses, or along the first or last axis that can be.
    """
    start = time.perf_counter()
    space = NETWORKS[NETWORK]()
    plan, mesh = make_plan(space), Mesh(jax.devices()[:devices], "devices")

    def forward(coefficients, x):
        return apply(plan, coefficients, x, mesh=mesh)

    def loss(coefficients, x):
        return sum(jnp.sum(y * y) for y in jax.tree.leaves(forward(coefficients, x)))

    function = forward if kind == "forward" else jax.grad(loss, argnums=(0, 1))
    compiled = jax.jit(function).lower(*_arguments(plan, mesh, cut)).compile()
    memory: Any = compiled.memory_analysis()
    report = cost_report(space, *CHANNELS, devices=devices)
    exchanged = _exchanged(compiled.as_text() or "")
    leaf = 4 * CHANNELS[0] * max(prod(leaf.shape) for leaf in space.leaves)
    return {
        "network": NETWORK,
        "channels": CHANNELS,
        "devices": devices,
        "kind": kind,
        "cut": cut,
        "argument_bytes": memory.argument_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "exchanged_bytes": {name: sum(sizes) for name, sizes in exchanged.items()},
        "largest_exchanged_bytes": max((max(sizes) for sizes in exchanged.values()), default=0),
        "largest_leaf_bytes": leaf,
        "reported_bytes": {
            "held": report.bytes_in + report.bytes_coefficients,
            "exchanged": report.total.bytes_exchanged,
        },
        "compile_s": time.perf_counter() - start,
    }


def _arguments(plan: Plan, mesh: Mesh, cut: str) -> tuple[Any, Any]:
    whole = NamedSharding(mesh, PartitionSpec())
    coefficients = {
        name: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=whole)
        for name, shape in coefficient_shapes(plan, *CHANNELS).items()
    }
    x = jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        plan.in_space.to_shapes(CHANNELS[0]),
        _shardings(plan.in_space, mesh, cut),
    )
    return coefficients, x


def _shardings(space: WeightSpace, mesh: Mesh, cut: str) -> Any:
    if cut == "chosen":
        return leaf_shardings(space, mesh)
    specs = []
    for leaf in space.leaves:
        places = [i for i, size in enumerate(leaf.shape) if size % mesh.size == 0]
        specs.append(PartitionSpec(*[None] * places[0 if cut == "first" else -1], "devices"))
    return space.unflatten([NamedSharding(mesh, spec) for spec in specs])


def _exchanged(text: str) -> dict[str, list[int]]:
    """For each kind of collective in a compiled program, the bytes of each array it makes."""
    found: dict[str, list[int]] = {}
    for shapes, kind in _COLLECTIVE.findall(text):
        arrays = re.findall(r"f32\[(.*?)\]", shapes)
        sizes = [4 * prod(map(int, filter(None, array.split(",")))) for array in arrays]
        # An all-to-all makes the pieces of one array, others several arrays at once.
        found.setdefault(kind, []).extend([sum(sizes)] if kind == "all-to-all" else sizes)
    return found


def report(rows: list[dict[str, Any]]) -> str:
    """A table of bytes per device."""
    lines = [
        "| pass | devices | leaves come cut | arguments | outputs | temporary | together | "
        "exchanged | largest array exchanged | exchanged, by the cost report |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        held = [row[f"{part}_bytes"] for part in ("argument", "output", "temporary")]
        exchanged = [f"{_scaled(n)} {kind}" for kind, n in sorted(row["exchanged_bytes"].items())]
        counted = row["kind"] == "forward" and row["cut"] == "chosen"
        cells = [
            row["kind"],
            str(row["devices"]),
            row["cut"],
            *map(_scaled, held),
            _scaled(sum(held)),
            ", ".join(exchanged) or "–",
            _scaled(row["largest_exchanged_bytes"]),
            _scaled(row["reported_bytes"]["exchanged"]) if counted else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _scaled(size: int) -> str:
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{size / 2**10:.0f} KiB"
