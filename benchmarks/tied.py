"""Tied layers against layers of one network: a forward pass, gathering the table included."""

from typing import Any, NamedTuple

import jax

from unf.nn import TiedLinear, UNFLinear
from unf.testing import random_features, spaces

from ._measure import SEED, as_json, measure_together

NETWORKS = {
    "MLP of the paper": spaces.paper_mlp,
    "CNN of the paper": spaces.paper_cnn,
    "RNN of the paper": spaces.paper_rnn,
    "Transformer of the paper": spaces.paper_transformer,
    "ResNet-50": spaces.resnet50,
    "GPT-2 small": spaces.gpt2,  # 15 GiB of features with 32 channels
}
CHANNELS = ((32, 1), (16, 16))
WANTED = 1.2


class Case(NamedTuple):
    """A network with channels."""

    network: str
    in_channels: int
    out_channels: int

    @property
    def name(self) -> str:
        """As in the table."""
        return f"{self.network}, {self.in_channels}→{self.out_channels}"


def cases() -> list[Case]:
    """Every network with all channels."""
    return [Case(network, *channels) for network in NETWORKS for channels in CHANNELS]


def run(case: Case) -> dict[str, Any]:
    """Both layers on the network's space with all axes permuted, in turns."""
    space, key = NETWORKS[case.network]().relax(), jax.random.key(SEED)
    channels = case.in_channels, case.out_channels
    tied = TiedLinear(*channels, spaces=[space], key=key)
    untied = UNFLinear(space, *channels, key=key)
    x = random_features(space, case.in_channels, key=key)
    functions = {
        "tied": lambda tied, untied, x: tied(x, space),
        "untied": lambda tied, untied, x: untied(x),
    }
    measured = measure_together(functions, tied, untied, x, seconds=5.0)
    return {
        "case": case.name,
        "keys": len(tied.keys),
        "terms": untied.plan.num_terms,
        "ratio": measured["tied"].run_s / measured["untied"].run_s,
        **as_json(measured),
    }


def report(rows: list[dict[str, Any]]) -> str:
    """A table."""
    lines = [
        f"| weight space | keys | terms | `UNFLinear` | `TiedLinear` | ratio (≤ {WANTED}) | "
        "compile |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        tied, untied = row["tied"], row["untied"]
        lines.append(
            f"| {row['case']} | {row['keys']:,} | {row['terms']:,} | "
            f"{untied['run_s'] * 1e3:.2f} ms | {tied['run_s'] * 1e3:.2f} ms | "
            f"{row['ratio']:.2f}× | {untied['compile_s']:.1f} s, {tied['compile_s']:.1f} s |"
        )
    return "\n".join(lines)
