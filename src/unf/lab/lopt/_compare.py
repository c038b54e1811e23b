"""A comparison of optimizers on one task, and the file that holds it."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ...meta import Task
from ...optim import Theta, learned_optimizer
from .._progress import Progress
from .._provenance import provenance
from .._scores import summary
from ._evaluate import GRIDS, Curves, at_edge, evaluate, tune

TITLES = {
    "unf": "UNF",
    "nfn": "NFN",
    "deepset": "Deep Set",
    "sgdm": "SGDM, meta-trained",
    "adam": "Adam, tuned",
    "sgdm-tuned": "SGDM, tuned",
}
"""Optimizers' names in pictures and tables."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Curves of several optimizers on one task.

    Attributes:
        task: the task's name.
        dataset: the dataset's name.
        horizon: the number of training steps.
        seeds: one network was trained for each.
        curves: by the optimizer's name.
        notes: by the optimizer's name, what is shown beside it: the options that the grid
            search chose, or how long it was meta-trained.
    """

    task: str
    dataset: str
    horizon: int
    seeds: list[int]
    curves: dict[str, Curves]
    notes: dict[str, dict[str, Any]]

    def to_json(self) -> str:
        """Everything, with versions, machine and date."""
        curves = {
            name: {part: np.round(x, 6).tolist() for part, x in curves._asdict().items()}
            for name, curves in self.curves.items()
        }
        return json.dumps({**vars(self), "curves": curves, **provenance()})

    @classmethod
    def from_json(cls, text: str) -> "Comparison":
        """Read what `to_json` wrote.

        Raises:
            ValueError: if the text is something else.
        """
        try:
            record = json.loads(text)
            curves = {
                name: Curves(*(np.asarray(entry[part], np.float64) for part in Curves._fields))
                for name, entry in record["curves"].items()
            }
            names = [f.name for f in dataclasses.fields(cls) if f.name != "curves"]
            return cls(**{name: record[name] for name in names}, curves=curves)
        except (
            ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError,
        ) as error:  # fmt: skip
            raise ValueError(f"not a comparison of optimizers ({error!r})") from error

    def __str__(self) -> str:
        head = "training, whole horizon | its last tenth | held out, last tenth"
        lines = [f"| optimizer | {head} | |", "|---|---|---|---|---|"]
        for name, curves in sorted(self.curves.items(), key=lambda item: _order(item[1])):
            losses = (curves.train.mean(axis=1), curves.last, curves.last_heldout)
            columns = " | ".join(_losses(values) for values in losses)
            note = ", ".join(f"{key} {_short(x)}" for key, x in self.notes[name].items())
            lines.append(f"| {title(name)} | {columns} | {note} |")
        lines.append(
            f"\n{self.task} on {self.dataset}: {self.horizon} steps, "
            f"{len(self.seeds)} fresh networks, mean ± standard error"
        )
        return "\n".join(lines)


def compare(
    task: Task,
    optimizers: Mapping[str, Theta],
    *,
    horizon: int | None = None,
    seeds: Sequence[int] = tuple(range(5)),
    baselines: Sequence[str] = tuple(GRIDS),
    notes: Mapping[str, Mapping[str, Any]] | None = None,
    show_progress: bool = True,
) -> Comparison:
    """Train fresh networks with learned optimizers and with tuned hand-designed ones.

    Args:
        task: what to train.
        optimizers: learned optimizers by name.
        horizon: training steps, by default the paper's.
        seeds: one network is trained for each.
        baselines: hand-designed optimizers, see `GRIDS`.
        notes: what to show beside learned optimizers.
        show_progress: show the time left on standard error.
    """
    both = [name for name in baselines if name in optimizers]
    if both:
        raise ValueError(f"learned optimizers cannot have the names of tuned ones: {both}")
    steps, data = horizon or task.horizon, task.data()
    total = len(optimizers) + len(baselines)
    made: dict[str, tuple[Any, Any]] = {k: (learned_optimizer, x) for k, x in optimizers.items()}
    remarks = {name: dict((notes or {}).get(name, {})) for name in optimizers}
    curves = {}
    with Progress(f"evaluation on {task.name}", total, show=show_progress) as progress:
        for name in (*optimizers, *baselines):
            if name not in made:
                chosen = tune(task, data, name, horizon=steps)
                edge = ", ".join(at_edge(name, chosen))
                remarks[name] = chosen | ({"at the edge of the grid:": edge} if edge else {})
                made[name] = GRIDS[name][0], chosen
            curves[name] = evaluate(task, data, *made[name], seeds=seeds, horizon=steps)
            progress.advance(1, title(name))
    dataset = getattr(task, "dataset", "")
    return Comparison(task.name, dataset, steps, list(seeds), curves, remarks)


def join(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Combine the comparisons of each task into one; they must have trained the same networks.

    Raises:
        ValueError: if two differ in data, steps or seeds, or have an optimizer in common.
    """
    joined: dict[str, Comparison] = {}
    for one in comparisons:
        if one.task not in joined:
            joined[one.task] = one
            continue
        known = joined[one.task]
        for field in ("dataset", "horizon", "seeds"):
            a, b = (getattr(x, field) for x in (known, one))
            if a != b:
                raise ValueError(f"comparisons on {one.task} with {field} {a}, {b}")
        both = sorted(known.curves.keys() & one.curves)
        if both:
            raise ValueError(f"comparisons on {one.task} that both have {both}")
        curves, notes = known.curves | one.curves, known.notes | one.notes
        joined[one.task] = dataclasses.replace(known, curves=curves, notes=notes)
    return list(joined.values())


def title(name: str) -> str:
    """An optimizer's name in pictures and tables."""
    return TITLES.get(name, name)


def _order(curves: Curves) -> float:
    """By the last losses; optimizers that diverged come last."""
    mean = float(curves.last.mean())
    return mean if np.isfinite(mean) else np.inf


def _losses(values: Float[np.ndarray, " seeds"]) -> str:
    """Mean ± standard error of the networks that did not diverge, and how many did."""
    finite = values[np.isfinite(values)]
    if len(finite) == len(values):
        return summary(values, 4)
    diverged = f"{len(values) - len(finite)} of {len(values)} diverged"
    return f"{summary(finite, 4)}, {diverged}" if len(finite) else diverged


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else f"{value}"
