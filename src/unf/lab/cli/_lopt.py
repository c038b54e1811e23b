"""`unf lopt`: meta-train, evaluate and draw learned optimizers."""

import dataclasses
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._devices import is_first
from ..._files import write_whole
from ...optim import KINDS, Theta, learned_optimizer, load, origin, trained
from .. import plots
from .._option import option
from .._progress import Progress
from ..data import DataError
from ..lopt import (
    GRIDS,
    OPTIMIZER,
    SMALL,
    Comparison,
    MetaTraining,
    Pace,
    Row,
    compare,
    evaluate,
    first_theta,
    join,
    make_task,
    meta_train,
)
from ..tasks import TASKS, Task
from ._command import Command, OptionError, group
from ._data import FOLDER
from ._processes import Processes
from ._shared import INTERRUPTED, print_json, require


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """Which task, and on which data."""

    task: str = option(help="what networks learn", choices=tuple(TASKS))
    dataset: str = option("auto", "auto: the paper's; a built-in one if no folder is named")
    data: Path | None = option(None, "by default what UNF_DATA names", names=FOLDER, metavar="DIR")
    batch_size: int | None = option(None, "by default the paper's")
    dtype: str | None = option(None, "of convolutions; by default bfloat16 on accelerators")
    vocabulary: int | None = option(None, "subwords; by default 4096")

    def settled(self) -> "TaskOptions":
        """With what the task is made of here."""
        task, _ = self._make()
        folder = os.environ.get("UNF_DATA")
        fields = {field.name for field in dataclasses.fields(task)}
        known = {
            name: getattr(task, name)
            for name in ("dataset", "batch_size", "dtype", "vocabulary")
            if name in fields
        }
        return dataclasses.replace(
            self, data=self.data or (Path(folder) if folder else None), **known
        )

    def make(self) -> Any:
        """The task; says on standard error which data it has."""
        task, about = self._make()
        print(about, file=sys.stderr)
        return task

    def _make(self) -> tuple[Any, str]:
        given = {name: getattr(self, name) for name in ("batch_size", "dtype", "vocabulary")}
        try:
            return make_task(
                self.task,
                dataset=self.dataset,
                folder=self.data and str(self.data),
                **{name: value for name, value in given.items() if value is not None},
            )
        except DataError:
            raise
        except ValueError as error:
            raise OptionError(str(error)) from error


