"""`unf lopt`: meta-train and evaluate learned optimizers."""

import dataclasses
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from tyro.conf import Positional, arg

from ..._devices import is_first
from ..._persistence import write_whole
from ..._progress import Progress, say
from ...meta import Task
from ...optim import Theta, learned_optimizer, load, origin
from ...optim._theta import KINDS
from .._scores import summary
from ..lopt import (
    GRIDS,
    MetaTraining,
    compare,
    evaluate,
    first_theta,
    meta_train,
    tune_meta_training,
)
from ..lopt._evaluate import TUNED
from ..lopt._job import OPTIMIZER, SEED, Pace, Row, apart, named
from ..lopt._options import MIXTURES, SMALL, TASKS, make_task, parse_tasks, spell_task
from ..lopt._tune import BEST, GRID, TRIALS, parse_grid, whole
from ._command import CommandError, Data, File, Folder, Job, as_toml, one_of, print_json
from ._processes import Processes

_FIELDS = ("batch_size", "dtype", "vocabulary")
"""Options of tasks that have flags of their own."""


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """Tasks and their data."""

    # What the networks learn. Options follow after colons, as in mlp:hidden=64-64:activation=tanh.
    task: Annotated[str, arg(metavar=f"{{{','.join((*TASKS, *MIXTURES))}}},…")]
    # auto: the paper's dataset, or a built-in one if no folder is named.
    dataset: str = "auto"
    data: Data = None  # Folder with datasets; the variable UNF_DATA by default.
    batch_size: int | None = None  # The paper's by default.
    dtype: str | None = None  # Of convolutions; bfloat16 on accelerators by default.
    vocabulary: int | None = None  # Number of subwords; 4096 by default.

    def make(self) -> list[tuple[Any, str]]:
        """The tasks, and a text about the data of each."""
        parsed = parse_tasks(self.task)
        given: dict[str, Any] = {name: getattr(self, name) for name in _FIELDS}
        given = {name: value for name, value in given.items() if value is not None}
        given |= {} if self.dataset == "auto" else {"dataset": self.dataset}
        if given and (len(parsed) > 1 or given.keys() & parsed[0][1].keys()):
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise CommandError(
                f"{flags}: for one task that does not name it; with --task {self.task}, write it "
                f"behind the task, as in {parsed[0][0]}:{next(iter(given))}=…"
            )
        folder = self.data and str(self.data)
        return [make_task(name, folder=folder, **given, **options) for name, options in parsed]

    def make_one(self) -> tuple[Any, str]:
        """The task, and a text about its data."""
        made = self.make()
        if len(made) > 1:
            raise CommandError(f"--task {self.task} has {len(made)} tasks; expected one")
        return made[0]

    def settled(self) -> "TaskOptions":
        """With the data and the sizes that the tasks have here."""
        tasks = [task for task, _ in self.make()]
        names = ("dataset", *_FIELDS)
        if self.task in TASKS:
            found = {name: getattr(tasks[0], name) for name in names if hasattr(tasks[0], name)}
        else:
            found = {"task": ",".join(map(spell_task, tasks)), "dataset": "auto"}
            found |= dict.fromkeys(_FIELDS)
        folder = os.environ.get("UNF_DATA")
        return dataclasses.replace(
            self, data=self.data or (Path(folder) if folder else None), **found
        )

    @property
    def file_name(self) -> str:
        """The tasks as a part of a file's name."""
        return re.sub(r"[^\w.-]+", "-", self.task)


@dataclass(frozen=True, kw_only=True)
class TaskJob(Job):
    """A job on a task."""

    setting: TaskOptions  # The tasks and their data.

    def settled(self) -> "TaskJob":
        """With the data that were found."""
        return dataclasses.replace(self, setting=self.setting.settled())


