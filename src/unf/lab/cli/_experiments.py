"""`unf demo`, `unf reproduce` and `unf report`: whole experiments, and pages about them."""

import dataclasses
import json
import time
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from ..._progress import say
from .. import barriers, demo, edit, figure2, generalize, mixed, readers, report, table1, table2
from ._command import Command, CommandError, Data, File, Folder, Job, print_json


@dataclass(frozen=True, kw_only=True)
class Demo(Command):
    """Predict how accurate small networks are, from their weights alone.

    Examples:
        unf demo                      (two CPU cores, a minute)
    """

    networks: int = demo.Config.networks  # How many networks to train.
    repeats: int = demo.Config.repeats  # How often to train each predictor.
    seed: int = demo.Config.seed  # Seed of all random numbers.
    out: Annotated[Path, arg(metavar="DIR")] = demo.Config.out  # Folder for the picture.

    def record(self) -> Path:
        """Beside the picture."""
        return self.out / "demo.png.config.toml"

    def run(self) -> None:
        """Train networks and predictors, print scores, draw."""
        started = time.perf_counter()
        demo.run(
            demo.Config(networks=self.networks, repeats=self.repeats, seed=self.seed, out=self.out)
        )
        print(f"{time.perf_counter() - started:.0f} s in all")


@dataclass(frozen=True, kw_only=True)
class Table1(Job):
    """Predict success from weights on the Tiny RNN Zoo, with every method.

    Examples:
        unf reproduce table1 --small       (two CPU cores, a few minutes)
        unf reproduce table1               (10,000 networks; for a GPU)
    """

    small: bool = False  # A small version, for CPUs.
    out: Folder = None  # For results; out/table1 by default.
    seed: int = 0  # Seed of the zoo.
    seeds: int | None = None  # Predictors of each method; 5 by default, 2 with --small.

    @property
    def results(self) -> Path:
        """The folder of the zoo and the predictors."""
        return self.out or Path("out") / ("table1-small" if self.small else "table1")

    def run(self) -> None:
        """Build the zoo, train what has no result yet, print the table."""
        setting = table1.SMALL if self.small else table1.FULL
        result = table1.run(
            setting, self.results, seed=self.seed, seeds=self.seeds, show_progress=not self.quiet
        )
        print((self.results / "table1.json").read_text() if self.json else result)


@dataclass(frozen=True, kw_only=True)
class Table2(Command):
    """Count the parameters of learned optimizers.

    Examples:
        unf reproduce table2               (two CPU cores, half a minute)
    """

    json: bool = False  # Print JSON, for scripts.
    quiet: bool = False  # Show no progress.

    def run(self) -> None:
        """Make every optimizer, print the table."""
        rows = table2.run(show_progress=not self.quiet)
        if self.json:
            print_json([dataclasses.asdict(row) for row in rows])
        else:
            print(table2.as_text(rows))