@dataclass(frozen=True, kw_only=True)
class Train(Command):
    """Meta-train an optimizer."""

    examples = """\
  unf lopt train --task mlp --optimizer unf --small             (two CPU cores, a minute)
  unf lopt train --task mlp --optimizer unf --data DIR          (a GPU)
  unf lopt train --task mlp --optimizer unf --data DIR --resume
"""
    setting: TaskOptions = group("the task")
    optimizer: str = option(help="kind of f", choices=tuple(KINDS))
    small: bool = option(False, "a small version, for CPUs")
    seed: int = option(0, "of everything random")
    resume: bool = option(False, "go on from a checkpoint", passing=True)
    checkpoint_seconds: float = option(60.0, "between checkpoints")
    tensorboard: bool = option(False, "write metrics for it too")
    out: Path | None = option(
        None, "for results; by default out/lopt/TASK-OPTIMIZER", metavar="DIR"
    )
    json: bool = option(False, "for scripts", passing=True)
    quiet: bool = option(False, "show no progress", passing=True)
    training: MetaTraining = group("meta-training (defaults: the paper's, or those of --small)")
    processes: Processes = group("several processes")

    @classmethod
    def presets(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """The settings of `--small`."""
        return dataclasses.asdict(SMALL) if given.get("small") else {}

    def results(self) -> Path:
        """The folder of the optimizer."""
        name = f"{self.setting.task}-{self.optimizer}" + ("-small" if self.small else "")
        return self.out or Path("out/lopt") / name

    def settled(self) -> "Train":
        """With the data that were found."""
        return dataclasses.replace(self, setting=self.setting.settled())

    def run(self) -> int:
        """Meta-train, then train fresh networks with what came of it."""
        task, out = self.setting.make(), self.results()
        pace = Pace(self.training)
        board = _tensorboard(out) if self.tensorboard else lambda row: None

        def watch(row: Row) -> None:
            pace(row)
            board(row)

        try:
            theta = meta_train(
                task,
                self.optimizer,
                out,
                self.training,
                seed=self.seed,
                resume=self.resume,
                seconds_between_checkpoints=self.checkpoint_seconds,
                on_metrics=watch,
                show_progress=not self.quiet,
            )
        except KeyboardInterrupt:
            print(f"\nstopped; go on with --resume (results so far in {out})", file=sys.stderr)
            return INTERRUPTED
        if is_first():
            self._tell(task, theta, pace)
        return 0

    def _tell(self, task: Task, theta: Theta, pace: Pace) -> None:
        """Compare the optimizer with the one that meta-training began with."""
        steps, data = self.training.horizon or task.horizon, task.data()
        start = first_theta(task, self.optimizer, self.training, seed=self.seed)
        losses = []
        with Progress("fresh networks, before and after", 2, show=not self.quiet) as progress:
            for x in (start, theta):
                curves = evaluate(task, data, learned_optimizer, x, seeds=range(5), horizon=steps)
                losses.append(float(curves.last.mean()))
                progress.advance(1)
        before, after = losses
        file = self.results() / OPTIMIZER
        if self.json:
            found = {"loss_before": before, "loss_after": after, "horizon": steps}
            rate = {"trajectory_steps_per_second": pace.rate}
            print_json({**found, **rate, "optimizer": str(file)})
            return
        print(f"loss of 5 fresh networks over the last tenth of {steps} steps:")
        print(f"  {before:.4f} with the optimizer that meta-training began with")
        print(f"  {after:.4f} with the one it ended with")
        if pace.rate:
            print(f"{pace.rate:,.0f} trajectory-steps/s, the median over calls")
        print(f"{file}: {theta}")


def _tensorboard(out: Path) -> Any:
    """Writes rows of metrics; the first one makes the file, so that a refused run leaves none."""
    require(["tensorboardX"], "tensorboard")
    writers: list[Any] = []

    def write(row: Row) -> None:
        from tensorboardX import SummaryWriter

        if not writers:
            writers.append(SummaryWriter(str(out / "tensorboard")))
        for name, value in row.items():
            if name != "step":
                writers[0].add_scalar(name, value, int(row["step"]))
        writers[0].flush()

    return write


@dataclass(frozen=True, kw_only=True)
class Eval(Command):
    """Train fresh networks with learned optimizers, and with tuned hand-made ones."""

    examples = """\
  unf lopt eval --task mlp out/lopt/mlp-unf out/lopt/mlp-sgdm --out out/mlp.json
"""
    results_are_a_file = True
    optimizers: tuple[str, ...] = option(
        (), f"folder of a meta-training, file, or one of {', '.join(trained())}",
        positional=True, metavar="OPTIMIZER",
    )  # fmt: skip
    setting: TaskOptions = group("the task")
    seeds: int = option(5, "networks to train with each")
    horizon: int = option(0, "steps; 0: the paper's")
    baselines: tuple[str, ...] = option(tuple(GRIDS), "tuned by grid; none: leave them out")
    out: Path | None = option(None, "by default out/TASK.json", metavar="FILE")
    json: bool = option(False, "for scripts", passing=True)
    quiet: bool = option(False, "show no progress", passing=True)

    def __post_init__(self):
        unknown = [name for name in self._baselines if name not in GRIDS]
        if unknown:
            raise ValueError(
                f"unknown baselines {unknown}; expected some of {list(GRIDS)}, or none"
            )
        if self.seeds < 1 or self.horizon < 0:
            raise ValueError(
                f"--seeds is {self.seeds} and --horizon {self.horizon}; expected at least 1 and 0"
            )
        if not self.optimizers and not self._baselines:
            raise ValueError("nothing to evaluate: name optimizers, or baselines")

    @property
    def _baselines(self) -> list[str]:
        return [name for name in self.baselines if name and name != "none"]

    def results(self) -> Path:
        """The comparison's file."""
        return self.out or Path("out") / f"{self.setting.task}.json"

    def settled(self) -> "Eval":
        """With the data that were found."""
        return dataclasses.replace(self, setting=self.setting.settled())

    def run(self) -> int:
        """Train, write the comparison, print a table."""
        task, out = self.setting.make(), self.results()
        thetas, notes = _load(self.optimizers, task)
        try:
            comparison = compare(
                task,
                thetas,
                horizon=self.horizon or None,
                seeds=range(self.seeds),
                baselines=self._baselines,
                notes=notes,
                show_progress=not self.quiet,
            )
        except ValueError as error:
            raise OptionError(str(error)) from error
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, comparison.to_json())
        if self.json:
            print_json(json.loads(comparison.to_json()))
        else:
            print(f"{comparison}\n{out}")
        return 0


def _load(names: tuple[str, ...], task: Task) -> tuple[dict[str, Theta], dict[str, dict]]:
    """Optimizers, and what to note of each: by kind, or by where they are if kinds repeat."""
    thetas, notes = {}, {}
    for name in names:
        path = Path(name) / OPTIMIZER if Path(name).is_dir() else name
        try:
            thetas[name], about = load(path, space=task.space.relax()), origin(path)
        except ValueError as error:
            raise OptionError(str(error)) from error
        steps = about.get("trained_steps")
        notes[name] = {} if steps is None else {"meta-steps": steps}
    kinds = [theta.kind for theta in thetas.values()]
    if len(set(kinds)) < len(kinds):
        return thetas, notes
    return (
        dict(zip(kinds, thetas.values(), strict=True)),
        dict(zip(kinds, notes.values(), strict=True)),
    )


@dataclass(frozen=True, kw_only=True)
class Plot(Command):
    """Draw curves."""

    examples = "  unf lopt plot out/mlp.json\n"
    files: tuple[Path, ...] = option(
        help="from unf lopt eval; a panel for each task", positional=True, metavar="FILE"
    )
    out: Path = option(Path("out/lopt.png"), "the picture", metavar="FILE")

    def run(self) -> int:
        """Draw, and print where the picture is."""
        require(["matplotlib"], "plots")
        comparisons = []
        for file in self.files:
            try:
                comparisons.append(Comparison.from_json(file.read_text()))
            except ValueError as error:
                raise OptionError(f"{file}: {error}") from error
        self.out.parent.mkdir(parents=True, exist_ok=True)
        try:
            plots.save(plots.optimizer_curves(join(comparisons)), self.out)
        except ValueError as error:
            raise OptionError(str(error)) from error
        print(self.out)
        return 0


FAMILIES = {"lopt": "meta-train, evaluate and draw learned optimizers"}
COMMANDS: dict[str, type[Command]] = {"lopt train": Train, "lopt eval": Eval, "lopt plot": Plot}
