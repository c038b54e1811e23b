"""The factored layer against the paper's layer taken literally, which does the authors' work."""

from dataclasses import dataclass
from typing import Any

from unf import WeightSpace
from unf.basis import make_plan
from unf.nn import apply
from unf.testing import literal_layer, spaces

from ._measure import Measurement, as_json, layer_arguments, layer_functions, measure_together


@dataclass(frozen=True)
class Case:
    """A weight space with channels and batch, and the ratios wanted of it."""

    name: str
    space: WeightSpace
    in_channels: int
    out_channels: int
    batch: int
    wanted: tuple[float, float, float, float]


CASES = [
    Case("MLP 64-32-10, 32→32", spaces.paper_mlp(), 32, 32, 1, (2, 1, 1, 1)),
    Case(
        "MLP 784-512-512-10, 16→16", spaces.mlp(784, 512, 512, 10).relax(), 16, 16, 1, (2, 1, 1, 1)
    ),
    Case("CNN of the paper, 32→32", spaces.paper_cnn(), 32, 32, 1, (2, 1, 1, 1)),
    Case("Transformer of the paper, 32→32", spaces.paper_transformer(), 32, 32, 1, (22, 3, 4, 1)),
    Case(
        "GRU seq2seq, batch 10, 16→16", spaces.gru_seq2seq().relax(), 16, 16, 10, (20, 20, 25, 12)
    ),
]


def run(case: Case) -> dict[str, Any]:
    """Measure both layers; ratios are literal over factored, compile and memory of the gradient."""
    plan = make_plan(case.space)
    args = layer_arguments(case.space, case.in_channels, case.out_channels, case.batch)
    layers = {"factored": apply, "literal": literal_layer}
    found: dict[str, dict[str, Measurement]] = {name: {} for name in layers}
    for kind in ("forward", "gradient"):
        functions = {name: layer_functions(layer, plan)[kind] for name, layer in layers.items()}
        for name, measurement in measure_together(functions, *args).items():
            found[name][kind] = measurement
    ours, literal = found["factored"], found["literal"]
    ratios = {
        "compile": literal["gradient"].compile_s / ours["gradient"].compile_s,
        "forward": literal["forward"].run_s / ours["forward"].run_s,
        "gradient": literal["gradient"].run_s / ours["gradient"].run_s,
        "memory": literal["gradient"].temp_bytes / max(ours["gradient"].temp_bytes, 1),
    }
    wanted = dict(zip(ratios, case.wanted, strict=True))
    return {
        "case": case.name,
        "ratios": ratios,
        "wanted": wanted,
        **{name: as_json(measurements) for name, measurements in found.items()},
    }


def report(rows: list[dict[str, Any]]) -> str:
    """A table of ratios, with what was wanted in parentheses."""
    lines = ["| weight space | compile | forward | gradient | memory |", "|---|---|---|---|---|"]
    for row in rows:
        cells = [
            f"{row['ratios'][k]:.1f}× (≥ {row['wanted'][k]})"
            for k in ("compile", "forward", "gradient", "memory")
        ]
        lines.append(f"| {row['case']} | {' | '.join(cells)} |")
    lines += [
        "",
        "| factored | compile | forward | gradient | temporary memory |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        ours = row["factored"]
        lines.append(
            f"| {row['case']} | {ours['gradient']['compile_s']:.2f} s | "
            f"{ours['forward']['run_s'] * 1e3:.2f} ms | {ours['gradient']['run_s'] * 1e3:.2f} ms | "
            f"{ours['gradient']['temp_bytes'] / 2**20:.1f} MiB |"
        )
    return "\n".join(lines)