@dataclass(frozen=True, kw_only=True)
class Train(TaskJob):
    """Meta-train an optimizer, on one task or on several at once.

    Two names stand for several tasks: paper (the paper's four) and any (small networks that
    differ a lot).

    Examples:
        unf lopt train --task mlp --optimizer unf --small             (two CPU cores, a minute)
        unf lopt train --task mlp --optimizer unf --data DIR          (a GPU)
        unf lopt train --task mlp --optimizer unf --data DIR --resume
        unf lopt train --task mlp,mlp:hidden=64-64:batch_size=32 --optimizer deepset --small
        unf lopt train --task any --optimizer deepset --reparametrize 0.5 --data DIR
        unf lopt train --task mlp --optimizer unf --seeds 4 --data DIR (four at once)
    """

    optimizer: Annotated[str, one_of(tuple(KINDS))]  # The kind of learned optimizer.
    out: Folder = None  # For results; out/lopt/TASK-OPTIMIZER by default.
    small: bool = False  # A small version, for CPUs.
    seed: int = 0  # Seed of all random numbers.
    seeds: int = 1  # Meta-trainings in one program, with this seed and the following ones.
    resume: bool = False  # Continue from the last checkpoint.
    checkpoint_seconds: float = 60.0  # Time between checkpoints.
    tensorboard: bool = False  # Write metrics for TensorBoard too.
    training: MetaTraining
    processes: Processes

    @classmethod
    def presets(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The meta-training of `--small`, or the paper's."""
        return {"training": SMALL if given.get("small") else MetaTraining()}

    @property
    def results(self) -> Path:
        """The folder of the optimizer."""
        return self.out or Path("out/lopt") / _folder_name(self)

    def run(self) -> None:
        """Meta-train, then train fresh networks with the result."""
        tasks = _announced(self.setting)
        pace = Pace(self.training, len(tasks) * self.seeds)
        board = _tensorboard(self.results) if self.tensorboard else lambda row: None

        def watch(row: Row) -> None:
            pace(row)
            board(row)

        theta = meta_train(
            tasks,
            self.optimizer,
            self.results,
            self.training,
            seed=self.seed,
            seeds=self.seeds,
            resume=self.resume,
            seconds_between_checkpoints=self.checkpoint_seconds,
            on_metrics=watch,
            show_progress=not self.quiet,
        )
        if is_first():
            self._tell(tasks, theta, pace)

    def _tell(self, tasks: tuple[Task, ...], theta: Theta, pace: Pace) -> None:
        """Compare the optimizers with those that meta-training began with, on every task."""
        seeds = range(self.seed, self.seed + self.seeds)
        folders = [self.results / f"seed-{seed}" for seed in seeds] if seeds[1:] else [self.results]
        thetas = dict(zip((folder / OPTIMIZER for folder in folders), apart(theta), strict=True))
        rows = self._measure(tasks, list(thetas.values()))
        if self.json:
            self._print_json(rows, list(thetas), pace)
            return
        for row in rows:
            where = f" on {row['task']}" if len(rows) > 1 else ""
            print(f"loss of 5 fresh networks{where} over the last tenth of {row['horizon']} steps:")
            before, after = (summary(row[name], 4) for name in ("loss_before", "loss_after"))
            print(f"  {before} with the optimizer that meta-training began with")
            print(f"  {after} with the one it ended with")
        if self.seeds > 1:
            print(f"mean ± standard error over {self.seeds} meta-trainings")
        if pace.rate:
            print(f"{pace.rate:,.0f} trajectory-steps/s, the median over calls")
        for file, one in thetas.items():
            print(f"{file}: {one}")

    def _print_json(self, rows: list[dict[str, Any]], files: list[Path], pace: Pace) -> None:
        """Losses are lists if there are several seeds, and so are files."""
        losses = ("loss_before", "loss_after")
        for row in rows:
            lists = {name: row[name].tolist() for name in losses}
            row |= lists if self.seeds > 1 else {name: lists[name][0] for name in losses}
        about = rows[0] if len(rows) == 1 else {"tasks": rows}
        names = [str(file) for file in files]
        where = {"optimizers": names} if self.seeds > 1 else {"optimizer": names[0]}
        print_json({**about, "trajectory_steps_per_second": pace.rate, **where})

    def _measure(self, tasks: tuple[Task, ...], thetas: list[Theta]) -> list[dict[str, Any]]:
        """The losses of fresh networks of each task, before and after each meta-training."""
        seeds = range(self.seed, self.seed + self.seeds)
        starts = [first_theta(tasks, self.optimizer, self.training, seed=seed) for seed in seeds]
        total, label, rows = 2 * len(tasks) * len(thetas), "fresh networks, before and after", []
        with Progress(label, total, show=not self.quiet) as progress:
            for task in tasks:
                data, steps = task.data(), self.training.horizon or task.horizon
                row: dict[str, Any] = {"task": spell_task(task), "horizon": steps}
                fresh: dict[str, Any] = {"seeds": range(5), "horizon": steps}
                for name, optimizers in (("loss_before", starts), ("loss_after", thetas)):
                    losses = []
                    for theta in optimizers:
                        curves = evaluate(
                            task, data, learned_optimizer, theta.on(task.space), **fresh
                        )
                        losses.append(curves.last.mean())
                        progress.advance()
                    row[name] = np.array(losses)
                rows.append(row)
        return rows


@dataclass(frozen=True, kw_only=True)
class Tune(TaskJob):
    """Choose the settings of meta-training among short trials.

    A SETTING has the values to try, as in learning_rate=1e-3,3e-3, and every combination is a
    trial, of 500 meta-steps by default, or 50 with --small. Without any SETTING, these are tried:

        form=normalized,adaptive head_start=random,pointwise learning_rate=0.001,0.003,0.01
        sigma=0.01,0.03

    Trials have a constant learning rate. Each is ranked by how many new networks diverge with the
    optimizer that it ends with, and then by their training loss; these networks are the same for
    all trials. The file best.toml has the best settings, for a whole meta-training with unf lopt
    train --config.

    Examples:
        unf lopt tune --task mlp --optimizer unf --small               (two CPU cores, minutes)
        unf lopt tune --task mlp --optimizer unf --data DIR            (a GPU)
        unf lopt tune --task rnn --optimizer tied --data DIR --steps 300 --window 20 sigma=0.01,0.03
    """

    # Settings, with the values to try.
    settings: Annotated[Positional[tuple[str, ...]], arg(metavar="SETTING")] = ()
    optimizer: Annotated[str, one_of(tuple(KINDS))]  # The kind of learned optimizer.
    out: Folder = None  # For results; out/tune/TASK-OPTIMIZER by default.
    small: bool = False  # A small version, for CPUs.
    seed: int = 0  # Seed of all random numbers.
    resume: bool = False  # Keep finished trials, and continue others.
    training: MetaTraining

    @classmethod
    def presets(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Shorter meta-trainings."""
        steps = 50 if given.get("small") else 500
        return {"training": dataclasses.replace(Train.presets(given)["training"], steps=steps)}

    @property
    def results(self) -> Path:
        """The folder of the trials."""
        return self.out or Path("out/tune") / _folder_name(self)

    def run(self) -> None:
        """Meta-train, print a table, and write the best settings."""
        tasks, grid = _announced(self.setting), parse_grid(self.settings) or GRID
        usual = self.presets(vars(self))["training"]
        both = [x for x in grid if getattr(self.training, x) != getattr(usual, x)]
        if both:
            flag = f"--{both[0].replace('_', '-')}"
            raise CommandError(f"{flag}: values of {both[0]} are tried; write them as a SETTING")
        trials = tune_meta_training(
            tasks,
            self.optimizer,
            self.results,
            self.training,
            grid=grid,
            seed=self.seed,
            resume=self.resume,
            show_progress=not self.quiet,
        )
        best = self.results / BEST
        if is_first():
            steps = Train.presets(vars(self))["training"].steps
            train = Train(
                setting=self.setting.settled(),
                optimizer=self.optimizer,
                small=self.small,
                training=whole(trials[0].options, steps),
                processes=Processes(),
            )
            write_whole(best, as_toml(train, "lopt train", best))
        if self.json:
            print((self.results / TRIALS).read_text())
            return
        varied = [name for name, values in grid.items() if len(values) > 1]
        head = ("loss", "networks diverged", "runs lost", "seed", *varied)
        print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
        for trial in trials:
            values = [getattr(trial.options, name) for name in varied]
            cells = (f"{trial.loss:.4f}", trial.diverged, trial.lost, trial.seed, *values)
            print(f"| {' | '.join(map(str, cells))} |")
        print(f"continue with the best settings: unf lopt train --config {best}")


def _folder_name(job: "Train | Tune") -> str:
    """The usual name of the folder of a job."""
    return f"{job.setting.file_name}-{job.optimizer}" + ("-small" if job.small else "")


def _announced(setting: TaskOptions) -> tuple[Any, ...]:
    """The tasks; a line about the data of each is shown."""
    tasks, texts = zip(*setting.make(), strict=True)
    for task, text in zip(tasks, texts, strict=True):
        say(text if len(tasks) == 1 else f"{task.name}: {text}")
    return tasks


def _tensorboard(out: Path) -> Callable[[Row], None]:
    """Writes rows of metrics; the first one makes the file, so that a refused run leaves none."""
    from tensorboardX import SummaryWriter

    writers: list[SummaryWriter] = []

    def write(row: Row) -> None:
        if not writers:
            writers.append(SummaryWriter(str(out / "tensorboard")))
        for name, value in row.items():
            if name != "step":
                writers[0].add_scalar(name, value, int(row["step"]))
        writers[0].flush()

    return write


@dataclass(frozen=True, kw_only=True)
class Eval(TaskJob):
    """Train fresh networks with learned optimizers, and with tuned baselines.

    An OPTIMIZER is the folder of a meta-training, a file, or the name of a shipped optimizer.

    Examples:
        unf lopt eval --task mlp out/lopt/mlp-unf out/lopt/mlp-sgdm --out out/mlp.json
        unf lopt eval --task mlp unf-mlp-fashion-mnist --baselines adam --data DIR
    """

    # Learned optimizers to evaluate.
    optimizers: Annotated[Positional[tuple[str, ...]], arg(metavar="OPTIMIZER")] = ()
    seeds: int = 5  # How many networks to train with each optimizer.
    horizon: int = 0  # Steps of training; 0: the paper's.
    # Hand-designed ones: adam, sgdm-tuned, muon (by grid), or adam-default; none: leave them out.
    baselines: tuple[str, ...] = TUNED
    out: File = None  # The comparison; out/TASK.json by default.

    @property
    def results(self) -> Path:
        """The file of the comparison."""
        return self.out or Path("out") / f"{self.setting.file_name}.json"

    def record(self) -> Path:
        """Beside the comparison."""
        return self.results.with_name(f"{self.results.name}.config.toml")

    def run(self) -> None:
        """Train, write the comparison, print a table."""
        baselines = [name for name in self.baselines if name != "none"]
        unknown = [name for name in baselines if name not in GRIDS]
        if unknown:
            raise CommandError(f"unknown baselines {unknown}; expected some of {list(GRIDS)}")
        if self.seeds < 1 or self.horizon < 0 or not (baselines or self.optimizers):
            raise CommandError(
                f"--seeds is {self.seeds} and --horizon {self.horizon}, with "
                f"{len(self.optimizers)} optimizers and {len(baselines)} baselines; expected at "
                "least 1 and 0, and something to evaluate"
            )
        task, about = self.setting.make_one()
        say(about)
        thetas, notes = _load(self.optimizers, task)
        comparison = compare(
            task,
            thetas,
            horizon=self.horizon or None,
            seeds=range(self.seeds),
            baselines=baselines,
            notes=notes,
            show_progress=not self.quiet,
        )
        text = comparison.to_json()
        self.results.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.results, text)
        print_json(json.loads(text)) if self.json else print(f"{comparison}\n{self.results}")


def _load(names: tuple[str, ...], task: Task) -> tuple[dict[str, Theta], dict[str, dict]]:
    """Optimizers and notes on each, by kind, or by where they are if kinds repeat.

    Several meta-trainings of one folder are of one kind: "unf/seed-0" and so on.
    """
    paths = named(names) if names else {}
    thetas = {name: load(path, space=task.space.relax()) for name, path in paths.items()}
    parts = {}
    for name in paths:
        folder, _, seed = name.rpartition("/")
        parts[name] = (folder, seed) if SEED.fullmatch(seed) else (name, "")
    folders = {(thetas[name].kind, folder) for name, (folder, _) in parts.items()}
    unique = len({kind for kind, _ in folders}) == len(folders)
    found, notes = {}, {}
    for name, theta in thetas.items():
        key, steps = name, origin(paths[name]).get("trained_steps")
        if unique:
            key = "/".join(filter(None, (theta.kind, parts[name][1])))
        found[key], notes[key] = theta, {} if steps is None else {"meta-steps": steps}
    return found, notes
