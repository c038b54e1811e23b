"""`unf zoo`: build, describe and draw zoos of trained networks."""

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...zoo import Status, Zoo
from .. import plots
from .._option import option
from ..zoos import RECIPES, Recipe, build
from ._command import Command, group
from ._processes import Processes
from ._shared import INTERRUPTED, print_json, require

_EXAMPLES = {
    "tiny-rnn": """\
  unf zoo build tiny-rnn --models 256 --hidden 16 --digits 1 --steps 500 --batch-sizes 32,64,128 \\
      --out out/zoo                                    (two CPU cores, two minutes)
  unf zoo build tiny-rnn --models 10000 --seed 0 --out out/tiny-rnn      (a GPU, ten minutes)
  unf zoo build tiny-rnn --models 10000 --seed 0 --out out/tiny-rnn --resume
""",
}


@dataclass(frozen=True, kw_only=True)
class Build(Command):
    """Train networks and store them."""

    recipe: Recipe = group("the recipe")
    models: int = option(10_000, "how many networks")
    seed: int = option(0, "of everything random")
    out: Path = option(help="the zoo's folder", metavar="DIR")
    resume: bool = option(False, "continue a zoo that was begun", passing=True)
    repair: bool = option(False, "with --resume: train damaged chunks again", passing=True)
    chunk: int | None = option(None, "networks trained at once; by default chosen")
    quiet: bool = option(False, "show no progress", passing=True)
    processes: Processes = group("several processes")

    def results(self) -> Path:
        """The zoo's folder."""
        return self.out

    def settled(self) -> "Build":
        """With the chunk and the type of numbers that the zoo has."""
        if not (self.out / "zarr.json").exists():
            return self
        zoo = Zoo(self.out)
        recipe = self.recipe.resolved(like=zoo.config)
        return dataclasses.replace(self, recipe=recipe, chunk=zoo.store.chunk)

    def run(self) -> int:
        """Build, and describe what was built."""
        try:
            zoo = build(
                self.recipe,
                self.out,
                models=self.models,
                seed=self.seed,
                chunk=self.chunk,
                resume=self.resume,
                repair=self.repair,
                show_progress=not self.quiet,
            )
        except KeyboardInterrupt:
            begun = (self.out / "zarr.json").exists()
            found = f"what is finished is stored:\n{Zoo(self.out).describe()}" if begun else ""
            print(f"\nstopped; {found or 'nothing was begun'}", file=sys.stderr)
            return INTERRUPTED
        print(zoo.describe())
        return 0


def build_with(recipe: type[Recipe]) -> type[Build]:
    """The command that builds zoos of one recipe, which has the recipe's options."""
    summary, name = (recipe.__doc__ or "").partition("\n")[0], recipe.name
    usual = f"  unf zoo build {name} --models 64 --out out/{name}\n"
    return dataclasses.make_dataclass(
        f"Build{recipe.__name__}",
        [("recipe", recipe, group("the recipe"))],
        bases=(Build,),
        namespace={"__doc__": summary, "examples": _EXAMPLES.get(name, usual)},
        frozen=True,
        kw_only=True,
    )


@dataclass(frozen=True, kw_only=True)
class Info(Command):
    """Say what is in a zoo."""

    examples = """\
  unf zoo info out/zoo
  unf zoo info out/zoo --check --json
  unf zoo info out/zoo --csv out/zoo.csv
"""
    zoo: Path = option(help="the zoo's folder", positional=True)
    check: bool = option(False, "read everything and say what is damaged")
    json: bool = option(False, "for scripts", passing=True)
    csv: Path | None = option(None, "write a line for each model", metavar="FILE")

    def run(self) -> int:
        """Print it; 1 if something is damaged."""
        zoo = Zoo(self.zoo)
        damage = [why for _, why in zoo.damage()] if self.check else []
        if self.json:
            print_json(zoo.summary() | ({"damage": damage} if self.check else {}))
        else:
            print(
                "\n".join([*damage, f"{len(damage)} damaged chunks"]) if damage else zoo.describe()
            )
        if damage:
            return 1
        if self.check and not self.json:
            print("every chunk can be read")
        if self.csv:
            self.csv.parent.mkdir(parents=True, exist_ok=True)
            self.csv.write_text(_as_csv(zoo))
        return 0


def _as_csv(zoo: Any) -> str:
    """Choices and measurements of every finished model."""
    names = ["success", "success_again", "loss", "loss_again", *zoo.choices]
    columns = [*zoo.success.T, *zoo.loss.T, *zoo.choices.values()]
    lines = [",".join(["model", "status", *names])]
    for model in np.flatnonzero(zoo.status):
        values = [f"{column[model]:.6g}" for column in columns]
        lines.append(",".join([str(model), Status(zoo.status[model]).name.lower(), *values]))
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, kw_only=True)
class Plot(Command):
    """Draw a zoo."""

    examples = "  unf zoo plot out/zoo\n"
    zoo: Path = option(help="the zoo's folder", positional=True)
    out: Path | None = option(None, "the picture; by default zoo.png in the zoo", metavar="FILE")

    def run(self) -> int:
        """Draw, and print where the picture is."""
        require(["matplotlib"], "plots")
        path = self.out or self.zoo / "zoo.png"
        plots.save(plots.zoo_overview(Zoo(self.zoo)), path)
        print(path)
        return 0


FAMILIES = {
    "zoo": "build, describe and draw zoos of trained networks",
    "zoo build": "train networks and store them",
}
COMMANDS: dict[str, type[Command]] = {
    **{f"zoo build {name}": build_with(recipe) for name, recipe in RECIPES.items()},
    "zoo info": Info,
    "zoo plot": Plot,
}