@dataclass(frozen=True, kw_only=True)
class Figure2(Job):
    """Meta-train learned optimizers on four tasks, and draw their training curves.

    Examples:
        unf reproduce figure2 --small      (two CPU cores, some minutes)
        unf reproduce figure2 --data DIR   (at full size; for a GPU)
        unf reproduce figure2 --tasks mlp,cnn --steps mlp=50000,cnn=1000 --data DIR
        unf reproduce figure2 --tuned out/tune --data DIR   (after unf lopt tune of every optimizer)
    """

    small: bool = False  # A small version, for CPUs.
    out: Folder = None  # For results; out/figure2 by default.
    seed: int = 0  # Seed of the first meta-training.
    seeds: int | None = None  # Meta-trainings of each optimizer; 3 by default, 1 with --small.
    networks: int = 5  # Networks that each of them trains.
    tasks: tuple[str, ...] = tuple(figure2.KINDS)  # The panels.
    # Folder of unf lopt tune, with folders such as mlp-unf: the best settings for each optimizer,
    # except for the horizon.
    tuned: Folder = None
    # Meta-steps: a number, or one for each task as mlp=50000,cnn=1000, where they differ from
    # mlp=50000,cnn=10000,rnn=20000,transformer=5000.
    steps: Annotated[str | None, arg(metavar="N")] = None
    # Folder with datasets; the variable UNF_DATA by default, else built-in datasets.
    data: Data = None

    @property
    def results(self) -> Path:
        """The folder of the optimizers and their curves."""
        return self.out or Path("out") / ("figure2-small" if self.small else "figure2")

    def run(self) -> None:
        """Meta-train and evaluate what has no result yet, draw, print the tables."""
        result = figure2.run(
            self.results,
            tasks=self.tasks,
            steps=_steps(self.steps, self.tasks) if self.steps else {},
            small=self.small,
            folder=self.data and str(self.data),
            seed=self.seed,
            seeds=(1 if self.small else 3) if self.seeds is None else self.seeds,
            networks=self.networks,
            tuned=self.tuned,
            announce=say,
            show_progress=not self.quiet,
        )
        if self.json:
            print_json([json.loads(one.to_json()) for one in result.comparisons])
        else:
            print(result)


@dataclass(frozen=True, kw_only=True)
class Generalize(Job):
    """Train seven networks that learned optimizers never saw, with them, Adam, SGD and Muon.

    An OPTIMIZER is the folder of a meta-training, a file, or the name of a shipped optimizer, and
    works on every network. Adam runs at 1e-3, and Adam, SGD and Muon with the best options of a
    grid.

    Examples:
        unf reproduce generalize --data DIR                           (for a GPU)
        unf reproduce generalize --tasks vit,gpt --data DIR
        unf reproduce generalize out/any/tied out/any/deepset --data DIR
        unf reproduce generalize --small                              (two CPU cores, minutes)
    """

    # Learned optimizers to compare.
    optimizers: Annotated[Positional[tuple[str, ...]], arg(metavar="OPTIMIZER")] = (
        generalize.SHIPPED
    )
    small: bool = False  # A small version, for CPUs.
    out: Folder = None  # For results; out/generalize by default.
    seeds: int = 5  # Networks trained with each optimizer.
    tasks: tuple[str, ...] = tuple(generalize.UNSEEN)  # Which networks.
    # Folder with datasets; the variable UNF_DATA by default, else built-in datasets.
    data: Data = None

    @property
    def results(self) -> Path:
        """The folder of the comparisons."""
        return self.out or Path("out") / ("generalize-small" if self.small else "generalize")

    def run(self) -> None:
        """Evaluate on what has no result yet, draw, print the tables."""
        result = generalize.run(
            self.results,
            self.optimizers,
            tasks=self.tasks,
            setting=generalize.SMALL if self.small else generalize.FULL,
            seeds=self.seeds,
            folder=self.data and str(self.data),
            announce=say,
            show_progress=not self.quiet,
        )
        print(result.to_json() if self.json else f"{result}\n\neverything is in {self.results}")


@dataclass(frozen=True, kw_only=True)
class Mixed(Job):
    """Predict accuracy in a zoo of many architectures, also of architectures never seen.

    Examples:
        unf reproduce mixed --small        (two CPU cores, minutes)
        unf reproduce mixed --data DIR     (10,000 networks of 52 architectures; for a GPU)
    """

    small: bool = False  # A small version, for CPUs.
    out: Folder = None  # For results; out/mixed by default.
    seed: int = 0  # Seed of the zoo.
    seeds: int | None = None  # Predictors of each method; 3 by default, 2 with --small.
    data: Data = None  # Folder with datasets; the variable UNF_DATA by default.

    @property
    def results(self) -> Path:
        """The folder of the zoo and the predictors."""
        return self.out or Path("out") / ("mixed-small" if self.small else "mixed")

    def run(self) -> None:
        """Build the zoo, train what has no result yet, print the tables."""
        result = mixed.run(
            mixed.SMALL if self.small else mixed.FULL,
            self.results,
            seed=self.seed,
            seeds=self.seeds,
            folder=self.data and str(self.data),
            show_progress=not self.quiet,
        )
        print((self.results / "mixed-table.json").read_text() if self.json else result)


