"""`unf zoo`: build, describe and draw zoos of trained networks."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ..zoo import RECIPES, Status, Zoo, build, draw
from ._options import INTERRUPTED, Help, add_options, from_options, require
from ._processes import add_processes

EPILOG = """\
examples:
  unf zoo build tiny-rnn --models 256 --hidden 16 --digits 1 --steps 500 --batch-sizes 32,64,128 \\
      --out out/zoo                                    (two CPU cores, two minutes)
  unf zoo build tiny-rnn --models 10000 --seed 0 --out out/tiny-rnn      (a GPU, ten minutes)
  unf zoo build tiny-rnn --models 10000 --seed 0 --out out/tiny-rnn --resume
  unf zoo info out/zoo
  unf zoo plot out/zoo
"""


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "zoo",
        help="build, describe and draw zoos of trained networks",
        description="Zoos: many networks of one kind, trained, measured and stored.",
        epilog=EPILOG,
        formatter_class=Help,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    build = actions.add_parser("build", help="train networks and store them")
    kinds = build.add_subparsers(dest="recipe", metavar="RECIPE", required=True)
    for name, kind in RECIPES.items():
        summary = (kind.__doc__ or "").partition("\n")[0]
        one = kinds.add_parser(name, help=summary, description=summary, formatter_class=Help)
        one.add_argument("--models", type=int, default=10_000, help="how many networks")
        one.add_argument("--seed", type=int, default=0, help="of everything random")
        one.add_argument("--out", type=Path, required=True, metavar="DIR", help="the zoo's folder")
        one.add_argument("--resume", action="store_true", help="continue a zoo that was begun")
        one.add_argument(
            "--repair", action="store_true", help="with --resume: train damaged chunks again"
        )
        one.add_argument(
            "--chunk", type=int, default=None, help="networks trained at once; none: chosen"
        )
        one.add_argument("--quiet", action="store_true", help="show no progress")
        add_processes(one)
        add_options(one.add_argument_group("the recipe"), kind)
        one.set_defaults(run=_build)
    info = actions.add_parser("info", help="what is in a zoo", formatter_class=Help)
    info.add_argument("zoo", type=Path, metavar="DIR")
    info.add_argument(
        "--check", action="store_true", help="read everything and say what is damaged"
    )
    info.add_argument("--json", action="store_true", help="for scripts")
    info.add_argument("--csv", type=Path, metavar="FILE", help="write a line for each model")
    info.set_defaults(run=_info)
    plot = actions.add_parser("plot", help="draw a zoo", formatter_class=Help)
    plot.add_argument("zoo", type=Path, metavar="DIR")
    plot.add_argument("--out", type=Path, default=None, help="file; none: zoo.png in the zoo")
    plot.set_defaults(run=_plot)


def _build(options: argparse.Namespace) -> int:
    recipe = from_options(RECIPES[options.recipe], options)
    try:
        zoo = build(
            recipe,
            options.out,
            models=options.models,
            seed=options.seed,
            chunk=options.chunk,
            resume=options.resume,
            repair=options.repair,
            show_progress=not options.quiet,
        )
    except KeyboardInterrupt:
        begun = (options.out / "zarr.json").exists()
        found = f"what is finished is stored:\n{Zoo(options.out).describe()}" if begun else ""
        print(f"\nstopped; {found or 'nothing was begun'}", file=sys.stderr)
        return INTERRUPTED
    print(zoo.describe())
    return 0


def _info(options: argparse.Namespace) -> int:
    zoo = Zoo(options.zoo)
    damage = zoo.damage() if options.check else []
    if damage:
        print("\n".join([*(why for _, why in damage), f"{len(damage)} damaged chunks"]))
        return 1
    print(json.dumps(zoo.summary(), indent=1) if options.json else zoo.describe())
    if options.check and not options.json:
        print("every chunk can be read")
    if options.csv:
        options.csv.parent.mkdir(parents=True, exist_ok=True)
        options.csv.write_text(_as_csv(zoo))
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


def _plot(options: argparse.Namespace) -> int:
    require(["matplotlib"], "plots")
    path = options.out or options.zoo / "zoo.png"
    draw(Zoo(options.zoo), path)
    print(path)
    return 0
