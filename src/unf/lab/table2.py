"""The paper's table of optimizers' sizes (appendix B), counted on real ones."""

from dataclasses import dataclass

import jax

from .._progress import Progress
from ..basis import count_terms
from ..optim import init_theta
from ..spec import WeightSpace
from ..testing import spaces

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
        task: the task's name.
        terms: terms of the last layer, with the paper's specification.
        unf: parameters of UNF with that specification.
        deepset: parameters of Deep Set.
        nfn: parameters of NFN; None where it does not apply.
        true_terms: terms with the network's own symmetries, every fixed axis permuted.
        true_unf: parameters of UNF with those.
    """

    task: str
    terms: int
    unf: int
    deepset: int
    nfn: int | None
    true_terms: int
    true_unf: int


def run(*, show_progress: bool = True) -> list[Row]:
    """Make every optimizer and count its parameters."""
    windows = (-1, -2, -3, -4)
    mlp, cnn = spaces.paper_mlp(), spaces.paper_cnn(corrected=True)
    tasks = [
        (mlp, spaces.mlp(64, 32, 10).relax(), lambda: _size("nfn", mlp)),
        (spaces.paper_cnn(), cnn, lambda: _size("nfn", cnn, spatial=windows, head_bias=False)),
        (spaces.paper_rnn(), spaces.paper_rnn(), lambda: None),
        (spaces.paper_transformer(), spaces.transformer().relax(), lambda: None),
    ]
    rows = []
    with Progress("table 2", len(tasks), unit="tasks", show=show_progress) as progress:
        for task, (paper, true, nfn) in zip(PAPER, tasks, strict=True):
            sizes = _size("unf", paper), _size("deepset"), nfn()
            rows.append(
                Row(task, count_terms(paper), *sizes, count_terms(true), _size("unf", true))
            )
            progress.advance(1, task)
    return rows


def as_text(rows: list[Row]) -> str:
    """The table, with a remark in each cell that differs from the paper's."""
    lines = [
        "| task | UNF | Deep Set | NFN | terms | true symmetries: terms | UNF |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        sizes = zip((row.unf, row.deepset, row.nfn), PAPER[row.task], strict=True)
        cells = [
            "n/a" if ours is None else f"{ours:,}" + ("" if ours == paper else f" (paper {paper})")
            for ours, paper in sizes
        ]
        cells += [f"{number:,}" for number in (row.terms, row.true_terms, row.true_unf)]
        lines.append(f"| {row.task} | {' | '.join(cells)} |")
    same = all((row.unf, row.deepset, row.nfn) == PAPER[row.task] for row in rows)
    lines += [
        "\nEvery cell is the paper's." if same else "\nCells with a remark differ from the paper.",
        "Sizes include α, β and γ₀, which the paper's caption says are left out.",
    ]
    return "\n".join(lines)


def _size(kind: str, space: WeightSpace | None = None, **options) -> int:
    return init_theta(kind, space, key=jax.random.key(0), **options).num_parameters