@dataclass(frozen=True, kw_only=True)
class _Readers(Job):
    """What `inr` and `zoos` have in common."""

    small: bool = False  # A small version, for CPUs.
    out: Folder = None  # For results; out/inr or out/zoos by default.
    seed: int = 0  # Seed of the zoos.
    seeds: int | None = None  # Predictors of each method; 5 by default, 2 with --small.
    rows: tuple[str, ...] = ()  # Which zoos, as listed above; all by default.
    methods: tuple[str, ...] = ()  # Which methods; all by default.
    data: Data = None  # Folder with datasets; the variable UNF_DATA by default.

    def compare(self, known: dict[str, readers.Row]) -> None:
        """Build zoos, train what has no result yet, print the tables."""
        if unknown := [name for name in self.rows if name not in known]:
            version = "with --small" if self.small else "without --small"
            raise CommandError(
                f"--rows has {unknown[0]!r}; expected some of {list(known)} {version}"
            )
        result = readers.run(
            {name: known[name] for name in self.rows or known},
            self.results,
            seed=self.seed,
            seeds=(2 if self.small else 5) if self.seeds is None else self.seeds,
            methods=self.methods,
            folder=self.data and str(self.data),
            show_progress=not self.quiet,
        )
        print(result.to_json() if self.json else result)


@dataclass(frozen=True, kw_only=True)
class Inr(_Readers):
    """Predict an image's class from the weights of its implicit network, with seven methods.

    The zoos are mnist-1, mnist-10, fashion-mnist-1, fashion-mnist-10, cifar10-1, and cifar10-10,
    with one or ten networks for each training image; digits-1 with --small.

    Examples:
        unf reproduce inr --small                        (two CPU cores, minutes)
        unf reproduce inr --rows mnist-1 --data DIR      (for a GPU)
        unf reproduce inr --rows mnist-1 --methods reader,probe --seeds 1 --data DIR
    """

    @property
    def results(self) -> Path:
        """The folder of the zoos and the predictors."""
        return self.out or Path("out") / ("inr-small" if self.small else "inr")

    def run(self) -> None:
        """Compare on implicit networks."""
        self.compare(readers.INR_SMALL if self.small else readers.INR)


@dataclass(frozen=True, kw_only=True)
class Zoos(_Readers):
    """Predict the success of networks from their weights, with seven methods.

    The zoos are small-cnn (gray CIFAR-10), varied-rnn, in which several settings vary that are not
    stored, and tiny-rnn, the paper's; with --small, small versions of the first two.

    Examples:
        unf reproduce zoos --small                       (two CPU cores, minutes)
        unf reproduce zoos --rows small-cnn --data DIR   (for a GPU)
    """

    @property
    def results(self) -> Path:
        """The folder of the zoos and the predictors."""
        return self.out or Path("out") / ("zoos-small" if self.small else "zoos")

    def run(self) -> None:
        """Compare on zoos of classifiers and recurrent networks."""
        self.compare(readers.ZOOS_SMALL if self.small else readers.ZOOS)


