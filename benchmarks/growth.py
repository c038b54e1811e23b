"""How compile time and operations grow with the number of blocks of a residual Transformer."""

from typing import Any

from unf.basis import make_plan
from unf.nn import apply
from unf.testing import spaces

from ._measure import as_json, layer_arguments, layer_functions, measure


def run(blocks: int) -> dict[str, Any]:
    """Measure the forward pass for that many blocks, 4→4 channels."""
    space = spaces.transformer(blocks, width=32, vocabulary=100)
    args = layer_arguments(space, 4, 4, 1)
    forward = layer_functions(apply, make_plan(space))["forward"]
    measured = as_json({"forward": measure(forward, *args, seconds=0.5)})
    return {"blocks": blocks, "tensors": len(space.leaves), **measured}


def report(rows: list[dict[str, Any]]) -> str:
    """A table with compile time and operations per tensor."""
    lines = ["| blocks | tensors | compile | operations | per tensor |", "|---|---|---|---|---|"]
    for row in rows:
        forward, tensors = row["forward"], row["tensors"]
        lines.append(
            f"| {row['blocks']} | {tensors} | {forward['compile_s']:.2f} s | "
            f"{forward['operations']} | {1e3 * forward['compile_s'] / tensors:.0f} ms, "
            f"{forward['operations'] / tensors:.1f} |"
        )
    return "\n".join(lines)
