"""What there is to say about the training of predictors."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..._persistence import read_arrays
from ...models import UNF, Invariant, load_model
from ...nn import UNFLinear
from ...spec import WeightSpace
from ..predict import METHODS, MODELS, RESULT, Report, Training
from ._charts import Axis, Chart
from ._errors import ReportError
from ._html import Html, folded, join, table, tag
from ._marks import Line, Points, Rule, level
from ._page import COLOURS
from ._read import read_json, read_text
from ._scales import drawable
from ._section import (
    Section,
    again,
    charts,
    coefficients,
    configuration,
    options,
    provenance,
    read_space,
    warning,
    weight_space,
)

_MOST_SEEDS = 500


def report_predictor(file: Path) -> Section:
    """The section of a finished training, from its result.json.

    Raises:
        ReportError: if the file is damaged.
    """
    record = read_json(file)
    try:
        report = Report.from_json(read_text(file))
        _check(report)
    except (ValueError, TypeError, OverflowError) as error:
        raise ReportError(f"{file}: a damaged result ({error}); train again") from error
    own = file.name == RESULT  # else a copy, away from the folder it is of
    mean, error = _mean(report.tau)
    seeds = f"{len(report.seeds)} seeds" if len(report.seeds) > 1 else "one seed"
    statement = (
        f"{_subject(report.method)} ranks {len(report.true):,} networks it has never seen with "
        f"Kendall's τ {mean}{error} ({seeds}). Two measurements of the truth agree to "
        f"{report.cap:.4f}; the training settings alone give {report.settings:.4f}."
    )
    body = [
        charts(
            _scatter(report),
            _scores_chart(report),
            _curves("Training loss", "cross entropy", report.losses, report.seeds),
            _curves("Validation", "Kendall's τ", report.valid_tau, report.seeds),
        ),
        _scores_table(report),
        _epochs_table(report.losses, report.valid_tau, report.seeds),
        weight_space(_space(file.parent) if own else None),
        coefficients(_layers(file.parent) if own else {}),
        configuration(
            {
                "method": report.method,
                "parameters": report.parameters,
                "seconds": report.seconds,
                "include_diverged": report.include_diverged,
                "split": report.split,
                "training": report.training,
                "zoo": report.zoo,
            }
        ),
        provenance(record),
        _again(file.parent if own else None, dataclasses.asdict(report), resume=False),
    ]
    scores = (_title(report.method), report.tau)
    name = file.parent.resolve().name if own else file.stem
    return Section(name, "predictor of success", statement, join(body), scores=scores)


def report_unfinished(folder: Path) -> Section:
    """The section of a training that was stopped, from its last whole checkpoint.

    Raises:
        ReportError: if none can be read.
    """
    about = _last_checkpoint(folder / "checkpoints")
    job, notes = about.get("job"), about.get("notes")
    try:
        if not isinstance(job, dict) or not isinstance(notes, dict):
            raise ValueError("no description of a training")
        seeds = [int(seed) for seed in job["seeds"]]
        shape = (-1, len(seeds))
        losses, taus = (np.array(notes[x], float).reshape(shape) for x in ("losses", "taus"))
        method, epochs = str(job["method"]), int(job["training"]["epochs"])
        if not 0 < len(seeds) <= _MOST_SEEDS or len(losses) != len(taus):
            raise ValueError("seeds and epochs do not fit")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ReportError(
            f"{folder}: the last checkpoint is damaged ({error!r}); train again"
        ) from error
    body = [
        warning("Unfinished: the predictors have not seen the test networks yet."),
        charts(
            _curves("Training loss", "cross entropy", losses, seeds),
            _curves("Validation", "Kendall's τ", taus, seeds),
        ),
        _epochs_table(losses, taus, seeds),
        configuration(job),
        provenance({}),
        _again(folder, job, resume=True),
    ]
    statement = f"{_subject(method)} is trained for {len(losses)} of {epochs} epochs."
    name = folder.resolve().name
    return Section(name, "predictor of success", statement, join(body), "unfinished")


def _check(report: Report) -> None:
    """That arrays fit each other; their types are checked already."""
    seeds, tests = len(report.seeds), report.true.shape
    shapes = {
        "tau": (seeds,), "r2": (seeds,), "predicted": (seeds, *tests),
        "valid_tau": (*report.losses.shape[:1], seeds), "losses": (len(report.losses), seeds),
    }  # fmt: skip
    for name, shape in shapes.items():
        if getattr(report, name).shape != shape:
            raise ValueError(f"{name} has shape {getattr(report, name).shape}, not {shape}")
    if not all(type(seed) is int and 0 <= seed < 2**53 for seed in report.seeds):
        raise ValueError("seeds are not whole numbers")
    if not 0 < seeds <= _MOST_SEEDS or len(tests) != 1 or not tests[0]:
        raise ValueError(f"{seeds} seeds and tests of shape {tests}")
    for name in ("cap", "settings", "parameters", "seconds", "invariance"):
        float(getattr(report, name))
    for name in ("zoo", "training", "split"):
        if not isinstance(getattr(report, name), dict):
            raise ValueError(f"{name} is not a table")


def _title(method: Any) -> str:
    return METHODS[method].title if isinstance(method, str) and method in METHODS else str(method)


def _subject(method: Any) -> str:
    """A title that a verb can follow."""
    return f"{_title(method)}," if "," in _title(method) else _title(method)


def _mean(values: np.ndarray) -> tuple[str, str]:
    error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else None
    return f"{values.mean():.4f}", f" ± {error:.4f}" if error is not None else ""


def _scatter(report: Report) -> Chart:
    chart = Chart(
        "Predicted against true success",
        Axis("true success rate"),
        Axis("predicted from the weights"),
        note=f"Seed {report.seeds[0]}, test networks; on the dashed line a prediction is right.",
        square=True,
    )
    true = report.true[drawable(report.true)]
    ends = np.array([true.min(initial=1.0), true.max(initial=0.0)])
    chart.add(Points("", report.true, report.predicted[0]), Rule("", ends, ends, 5))
    return chart


def _scores_chart(report: Report) -> Chart:
    chart = Chart("Test scores", Axis("seed", whole=True), Axis("Kendall's τ"))
    first, last = min(report.seeds), max(report.seeds)
    ends = np.array([first - 0.4, last + 0.4])
    chart.add(
        Points("", np.array(report.seeds), report.tau),
        level("measured twice", report.cap, ends),
        level("settings alone", report.settings, ends, 1),
    )
    return chart


def _curves(title: str, label: str, values: np.ndarray, seeds: list[int]) -> Chart:
    chart = Chart(title, Axis("epoch", whole=True), Axis(label))
    epochs = np.arange(1, len(values) + 1)
    for i, seed in enumerate(seeds):
        chart.add(Line(f"seed {seed}", epochs, values[:, i], i % COLOURS, dots=len(epochs) <= 40))
    return chart


def _scores_table(report: Report) -> Html:
    best = [_number(np.nanmax(column, initial=-np.inf)) for column in report.valid_tau.T]
    rows = [
        [f"seed {seed}", _number(tau), _number(r2), valid]
        for seed, tau, r2, valid in zip(report.seeds, report.tau, report.r2, best, strict=True)
    ]
    words = (
        "Of each seed the epoch with the best validation τ was tested. Reordering hidden neurons "
        f"changes a prediction by at most {report.invariance:.1g}."
    )
    scores = table(["", "test τ", "test R²", "best validation τ"], rows)
    return join([scores, tag("p", words, class_="note")])


def _epochs_table(losses: np.ndarray, taus: np.ndarray, seeds: list[int]) -> Html:
    heads = [f"{what}, seed {seed}" for what in ("loss", "τ") for seed in seeds]
    rows = [
        [epoch + 1, *map(_number, np.concatenate([losses[epoch], taus[epoch]]))]
        for epoch in range(min(len(losses), 100))
    ]
    return folded("Epoch by epoch", table(["epoch", *heads], rows))


def _number(value: Any) -> str:
    return f"{value:.4f}" if np.isfinite(value) else "not finite"


def _again(folder: Path | None, job: Mapping[str, Any], *, resume: bool) -> Html:
    """The command, if every word of it is one that the command line knows."""
    file = (folder or Path()) / "config.toml"
    try:
        method, seeds, split = job["method"], job["seeds"], job["split"]
        sizes = list(split.values()) if isinstance(split, Mapping) else list(split)
        defaults = Training(**METHODS[method].defaults)
        given = options(
            dataclasses.asdict(Training(**job["training"])), dataclasses.asdict(defaults)
        )
        counts = {"seeds": len(seeds), "seed": int(seeds[0]), "split": [int(n) for n in sizes]}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return again(file, None, "") if folder else Html()
    command = ["unf", "predict", "train", "--zoo", "ZOO", "--method", method]
    command += [*options(counts, {}), *given, "--out", str(folder or "FOLDER")]
    command += ["--resume"] if resume else []
    command += ["--include-diverged"] if job.get("include_diverged") else []
    words = "Go on with it" if resume else "Train them again"
    return again(file, command, f"{words}, where ZOO is the folder of the zoo:")


def _layers(folder: Path) -> dict[str, UNFLinear]:
    """The equivariant layers of the first predictor that can be read, if it has any."""
    for file in sorted(folder.glob(MODELS.format("*"))):
        try:
            model = load_model(file)
        except (ValueError, OSError):
            continue
        unf = model.backbone if isinstance(model, Invariant) else None
        backbone = unf.layers if isinstance(unf, UNF) else ()
        return {f"{file.stem}, layer {i + 1}": layer for i, layer in enumerate(backbone)}
    return {}


def _space(folder: Path) -> WeightSpace | None:
    """What the first predictor reads."""
    for file in sorted(folder.glob(MODELS.format("*")))[:1]:
        try:
            return read_space(read_arrays(file)[0].get("space"))
        except (ValueError, OSError):
            return None
    return None


def _last_checkpoint(folder: Path) -> dict[str, Any]:
    """The description of the newest state that can be read."""
    reasons = []
    for file in sorted(folder.glob("step-*.0-of-*.safetensors"), reverse=True):
        try:
            return read_arrays(file)[0]
        except (ValueError, OSError) as error:
            reasons.append(str(error))
    why = "; ".join(reasons) or "there is none"
    raise ReportError(f"{folder}: no checkpoint can be read ({why}); train again")
