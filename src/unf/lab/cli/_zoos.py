"""`unf zoo` and `unf predict`: zoos of trained networks, and predictors that read their weights."""

import csv
import dataclasses
import io
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import numpy as np
from tyro.conf import Positional, arg

from ..._devices import is_first
from ..._progress import say
from ...spec import WeightSpace
from ...zoo import MixedZoo, Status, Zoo, open_zoo
from ...zoo._mixed import INDEX
from ...zoo._zoo import check_free
from .. import plots, predict
from ..predict._methods import defaults_of
from ..tasks import Runnable
from ..zoos import MixedRecipe, Recipe, build, build_mixed
from ..zoos._files import read_zoo
from ..zoos._published import read_published
from ._command import (
    Command,
    CommandError,
    File,
    Folder,
    Job,
    one_of,
    options_of,
    print_json,
    with_flags,
)
from ._network import load_example, load_name
from ._processes import Processes

R = TypeVar("R", bound=Recipe | MixedRecipe)
MODELS = 10_000
ZooFolder = Annotated[Path, arg(metavar="ZOO")]


@dataclass(frozen=True, kw_only=True)
class Build(Job, Generic[R]):
    r"""Train networks and store them.

    unf zoo build my_module:MyRecipe trains with a recipe of your own.

    Examples:
        unf zoo build tiny-rnn --models 256 --hidden 16 --digits 1 --steps 500 \
            --batch-sizes 32,64,128 --out out/zoo          (two CPU cores, two minutes)
        unf zoo build tiny-rnn --out out/tiny-rnn          (a GPU, ten minutes)
        unf zoo build tiny-rnn --out out/tiny-rnn --resume
        unf zoo build varied-rnn --models 8000 --out out/varied-rnn    (a GPU, minutes)
        unf zoo build small-cnn --models 64 --out out/small-cnn
        unf zoo build two-moons --models 500 --out out/two-moons
        unf zoo build classifier --dataset digits --kind cnn --models 64 --out out/classifier
        unf zoo build inr --dataset digits --models 500 --steps 300 --out out/inr
        unf zoo build inr --dataset mnist --copies 10 --data-folder DIR --out out/inr
        unf zoo build mixed --data-folder DIR --out out/mixed          (a GPU, minutes)
        unf zoo build mixed --datasets digits --models 80 --architectures 6 --held-out 2 \
            --widths 4,8 --new-widths 6 --steps 100 --out out/mixed    (two CPU cores, minutes)
    """

    recipe: R
    out: ZooFolder  # The folder of the zoo.
    models: int | None = None  # How many networks; 10,000, or one for each image with inr.
    seed: int = 0  # Seed of all random numbers.
    chunk: int | None = None  # How many networks are trained at once; chosen by default.
    resume: bool = False  # Continue a zoo that was begun.
    repair: bool = False  # With --resume, train networks again whose files are damaged.
    processes: Processes

    @property
    def results(self) -> Path:
        """The folder of the zoo."""
        return self.out

    def settled(self) -> "Build[R]":
        """With the chunk size and the dtype of the zoo."""
        if isinstance(self.recipe, MixedRecipe) or not (self.out / "zarr.json").exists():
            return self
        zoo = Zoo(self.out)
        recipe = self.recipe.resolved(like=zoo.config)
        return dataclasses.replace(self, recipe=recipe, chunk=zoo.store.chunk)

    def run(self) -> None:
        """Build the zoo and describe it."""
        names = ("models", "seed", "chunk", "resume", "repair")
        options = {name: getattr(self, name) for name in names}
        if self.models is None:
            options["models"] = self.recipe.most_models or MODELS
        options["show_progress"] = not self.quiet
        if isinstance(self.recipe, MixedRecipe):
            zoo: Zoo | MixedZoo = build_mixed(self.recipe, self.out, **options)
        else:
            zoo = build(self.recipe, self.out, **options)
        print_json(zoo.summary()) if self.json else print(zoo.describe())


