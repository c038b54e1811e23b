"""What there is to say about a run: a zoo, a predictor, a meta-training or a comparison.

Files may be damaged, or written by anyone. A reader may fail with any of `DAMAGE`; `_page` says
which run it was and goes on with the others.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..._persistence import Checkpoints
from ...models import Fitted, load_model
from ...nn import UNFLinear
from ...optim import load, origin
from ...spec import WeightSpace
from ...zoo import MixedZoo, Status, open_zoo
from ...zoo._mixed import INDEX
from .. import plots
from .._scores import count, summary, too_few
from ..edit import IMAGES
from ..edit import METHODS as METHODS_OF_EDITING
from ..lopt import Comparison
from ..lopt._evaluate import describe_losses, survivors, title
from ..lopt._job import CONFIG, METRICS, OPTIMIZER
from ..predict import METHODS, Report
from ..predict._apply import MODELS
from ..predict._report import RESULT
from ..predict._run import CHECKPOINT
from ..table1 import PAPER
from ..zoos import ImplicitZoo

DAMAGE = (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError,
          ValueError)  # fmt: skip
"""What reading a file that is not as it should be can raise."""
_LARGEST = 64 * 2**20


class ReportError(ValueError):
    """Something that cannot be reported: what is wrong, where, and the remedy."""


@dataclass(frozen=True)
class Table:
    """Numbers of a run."""

    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""


@dataclass
class Section:
    """What there is to say about one run; the template shows it in this order."""

    title: str
    kind: str
    statement: str
    """The result, in a sentence or two."""
    finished: bool = True
    warnings: list[str] = field(default_factory=list)
    panels: list[plots.Panel] = field(default_factory=list)
    table: Table | None = None
    space: WeightSpace | None = None
    layers: dict[str, UNFLinear] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """A record with versions, machine and date, among others."""
    scores: Report | None = None
    """The result of a predictor, to be compared with others of the same zoo."""


def recognize(path: Path) -> Callable[[Path], Section] | None:
    """The function that reads a folder or file that is itself a run; None if it is not one.

    Raises:
        ReportError: if a file of JSON is damaged.
    """
    if path.is_dir():
        if (path / "zarr.json").is_file() or (path / INDEX).is_file():
            return _zoo
        if (path / RESULT).is_file():
            return _editor if (path / IMAGES).is_file() else _predictor
        if (path / CONFIG).is_file() and (path / METRICS).is_file():
            return _meta_training
        jobs = Checkpoints(path / "checkpoints", {}).descriptions()
        return _stopped if any(job.get("what") == CHECKPOINT for job in jobs) else None
    record = _read_json(path) if path.suffix == ".json" else None
    if isinstance(record, list):
        return _table1 if path.name == "table1.json" else None
    keys = record.keys() if isinstance(record, dict) else set()
    if keys >= {"curves", "horizon"}:
        return _comparison
    return _predictor if keys >= {"method", "tau", "predicted"} else None


def _zoo(path: Path) -> Section:
    """A zoo, finished or not."""
    zoo = open_zoo(path)
    mixed = isinstance(zoo, MixedZoo)
    trained, missing = zoo.trained, int(np.sum(zoo.status == Status.MISSING))
    statement = f"{zoo.models - missing:,} of {zoo.models:,} networks are trained"
    statement += f", of which {zoo.diverged.sum():,} diverged." if zoo.diverged.any() else "."
    rows = []
    for name, values in zoo.scores.items():
        values = values[trained, 0][np.isfinite(values[trained, 0])]
        if not len(values):
            continue
        levels = np.quantile(values, (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1))
        rows.append([name, *(f"{x:.4g}" for x in levels)])
        if name == "success" and zoo.kind == ImplicitZoo.name:
            statement += f" Half of them explain between {levels[2]:.1%} and {levels[4]:.1%} of "
            statement += f"the variance of their image, with a median of {levels[3]:.1%}."
        elif name == "success":
            statement += f" Half of them solve between {levels[2]:.1%} and {levels[4]:.1%} of "
            statement += f"fresh problems, with a median of {levels[3]:.1%}."
        elif name == next(iter(zoo.scores)):
            statement += f" Half of them have {name} between {levels[2]:.4g} and {levels[4]:.4g}, "
            statement += f"with a median of {levels[3]:.4g}."
    head = ["", "minimum", "5%", "25%", "50%", "75%", "95%", "maximum"]
    caption = f"Quantiles over {len(trained):,} networks that did not diverge, first measurement."
    return Section(
        path.resolve().name, f"{zoo.kind} zoo", statement, finished=not missing,
        warnings=[f"Unfinished: {missing:,} networks are missing."] if missing else [],
        panels=plots.zoo_panels(zoo) if len(trained) else [],
        table=Table(head, rows, caption), space=None if mixed else zoo.space,
        settings=zoo.origin if mixed else {**zoo.origin, "chunk": zoo.store.chunk},
        provenance={} if mixed else zoo.attributes,
    )  # fmt: skip


def _predictor(path: Path) -> Section:
    """A training of predictors that is finished, from its result.json or a copy of it."""
    file = path / RESULT if path.is_dir() else path
    record = _read_json(file)
    report = _read_json(file, lambda record: Report.from_json(json.dumps(record)))
    if not isinstance(report.zoo, dict):
        raise ReportError(f"{file}: damaged (zoo is {short(report.zoo, 40)}); train again")
    name, tests = str(report.method), len(report.true)
    measure = "Kendall's τ" if report.accuracy is None else "accuracy"
    statement = (
        f"{plots.method_title(name)}: {measure} {summary(report.main, 4)} on {tests:,} networks "
        f"that it has never seen ({count(report.seeds, 'seed')})."
    )
    if report.baselines:
        statement += f" {report.baselines[0].upper()}{report.baselines[1:]}."
    if report.held_out is not None:
        held = report.on_held_out
        statement += f" On {len(held.true):,} networks of architectures that it has never seen, τ "
        statement += f"is {summary(held.tau, 4)}."
    if few := too_few(tests, report.error_over_networks, report.measure):
        statement += f" {few}."
    best = np.fmax.reduce(report.valid_scores, axis=0)
    columns = {f"test {report.measure}": report.main}
    columns |= {"test R²": report.r2} if report.accuracy is None else {}
    columns |= {f"best validation {report.measure}": best}
    rows = [
        [f"seed {seed}", *(f"{x:.4f}" for x in values)]
        for seed, *values in zip(report.seeds, *columns.values(), strict=True)
    ]
    caption = f"The epoch with the best validation {report.measure} was tested, once. Reordering "
    caption += f"hidden neurons changes predictions by at most {report.invariance:.1g}."
    known = ("method", "parameters", "seconds", "include_diverged", "split", "training", "zoo")
    section = Section(
        file.parent.resolve().name if path.is_dir() else file.stem, f"predictor of {report.score}",
        statement, scores=report, provenance=record, settings={key: record[key] for key in known},
        panels=[
            plots.prediction_panel(report), plots.score_panel([report]),
            *plots.curve_panels({name: (report.losses, report.valid_scores)}, measure),
        ],
        table=Table(["", *columns], rows, caption),
    )  # fmt: skip
    probes = report.method in METHODS and METHODS[report.method].probes  # they run networks
    for model_file in [] if probes else sorted(path.glob(MODELS.format("*")))[:1]:
        with _warned(section, model_file):
            model: Any = load_model(model_file)
            model = model.model if isinstance(model, Fitted) else model
            section.space = model.space
            layers = getattr(model.backbone, "layers", ())
            layers = [layer for layer in layers if isinstance(layer, UNFLinear)]
            section.layers = {f"{model_file.stem}, layer {i}": x for i, x in enumerate(layers, 1)}
    return section


def _editor(path: Path) -> Section:
    """Editors of one kind and what they make of images, from `unf reproduce edit`."""
    file = path / RESULT
    record = _read_json(file)

    def read(record: Any) -> tuple[Any, ...]:
        job, found = record["job"], record["found"]
        errors, best = (np.array(found[name], float) for name in ("errors", "best_valid"))
        return METHODS_OF_EDITING[job["method"]][0], job, found, errors, best

    title, job, found, errors, best = _read_json(file, read)
    images = np.load(path / IMAGES)
    width = min(6, len(images))
    lines = {" " * i: images[width * i :][:width] for i in range(len(images) // width)}
    statement = (
        f"{title}, {job['edit']}: squared error × 100 of {summary(errors, 3)} on test images "
        f"({count(job['seeds'], 'seed')})."
    )
    rows = [
        [f"seed {seed}", f"{error:.4f}", f"{least:.4f}"]
        for seed, error, least in zip(job["seeds"], errors, best, strict=True)
    ]
    caption = "Errors are of values from 0 to 1, times 100. The epoch with the lowest validation "
    caption += "error was tested, once."
    return Section(
        path.resolve().name, f"editor: {job['edit']}", statement,
        panels=[plots.edited_panel("Images drawn by edited networks", lines)],
        table=Table(["", "test error", "best validation error"], rows, caption),
        settings={**job, "parameters": found["parameters"], "seconds": found["seconds"]},
        provenance=record,
    )  # fmt: skip


def _stopped(path: Path) -> Section:
    """A training of predictors that was stopped, from its checkpoints."""
    job = Checkpoints(path / "checkpoints", {}).descriptions()[-1]
    statement = f"The training of {plots.method_title(str(job['method']))} was stopped."
    warning = "Unfinished: the predictors have not been tested."
    kind = f"predictor of {job.get('score', 'success')}"
    return Section(path.resolve().name, kind, statement, False, [warning], settings=job)


def _meta_training(path: Path) -> Section:
    """A meta-training of an optimizer, finished or not."""
    config = _read_json(path / CONFIG)
    metrics = _read_metrics(path / METRICS)
    done, wanted = int(max(metrics["step"], default=0)), int(config["steps"])
    loss = metrics["loss"][np.isfinite(metrics["loss"])]
    part = max(1, len(loss) // 10)
    name = title(config["kind"]).removesuffix(", meta-trained")
    statement = f"{name} on {config['task']}: {done:,} of {wanted:,} meta-steps are done."
    if len(loss):
        what = "log relative loss" if "tasks" in config else "loss"
        statement += f" The networks it trains had a {what} of {loss[:part].mean():.4f} over the "
        statement += f"first tenth of them, and have {loss[-part:].mean():.4f} over the last."
    section = Section(
        path.resolve().name, "meta-training of an optimizer", statement, finished=done >= wanted,
        warnings=["Unfinished: this is its last checkpoint."] if done < wanted else [],
        panels=plots.meta_panels(metrics), settings=config,
    )  # fmt: skip
    file = path / OPTIMIZER
    with _warned(section, file):
        theta, section.provenance = load(file), origin(file)
        section.space = theta.space
        head = theta.head
        section.layers = {"the equivariant layer": head} if isinstance(head, UNFLinear) else {}
    return section


def _comparison(path: Path) -> Section:
    """A comparison of optimizers, from a file of `unf lopt eval`."""
    record = _read_json(path)
    found = _read_json(path, lambda record: Comparison.from_json(json.dumps(record)))
    best, task = found.ranking[0], str(found.task)
    statement = (
        f"{count(found.ranking, 'optimizer')} on {count(found.seeds, 'fresh network')} of {task} "
        f"({found.dataset}), trained for {found.horizon:,} steps. "
    )
    last = found.losses(best)
    if any(len(survivors(losses)) for losses in last):
        statement += f"{title(best)} ends with the lowest training loss, {describe_losses(*last)} "
        statement += "over the last tenth."
    else:
        statement += "All networks diverge."
    rows = [[*cells, short(notes)] for *cells, notes in found.rows()]
    head = ["optimizer", "training", "last tenth", "held out, last tenth", ""]
    caption = "Loss, mean ± standard error over the networks that did not diverge; best first."
    return Section(
        path.stem, f"optimizers compared on {task}", statement, provenance=record,
        panels=plots.optimizer_panels(found), table=Table(head, rows, caption),
        settings={key: record[key] for key in ("task", "dataset", "horizon", "seeds", "notes")},
    )  # fmt: skip


def _table1(path: Path) -> Section:
    """The paper's table 1, from the file of `unf reproduce table1`."""
    rows = []
    for row in _read_json(path):
        name, tau, r2 = str(row["method"]), np.array(row["tau"]), np.array(row["r2"])
        paper = PAPER.get(name, "")
        rows.append([plots.method_title(name), summary(tau, 4), summary(r2, 3), paper])
    scores = "; ".join(f"{method} {tau}" for method, tau, *_ in rows)
    statement = f"Success of recurrent networks, predicted from their weights; test τ: {scores}."
    table = Table(["method", "test τ", "R²", "paper's τ"], rows)
    return Section("Table 1", "table 1 of the paper", statement, table=table)


