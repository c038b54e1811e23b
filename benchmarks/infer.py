"""How long `unf.infer` takes on networks of real size, and how it grows with depth."""

import time
from typing import Any

import jax
import jax.extend.core as jex

import unf
from tests.graph.networks._case import f32, i32, linen
from tests.graph.networks.attention import Gpt
from tests.graph.networks.deep import ResNet


def _gpt(layers: int) -> Gpt:
    return Gpt(layers, vocabulary=50257, width=768, context=1024, heads=12, hidden=3072)


NETWORKS = {
    "ResNet-50": lambda: linen(
        ResNet((3, 4, 6, 3), bottleneck=True, width=64, classes=1000), f32(1, 224, 224, 3)
    ),
    "GPT-2 small": lambda: linen(_gpt(12), i32(1, 1024)),
    **{f"GPT-2, {n} blocks": lambda n=n: linen(_gpt(n), i32(1, 1024)) for n in (3, 6, 24, 48)},
}


def run(name: str) -> dict[str, Any]:
    """Infer twice, the second time with the trace cached; inner equations are counted too."""
    fn, params, *inputs = NETWORKS[name]()
    start = time.perf_counter()
    space = unf.infer(fn, params, *inputs)
    first_s = time.perf_counter() - start
    start = time.perf_counter()
    unf.infer(fn, params, *inputs)
    again_s = time.perf_counter() - start
    jaxpr = jax.make_jaxpr(fn)(params, *inputs)
    return {
        "network": name,
        "tensors": len(space.leaves),
        "weights": space.num_weights,
        "names": len(space.sizes),
        "equations": _count(jaxpr.jaxpr),
        "first_s": first_s,
        "again_s": again_s,
    }


def _count(jaxpr: Any) -> int:
    inner = [j for eqn in jaxpr.eqns for j in jex.jaxprs_in_params(eqn.params)]
    return len(jaxpr.eqns) + sum(map(_count, inner))


def report(rows: list[dict[str, Any]]) -> str:
    """A table."""
    lines = [
        "| network | tensors | weights | names | equations | first | again | again, per equation |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        each = 1e3 * row["again_s"] / row["equations"]
        lines.append(
            f"| {row['network']} | {row['tensors']} | {row['weights']:,} | {row['names']} | "
            f"{row['equations']:,} | {row['first_s']:.2f} s | {row['again_s']:.2f} s | "
            f"{each:.2f} ms |"
        )
    return "\n".join(lines)