def build_with(target: str) -> Any:
    """The command that builds with a user's recipe, package.module:Class or path/file.py:Class.

    Raises:
        CommandError: if there is no such recipe, or it cannot have options.
    """

    def is_recipe(x: Any) -> bool:
        return isinstance(x, type) and issubclass(x, Recipe) and x is not Recipe

    recipe = load_name(target, is_recipe, "recipe", ", a subclass of unf.lab.zoos.Recipe")
    if "__dataclass_params__" not in vars(recipe):
        raise CommandError(f"{target} is not a dataclass; put @dataclass(frozen=True) above it")
    if not isinstance(getattr(recipe, "name", None), str):
        raise CommandError(f"{target} has no name; give it one, e.g. name = 'rings'")
    options = options_of(Build[Recipe]).keys() - options_of(Recipe).keys()
    if both := options & options_of(recipe).keys():
        raise CommandError(f"{target}: {min(both)!r} is an option of unf zoo build; rename it")
    return Build[recipe]


@dataclass(frozen=True, kw_only=True)
class Import(Job):
    r"""Make a zoo of networks that you have, in files.

    FOLDER has one file for each network: safetensors, npz, or a PyTorch state dict (.pt, .pth).
    The first column of the CSV file names the files, with or without the suffix. The others are
    scores, or settings if --settings names them; NAME_again is a second measurement of NAME.

    --network is a function as for unf spec: it returns (fn, params, *inputs), a PyTorch module and
    its inputs, or a WeightSpace. Arrays in the files have the names of the parameters, such as
    Dense_0/kernel or 0.weight.

    --layout reads a zoo that others have published, as they have published it: the SIRENs of
    DWSNets (dws-siren) or of NFN (nfn-siren), or the Small CNN Zoo (small-cnn-zoo). It needs
    neither scores nor a network.

    Examples:
        unf zoo import networks --scores scores.csv --network my_model:example --out out/mine
        unf zoo import networks --scores scores.csv --settings optimizer,learning_rate \
            --network my_model.py:example --out out/mine
        unf zoo import mnist-inrs --layout dws-siren --out out/mnist-inrs
        unf zoo import cifar10 --layout small-cnn-zoo --out out/cifar10
    """

    at_once: ClassVar[bool] = True

    folder: Annotated[Positional[Path], arg(metavar="FOLDER")]  # The networks, one in each file.
    # CSV: a file name and scores in each line.
    scores: Annotated[Path | None, arg(metavar="FILE")] = None
    # The function that returns the network.
    network: Annotated[str | None, arg(metavar="TARGET")] = None
    # The layout of a published zoo: dws-siren, nfn-siren, or small-cnn-zoo.
    layout: Annotated[str | None, arg(metavar="NAME")] = None
    out: ZooFolder  # The folder of the zoo.
    # Columns of the CSV file that say how each network was trained.
    settings: Annotated[tuple[str, ...], arg(metavar="NAME,…")] = ()

    @property
    def results(self) -> Path:
        """The folder of the zoo."""
        return self.out

    def run(self) -> None:
        """Read all files, write the zoo and describe it."""
        check_free(self.out)
        self._read().save(self.out)
        zoo = Zoo(self.out)
        print_json(zoo.summary()) if self.json else print(zoo.describe())

    def _read(self) -> Zoo:
        if self.layout is not None:
            if self.scores or self.network or self.settings:
                raise CommandError("--layout needs no --scores, --network, or --settings")
            return read_published(self.folder, self.layout, show_progress=not self.quiet)
        if self.scores is None or self.network is None:
            missing = "--scores" if self.scores is None else "--network"
            raise CommandError(f"{missing} is missing; or name a published zoo with --layout")
        example = load_example(self.network)
        return read_zoo(
            self.folder,
            self.scores,
            example.infer(),
            settings=self.settings,
            others_allowed=isinstance(example.network, WeightSpace),
            show_progress=not self.quiet,
        )


