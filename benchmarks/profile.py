"""What a forward pass is made of: its matrix products alone, and one copy of its data."""

from math import prod
from typing import Any

import jax
import jax.numpy as jnp

from unf.basis import Plan, make_plan
from unf.nn import apply, coefficient_shapes

from ._measure import as_json, layer_arguments, layer_functions, measure
from .literal import Case


def run(case: Case) -> dict[str, Any]:
    """The forward pass, each core's product on ready-made operands, and a copy of the input."""
    plan = make_plan(case.space)
    args = layer_arguments(case.space, case.in_channels, case.out_channels, case.batch)
    operands = _operands(plan, case)

    def products(operands):
        return {name: features @ matrix for name, (features, matrix) in operands.items()}

    def copy(x):
        return jax.tree.map(lambda leaf: leaf + 1.0, x)

    widest = max(operands, key=lambda name: _flops(operands[name]))
    found = {
        "forward": measure(layer_functions(apply, plan)["forward"], *args),
        "products": measure(products, operands),
        "widest": measure(products, {widest: operands[widest]}),
        "copy": measure(copy, args[1]),
    }
    flops = {name: _flops(pair) for name, pair in operands.items()}
    return {
        "case": case.name,
        "flops": sum(flops.values()),
        "widest": widest,
        "widest_flops": flops[widest],
        "measured": as_json(found),
    }


def _operands(plan: Plan, case: Case) -> dict[str, tuple[Any, Any]]:
    """For each core, features of the size it mixes and its matrix."""
    shapes = coefficient_shapes(plan, case.in_channels, case.out_channels)
    return {
        core.name: (
            jnp.ones((case.batch * core.size, shapes[core.name][0])),
            jnp.ones(shapes[core.name]),
        )
        for core in plan.cores
    }


def _flops(pair: tuple[Any, Any]) -> int:
    features, matrix = pair
    return 2 * features.shape[0] * prod(matrix.shape)


def report(rows: list[dict[str, Any]]) -> str:
    """A table of milliseconds."""
    lines = [
        "| weight space | GFLOP | forward | products alone | widest product | copy of the input |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        times = {name: found["run_s"] for name, found in row["measured"].items()}
        lines.append(
            f"| {row['case']} | {row['flops'] / 1e9:.2f} | {times['forward'] * 1e3:.1f} ms | "
            f"{times['products'] * 1e3:.1f} ms | `{row['widest']}`: {times['widest'] * 1e3:.1f} ms "
            f"({row['widest_flops'] / times['widest'] / 1e9:.0f} GFLOP/s) | "
            f"{times['copy'] * 1e3:.1f} ms |"
        )
    return "\n".join(lines)