def short(value: Any, longest: int = 300) -> str:
    """A value as people read it, cut if it is long."""
    words = f"{value:.6g}" if isinstance(value, float) else value
    words = words if isinstance(words, str) else json.dumps(words, default=str)
    return words if len(words) <= longest else f"{words[:longest]}…"


def _read_json(file: Path, parse: Callable[[Any], Any] = lambda record: record) -> Any:
    """What a file of JSON holds, parsed further.

    Raises:
        ReportError: if it is damaged, or larger than results are.
    """
    try:
        if file.stat().st_size > _LARGEST:
            raise ValueError(f"more than {_LARGEST:,} bytes")
        return parse(json.loads(file.read_text(encoding="utf-8")))
    except DAMAGE as error:
        raise ReportError(f"{file}: damaged ({error}); restore it, or run it again") from error


def _read_metrics(file: Path) -> dict[str, np.ndarray]:
    """The columns of a meta-training's metrics.

    Raises:
        ReportError: if they are damaged.
    """
    try:
        head, *rows = csv.reader(file.read_text(encoding="utf-8").splitlines())
        numbers = np.array(rows, float).reshape(len(rows), len(head))
        columns = dict(zip(head, numbers.T, strict=True))
        if not np.all(np.isfinite(columns["step"])) or "loss" not in columns:
            raise ValueError("no steps or losses")
    except (*DAMAGE, csv.Error) as error:
        raise ReportError(f"{file}: damaged ({error!r}); resume the meta-training") from error
    return columns


@contextmanager
def _warned(section: Section, file: Path) -> Iterator[None]:
    """Make a warning of what is wrong with a file that the rest can do without."""
    try:
        yield
    except DAMAGE as error:
        section.warnings.append(f"{file} cannot be used: {error}")