@dataclass(frozen=True, kw_only=True)
class Info(Command):
    """Describe a zoo.

    Examples:
        unf zoo info out/zoo
        unf zoo info out/zoo --check --json
        unf zoo info out/zoo --csv out/zoo.csv
    """

    zoo: Positional[ZooFolder]  # The folder of the zoo.
    check: bool = False  # Read every file, and list those that are damaged.
    json: bool = False  # Print JSON, for scripts.
    csv: File = None  # Write a line for each network.

    def run(self) -> int:
        """Print the description; returns 1 if something is damaged."""
        zoo = open_zoo(self.zoo)
        damage = [why for _, why in zoo.damage()] if self.check else []
        if self.json:
            print_json(zoo.summary() | ({"damage": damage} if self.check else {}))
        else:
            checked = [f"{len(damage)} damaged chunks"] if self.check else []
            lines = [*(damage or [zoo.describe()]), *checked]
            print(with_flags("\n".join(lines), {"resume", "repair"}))
        if self.csv and not damage:
            self.csv.parent.mkdir(parents=True, exist_ok=True)
            self.csv.write_text(_as_csv(zoo), encoding="utf-8")
        return int(bool(damage))


def _as_csv(zoo: Zoo | MixedZoo) -> str:
    """Scores and settings of every finished network; NAME_again is measured again."""
    mixed = isinstance(zoo, MixedZoo)
    columns: dict[str, np.ndarray] = {"architecture": zoo.architecture} if mixed else {}
    for name, score in zoo.scores.items():
        columns |= {name + "_again" * i: column for i, column in enumerate(score.T)}
    columns |= zoo.settings
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["model", "status", *columns])
    for model in np.flatnonzero(zoo.status):
        values = [column[model] for column in columns.values()]
        cells = [x if isinstance(x, str) else f"{x:.6g}" for x in values]
        writer.writerow([model, Status(zoo.status[model]).name.lower(), *cells])
    return text.getvalue()


@dataclass(frozen=True, kw_only=True)
class Plot(Command):
    """Draw a zoo.

    Examples:
        unf zoo plot out/zoo
    """

    zoo: Positional[ZooFolder]  # The folder of the zoo.
    out: File = None  # The picture; zoo.png in the folder by default.

    def run(self) -> None:
        """Draw, and print where the picture is."""
        path = self.out or self.zoo / "zoo.png"
        plots.save(plots.zoo_overview(open_zoo(self.zoo)), path)
        print(path)


