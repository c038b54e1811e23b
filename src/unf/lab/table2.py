"""The paper's table of optimizers' sizes (appendix B), counted on real ones."""

from dataclasses import dataclass

import jax

from ..basis import count_terms
from ..optim import init_theta
from ..spec import WeightSpace
from ..testing import spaces
from ._progress import Progress

PAPER = {
    "MLP on FashionMNIST": (3_783, 2_788, 3_783),
    "CNN on CIFAR-10": (7_369, 2_788, 41_603),
    "RNN on LM1B": (8_043, 2_788, None),
    "Transformer on LM1B": (64_168, 2_788, None),
}
"""Parameters of UNF, Deep Set and NFN as printed."""


@dataclass(frozen=True)
class Row:
    """One task; sizes include α, β and γ₀, as the paper's do.

    Attributes:
        task: its name.
        terms: of the last layer with the paper's specification.
        unf: parameters with it.
        deepset: parameters.
        nfn: parameters; None where filters have no windows and axes repeat.
        true_terms: terms with the network's own symmetries, every fixed axis permuted.
        true_unf: parameters with those.
    """

    task: str
    terms: int
    unf: int
    deepset: int
    nfn: int | None
    true_terms: int
    true_unf: int


def run(*, show_progress: bool = False) -> list[Row]:
    """Make every optimizer and count.

    Args:
        show_progress: show progress on standard error.
    """
    cnn, windows = spaces.paper_cnn(corrected=True), (-1, -2, -3, -4)
    cases: list[tuple[WeightSpace, tuple[WeightSpace, dict] | None, WeightSpace]] = [
        (spaces.paper_mlp(), (spaces.paper_mlp(), {}), spaces.mlp(64, 32, 10).relax()),
        (spaces.paper_cnn(), (cnn, {"spatial": windows, "head_bias": False}), cnn),
        (spaces.paper_rnn(), None, spaces.paper_rnn()),
        (spaces.paper_transformer(), None, spaces.transformer().relax()),
    ]
    rows = []
    with Progress("making every optimizer", len(cases), show=show_progress) as progress:
        for task, (paper, nfn, true) in zip(PAPER, cases, strict=True):
            progress.advance(0, task)
            rows.append(
                Row(
                    task,
                    count_terms(paper),
                    _size("unf", paper),
                    _size("deepset"),
                    nfn and _size("nfn", nfn[0], **nfn[1]),
                    count_terms(true),
                    _size("unf", true),
                )
            )
            progress.advance()
    return rows


def as_text(rows: list[Row]) -> str:
    """The table, with a mark for each cell that is not the paper's."""
    lines = [
        "| task | UNF | Deep Set | NFN | terms | true symmetries: terms | UNF |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        printed = PAPER[row.task]
        cells = [
            "n/a" if ours is None else f"{ours:,}" + ("" if ours == paper else f" (paper {paper})")
            for ours, paper in zip((row.unf, row.deepset, row.nfn), printed, strict=True)
        ]
        cells += [f"{row.terms:,}", f"{row.true_terms:,}", f"{row.true_unf:,}"]
        lines.append(f"| {row.task} | {' | '.join(cells)} |")
    same = all((row.unf, row.deepset, row.nfn) == PAPER[row.task] for row in rows)
    lines.append(
        "\nEvery cell is the paper's." if same else "\nCells with a remark differ from the paper."
    )
    lines.append("Sizes include α, β and γ₀, which the paper's caption says are left out.")
    return "\n".join(lines)


def _size(kind: str, space: WeightSpace | None = None, **options) -> int:
    return init_theta(kind, space, key=jax.random.key(0), **options).num_parameters