@dataclass(frozen=True, kw_only=True)
class Edit(Job):
    """Edit images through the weights of their implicit networks: dilate, erode, raise contrast.

    Examples:
        unf reproduce edit --small                       (two CPU cores, minutes)
        unf reproduce edit --edits dilate --data DIR     (MNIST; for a GPU)
    """

    small: bool = False  # A small version, for CPUs.
    out: Folder = None  # For results; out/edit by default.
    seed: int = 0  # Seed of the zoo.
    seeds: int | None = None  # Editors of each kind; 5 by default, 1 with --small.
    edits: tuple[str, ...] = tuple(edit.EDITS)  # What is done to images.
    data: Data = None  # Folder with datasets; the variable UNF_DATA by default.
    # Folder of the zoo, if it is not to be built again, such as out/inr/mnist-1/zoo.
    zoo: Folder = None

    @property
    def results(self) -> Path:
        """The folder of the zoo and the editors."""
        return self.out or Path("out") / ("edit-small" if self.small else "edit")

    def run(self) -> None:
        """Build the zoo, train what has no result yet, print the table."""
        result = edit.run(
            edit.SMALL if self.small else edit.FULL,
            self.results,
            edits=self.edits,
            seed=self.seed,
            seeds=(1 if self.small else 5) if self.seeds is None else self.seeds,
            folder=self.data and str(self.data),
            zoo_folder=self.zoo,
            show_progress=not self.quiet,
        )
        print(result.to_json() if self.json else result)


@dataclass(frozen=True, kw_only=True)
class Barriers(Job):
    """Train pairs of networks, align them, and measure the loss on the lines between them.

    Cases: mlp (MNIST), cnn and cnn-4x (group norm, CIFAR-10), resnet and resnet-4x (batch norm,
    CIFAR-10), gpt (bytes of LM1B); with --small, mlp and cnn on digits.

    Examples:
        unf reproduce barriers --small                   (two CPU cores, minutes)
        unf reproduce barriers --cases mlp,gpt --data DIR   (a GPU)
    """

    small: bool = False  # A small version, for CPUs.
    out: Folder = None  # For results; out/barriers by default.
    cases: tuple[str, ...] = ()  # Which networks; all by default.
    pairs: int = 3  # How many pairs of each.
    points: int = 25  # How many points of each line.
    seed: int = 0  # Seed of everything.
    data: Data = None  # Folder with datasets; the variable UNF_DATA by default.

    @property
    def results(self) -> Path:
        """The folder of the results."""
        return self.out or Path("out") / ("barriers-small" if self.small else "barriers")

    def run(self) -> None:
        """Train and measure what has no result yet, print the table."""
        known = barriers.SMALL if self.small else barriers.FULL
        if unknown := [name for name in self.cases if name not in known]:
            raise CommandError(f"--cases has {unknown[0]!r}; expected some of {list(known)}")
        result = barriers.run(
            {name: known[name] for name in self.cases or known},
            self.results,
            pairs=self.pairs,
            points=self.points,
            seed=self.seed,
            folder=self.data and str(self.data),
            show_progress=not self.quiet,
        )
        print(result.to_json() if self.json else result)


def _steps(text: str, tasks: tuple[str, ...]) -> dict[str, int]:
    """Meta-steps by task, from a number for all or from `task=number,…`."""
    try:
        if "=" not in text:
            return dict.fromkeys(tasks, int(text))
        pairs = (part.split("=") for part in text.split(","))
        return {task: int(steps) for task, steps in pairs}
    except ValueError:
        expected = "a number, or tasks with numbers as mlp=50000,cnn=1000"
        raise CommandError(f"--steps is {text!r}; expected {expected}") from None


@dataclass(frozen=True, kw_only=True)
class Report(Command):
    """Make one HTML page about a run: figures, curves, configuration.

    The page needs no network and no other file. RUN is a zoo, a predictor's training, a
    meta-training, a comparison of optimizers, or a folder with several of them, finished or not.

    Examples:
        unf report out/zoo
        unf report out/lopt/mlp-unf --open
        unf report out/mlp.json --out mlp.html
    """

    # A folder with results, or a file of unf lopt eval.
    run_folder: Annotated[Positional[Path], arg(metavar="RUN")]
    out: File = None  # The page; report.html in the folder by default, or beside the file.
    open: bool = False  # Show the page in a browser.

    def run(self) -> None:
        """Write the page, and print where it is."""
        page = report.write(self.run_folder, self.out)
        print(page)
        if self.open and not webbrowser.open(page.resolve().as_uri()):
            say("no browser was found; open the file in one")
