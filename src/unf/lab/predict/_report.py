"""What an experiment found."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .._folder import provenance
from .._scores import count, jackknife_error, leave_one_out_tau, standard_error, summary, too_few
from ._methods import METHODS, PredictError

RESULT = "result.json"
_ARRAYS: dict[str, type] = dict.fromkeys(
    ("tau", "r2", "accuracy", "valid_scores", "losses", "predicted", "true"), float
)
_ARRAYS |= dict.fromkeys(("trained", "validated", "tested"), int)
_LATER: dict[str, Any] = {"trained": [], "validated": [], "score": "success"}
_LATER |= {"held_out": None, "architectures": None, "accuracy": None}
_LATER |= {"classes": None, "loss": "bce"}
"""Fields that early versions did not write."""
_RENAMED = {"valid_tau": "valid_scores", "cap": "retest"}
"""Fields that early versions wrote by other names."""


@dataclasses.dataclass(frozen=True)
class Report:
    """What an experiment found; arrays have a row or an entry for each seed.

    If a class was predicted there are its `accuracy` and the names of the `classes`, else `tau` and
    `r2`; `valid_scores` are those of the validation networks after each epoch, accuracies or τ.
    `loss` is what predictors were fitted with.

    `retest` is the test–retest agreement: τ between two measurements of the test networks, None if
    there is only one. `settings` is the τ or accuracy of a model that sees only the settings each
    network was trained with, None if the zoo has no settings. `invariance` is the largest change
    of a prediction when hidden neurons are reordered. `trained`, `validated` and `tested` are rows
    of the zoo; early versions recorded only the last. `score` is what was predicted.

    A mixed zoo also has `held_out`, with `tau`, `r2`, `retest`, `settings`, `predicted`, `true` and
    `tested` of the networks of held-out architectures, None if there are none; and
    `architectures`, with the number of tested `networks` and the `tau` of each seed for each
    architecture, and whether it is `held_out`.
    """

    method: str
    zoo: dict[str, Any]
    training: dict[str, Any]
    split: dict[str, int]
    include_diverged: bool
    seeds: list[int]
    tau: Any
    r2: Any
    retest: float | None
    settings: float | None
    valid_scores: Float[np.ndarray, "epochs seeds"]
    losses: Float[np.ndarray, "epochs seeds"]
    predicted: Float[np.ndarray, "seeds test"]
    true: Float[np.ndarray, " test"]
    tested: Int[np.ndarray, " test"]
    invariance: float
    parameters: int
    seconds: float
    trained: Int[np.ndarray, " train"] | tuple[()] = ()
    validated: Int[np.ndarray, " valid"] | tuple[()] = ()
    score: str = "success"
    held_out: dict[str, Any] | None = None
    architectures: dict[str, dict[str, Any]] | None = None
    accuracy: Float[np.ndarray, " seeds"] | None = None
    classes: list[str] | None = None
    loss: str = "bce"
    network: dict[str, Any] | None = None

    @property
    def main(self) -> Float[np.ndarray, " seeds"]:
        """The accuracies if there are any, else τ."""
        return self.tau if self.accuracy is None else self.accuracy

    @property
    def measure(self) -> str:
        """What `main` is, in a word."""
        return "τ" if self.accuracy is None else "accuracy"

    @property
    def title(self) -> str:
        """The method's name in tables."""
        return METHODS[self.method].title

    @property
    def on_held_out(self) -> "Report":
        """The report with the networks of held-out architectures as its test networks."""
        if self.held_out is None:
            raise PredictError("no architectures were held out of this zoo")
        return dataclasses.replace(self, **self.held_out, held_out=None)

    @property
    def error_over_networks(self) -> float:
        """The standard error of the mean of `main` over the choice of test networks."""
        if self.accuracy is None:
            return jackknife_error(leave_one_out_tau(self.predicted, self.true))
        return standard_error(np.mean(self.predicted == self.true, axis=0))

    @property
    def baselines(self) -> str:
        """The test–retest agreement and what is reached without weights, in words."""
        retest = "" if self.retest is None else f"test–retest agreement of τ {self.retest:.4f}"
        alone = "a model that sees only the training settings reaches "
        settings = f"{alone}{self.settings:.4f}" if self.settings is not None else ""
        frequent = ""
        if self.classes is not None:
            share = np.bincount(self.true.astype(int)).max() / len(self.true)
            frequent = f"predicting one class for all networks reaches {share:.4f} at most"
        return "; ".join(filter(None, (retest, settings, frequent)))

    def to_json(self) -> str:
        """Everything, with versions, machine and date."""
        record = dataclasses.asdict(self)
        name = "tau" if self.accuracy is None else "accuracy"
        record |= {
            f"{name}_mean": float(self.main.mean()),
            f"{name}_standard_error": standard_error(self.main),
            f"{name}_error_over_networks": self.error_over_networks,
            "best_valid_score": np.nanmax(self.valid_scores, axis=0),
            **provenance(),
        }
        text = json.dumps(record, default=np.ndarray.tolist)
        record = json.loads(text, parse_constant=lambda name: None)  # NaN is not JSON
        return "{\n" + ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in record.items()) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """Read what `to_json` wrote, also in an earlier version.

        Raises:
            PredictError: if the text is something else.
        """
        try:
            record = {**_LATER, **json.loads(text)}
            for was, name in _RENAMED.items():
                for each in (record, record["held_out"] or {}):
                    if was in each:
                        each[name] = each.pop(was)
            fields: dict[str, Any] = {f.name: record[f.name] for f in dataclasses.fields(cls)}
            fields |= {
                name: np.asarray(fields[name], dtype)
                for name, dtype in _ARRAYS.items()
                if fields[name] is not None
            }
            if fields["held_out"] is not None:
                held = dict(fields["held_out"])
                names = [name for name in _ARRAYS if name in held]
                held |= {name: np.asarray(held[name], _ARRAYS[name]) for name in names}
                fields["held_out"] = held
            return cls(**fields)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise PredictError(f"not the result of an experiment ({error!r})") from error

    def __str__(self) -> str:
        error, fits = self.error_over_networks, ""
        few = too_few(len(self.true), error, self.measure)
        if self.accuracy is None:
            fits = f", R² {summary(self.r2, 4)}"
        lines = (
            f"{self.title}: {self.measure} {summary(self.main, 4)}{fits} on "
            f"{len(self.true):,} test networks ({count(self.seeds, 'seed')})",
            self.baselines,
            f"standard error of {self.measure} over test networks: {error:.4f}{few and f'; {few}'}",
            self._about_held_out(),
        )
        return "\n".join(filter(None, lines))

    def _about_held_out(self) -> str:
        held = self.held_out
        if held is None:
            return ""
        alone = held["settings"]
        trees = "" if alone is None else f"; the training settings alone reach {alone:.4f}"
        return (
            f"held-out architectures: τ {summary(held['tau'], 4)}, R² {summary(held['r2'], 4)} on "
            f"{len(held['true']):,} networks{trees}"
        )


def read_report(folder: Path) -> Report | None:
    """The result in a folder, if there is one that can be read."""
    try:
        return Report.from_json((folder / RESULT).read_text())
    except (OSError, ValueError):
        return None
