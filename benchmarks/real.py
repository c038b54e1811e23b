"""Weight spaces of real size: plan, cost and one layer, 1→2 channels."""

import resource
import time
from typing import Any

import jax

from unf.basis import cost_report, make_plan
from unf.nn import apply
from unf.testing import spaces

from ._measure import as_json, layer_arguments, layer_functions, measure

# Fixed axes are channels, and coefficients grow with the square of their size: 50,257 tokens
# must be permuted, as the paper has it. Filter windows stay fixed.
NETWORKS = {
    "ResNet-50": lambda: spaces.resnet50().relax("class"),
    "GPT-2 small": lambda: spaces.gpt2().relax("token", "position"),
}


def run(name: str, kind: str) -> dict[str, Any]:
    """Plan, cost report, and one layer's `kind`, "forward" or "gradient"."""
    start = time.perf_counter()
    space = NETWORKS[name]()
    total = cost_report(space, 1, 2).total
    plan_s = time.perf_counter() - start
    args = layer_arguments(space, 1, 2, 1)
    measured = measure(layer_functions(apply, make_plan(space))[kind], *args, seconds=2.0)
    stats = jax.devices()[0].memory_stats() or {}
    peak = (
        stats.get("peak_bytes_in_use") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )
    return {
        "network": name,
        "kind": kind,
        "weights": space.num_weights,
        "terms": total.terms,
        "parameters": total.parameters,
        "flops": total.flops,
        "plan_s": plan_s,
        "peak_bytes": peak,
        **as_json({"layer": measured}),
    }


def report(rows: list[dict[str, Any]]) -> str:
    """A table."""
    lines = [
        "| network | weights | terms | plan and cost | pass | compile | run | peak memory so far |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        layer = row["layer"]
        lines.append(
            f"| {row['network']} | {row['weights']:,} | {row['terms']:,} | {row['plan_s']:.2f} s | "
            f"{row['kind']} | {layer['compile_s']:.1f} s | {layer['run_s'] * 1e3:.1f} ms | "
            f"{row['peak_bytes'] / 2**30:.1f} GiB |"
        )
    return "\n".join(lines)