@dataclass(frozen=True, kw_only=True)
class Train(Job):
    """Train predictors of a score or a class of a zoo's networks, and test them once.

    --network is for the methods probe and reader-probe, which run the networks, on zoos that unf
    did not build: a function as for unf spec, which returns (fn, params, inputs), or a PyTorch
    module and its input. Probes start from these inputs if they are several arrays with values.

    Examples:
        unf predict train --zoo out/zoo --method unf --seeds 5 --out out/unf
        unf predict train --zoo out/zoo --method statnn
        unf predict train --zoo out/mine --method unf --score accuracy
        unf predict train --zoo out/mixed --method tied
        unf predict train --zoo out/inr --method reader --augment
        unf predict train --zoo out/mine --method probe --network my_model:example
    """

    zoo: ZooFolder  # Networks whose score is to be predicted.
    out: Folder = None  # For results; out/predict-METHOD by default.
    method: Annotated[str, one_of(tuple(predict.METHODS))]  # The kind of predictor.
    # Which score to predict; the zoo's first by default, or label if it has that. A setting with
    # words can also be predicted, as classes.
    score: Annotated[str | None, arg(metavar="NAME")] = None
    # The function that returns the network.
    network: Annotated[str | None, arg(metavar="TARGET")] = None
    seeds: int = 5  # How many predictors to train.
    seed: int = 0  # Seed of the first predictor.
    # How many networks to train on, validate with and test on; 8:1:1 by default.
    split: Annotated[tuple[int, ...] | None, arg(metavar="A,B,C")] = None
    include_diverged: bool = False  # Use networks with NaN weights too, with zeros for NaN.
    resume: bool = False  # Continue after the last finished epoch.
    overwrite: bool = False  # Replace an earlier training in the folder.
    training: predict.Training
    processes: Processes

    @classmethod
    def presets(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """How the method is trained."""
        method, zoo = given.get("method", ""), given.get("zoo")
        if method not in predict.METHODS:
            return {}
        mixed = isinstance(zoo, str | Path) and (Path(zoo) / INDEX).is_file()
        return {"training": defaults_of(method, mixed)}

    @property
    def results(self) -> Path:
        """The folder of the predictors."""
        return self.out or Path("out") / f"predict-{self.method}"

    def run(self) -> None:
        """Train, test and draw."""
        zoo = open_zoo(self.zoo)
        report = predict.train(
            zoo,
            self.method,
            self.results,
            score=self.score,
            training=self.training,
            seeds=self.seeds,
            seed=self.seed,
            sizes=self.split,
            network=_runnable(self.network, zoo),
            include_diverged=self.include_diverged,
            resume=self.resume,
            overwrite=self.overwrite,
            show_progress=not self.quiet,
        )
        if not is_first():
            return
        plots.save(plots.predictions([report]), self.results / "predictions.png")
        plots.save(plots.training_curves([report]), self.results / "curves.png")
        print_json(json.loads(report.to_json())) if self.json else print(report)
        say(f"results in {self.results}")


def _runnable(target: str | None, zoo: Zoo | MixedZoo) -> Runnable | None:
    """How to run the networks of a zoo, if the user says how."""
    if target is None:
        return None
    if isinstance(zoo, MixedZoo):
        raise CommandError("--network is for zoos of one architecture")
    return load_example(target).runnable(zoo.space)


def _cell(value: str | float) -> str:
    """A class, or a number, which may not be known."""
    return value if isinstance(value, str) else "" if isnan(value) else f"{value:.6f}"


@dataclass(frozen=True, kw_only=True)
class Apply(Command):
    """Predict the score or class of a zoo's networks, as CSV.

    The column measured has the score that the predictor was trained for, if the zoo has it. The
    column split says what a network was for the predictor: train, valid or test if the predictor
    was trained on this zoo, and nothing if it was not.

    Examples:
        unf predict apply --checkpoint out/unf --zoo out/another-zoo > predictions.csv
        unf predict apply --checkpoint out/probe --zoo out/mine --network my_model:example
    """

    # A predictor's file, or the folder of several, whose predictions are averaged.
    checkpoint: Annotated[Path, arg(metavar="PATH")]
    zoo: ZooFolder  # Networks whose weights are read.
    # The function that returns the network, if the predictor was trained with it.
    network: Annotated[str | None, arg(metavar="TARGET")] = None
    out: File = None  # The CSV file; standard output by default.

    def run(self) -> None:
        """Predict, and print or write a line for each network."""
        zoo = open_zoo(self.zoo)
        found = predict.apply(self.checkpoint, zoo, network=_runnable(self.network, zoo))
        lines = io.StringIO()
        table = csv.writer(lines, lineterminator="\n")
        table.writerow(("model", "predicted", "measured", "split"))
        for row, predicted, measured, part in zip(*found, strict=True):
            table.writerow((row, _cell(predicted), _cell(measured), part))
        text = lines.getvalue()
        if self.out:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self.out.write_text(text)
        else:
            sys.stdout.write(text)
        seen = np.isin(found.split, ("train", "valid")).sum()
        if seen:
            used = f"{seen} of {len(found.rows)} networks were used in training"
            say(f"note: {used}; see the column split")
