"""`unf lopt`: meta-train, evaluate and draw learned optimizers."""

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

from .._devices import is_first
from .._files import write_whole
from ..data import DataError
from ..experiments.lopt import (
    GRIDS,
    SMALL,
    Comparison,
    Pace,
    compare,
    draw_comparisons,
    evaluate,
    join,
    make_task,
)
from ..meta import MetaTraining, Row, first_theta, meta_train
from ..optim import KINDS, learned_optimizer, load, origin, trained
from ..tasks import TASKS
from ._options import INTERRUPTED, Help, OptionError, add_options, from_options, require
from ._processes import add_processes

EPILOG = """\
examples:
  unf lopt train --task mlp --optimizer unf --small             (two CPU cores, a minute)
  unf lopt train --task mlp --optimizer unf --data DIR          (a GPU)
  unf lopt train --task mlp --optimizer unf --data DIR --resume
  unf lopt eval --task mlp out/lopt/mlp-unf out/lopt/mlp-sgdm --out out/mlp.json
  unf lopt plot out/mlp.json
"""


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "lopt",
        help="meta-train, evaluate and draw learned optimizers",
        description="Learned optimizers: networks that read weights and gradients, and update.",
        epilog=EPILOG,
        formatter_class=Help,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    train = actions.add_parser("train", help="meta-train an optimizer", formatter_class=Help)
    _add_task(train)
    train.add_argument("--optimizer", choices=KINDS, required=True, help="kind of f")
    train.add_argument("--small", action="store_true", help="a small version, for CPUs")
    train.add_argument("--seed", type=int, default=0, help="of everything random")
    train.add_argument("--resume", action="store_true", help="go on from a checkpoint")
    train.add_argument("--checkpoint-seconds", type=float, default=60.0, help="between checkpoints")
    train.add_argument("--tensorboard", action="store_true", help="write metrics for it too")
    train.add_argument(
        "--out", type=Path, default=None, metavar="DIR", help="none: out/lopt/TASK-OPTIMIZER"
    )
    add_processes(train)
    group = train.add_argument_group("meta-training (defaults: the paper's, or those of --small)")
    add_options(group, MetaTraining, defaults=False)
    train.set_defaults(run=_train)
    test = actions.add_parser("eval", help="train fresh networks with it", formatter_class=Help)
    test.add_argument(
        "optimizers",
        nargs="*",
        metavar="OPTIMIZER",
        help=f"folder of a meta-training, file, or one of {trained() or 'those that ship'}",
    )
    _add_task(test)
    test.add_argument("--seeds", type=int, default=5, help="networks to train with each")
    test.add_argument("--horizon", type=int, default=0, help="steps; 0: the paper's")
    test.add_argument(
        "--baselines", default=",".join(GRIDS), help="tuned by grid; none: leave them out"
    )
    test.add_argument("--out", type=Path, default=None, metavar="FILE", help="none: out/TASK.json")
    test.set_defaults(run=_eval)
    plot = actions.add_parser("plot", help="draw curves", formatter_class=Help)
    plot.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="from unf lopt eval; a panel for each task",
    )
    plot.add_argument("--out", type=Path, default=Path("out/lopt.png"), help="the picture")
    plot.set_defaults(run=_plot)


def _add_task(parser: Any) -> None:
    parser.add_argument("--task", choices=TASKS, required=True, help="what networks learn")
    parser.add_argument(
        "--dataset", default="auto", help="auto: the paper's; a built-in one if no folder is named"
    )
    parser.add_argument(
        "--data", "--data-folder", default=None, metavar="DIR", help="none: what UNF_DATA names"
    )
    parser.add_argument("--batch-size", type=int, default=None, help="none: the paper's")
    parser.add_argument(
        "--dtype",
        default=None,
        help="of convolutions; none: bfloat16 on accelerators",
    )
    parser.add_argument("--vocabulary", type=int, default=None, help="subwords; none: 4096")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def _task(options: argparse.Namespace) -> Any:
    given = {name: getattr(options, name) for name in ("batch_size", "dtype", "vocabulary")}
    try:
        task, about = make_task(
            options.task,
            dataset=options.dataset,
            folder=options.data,
            **{name: value for name, value in given.items() if value is not None},
        )
    except DataError:
        raise
    except ValueError as error:
        raise OptionError(str(error)) from error
    print(about, file=sys.stderr)
    return task


def _train(options: argparse.Namespace) -> int:
    defaults = dataclasses.asdict(SMALL) if options.small else {}
    settings = from_options(MetaTraining, options, **defaults)
    task = _task(options)
    name = f"{options.task}-{options.optimizer}" + ("-small" if options.small else "")
    out = options.out or Path("out/lopt") / name
    if options.tensorboard:
        require(["tensorboardX"], "tensorboard")
    pace = Pace(settings)
    board = _tensorboard(out) if options.tensorboard else None

    def watch(row: Row) -> None:
        pace(row)
        if board is not None:
            board(row)

    try:
        theta = meta_train(
            task,
            options.optimizer,
            out,
            settings,
            seed=options.seed,
            resume=options.resume,
            seconds_between_checkpoints=options.checkpoint_seconds,
            on_metrics=watch,
            show_progress=not options.quiet,
        )
    except KeyboardInterrupt:
        print(f"\nstopped; go on with --resume (results so far in {out})", file=sys.stderr)
        return INTERRUPTED
    if not is_first():
        return 0
    steps, data = settings.horizon or task.horizon, task.data()
    start = first_theta(task, options.optimizer, settings, seed=options.seed)
    before, after = (
        evaluate(task, data, learned_optimizer, each, seeds=range(5), horizon=steps).last.mean()
        for each in (start, theta)
    )
    print(f"loss of 5 fresh networks over the last tenth of {steps} steps:")
    print(f"  {before:.4f} with the optimizer that meta-training began with")
    print(f"  {after:.4f} with the one it ended with")
    if pace.rate:
        print(f"{pace.rate:,.0f} trajectory-steps/s, the median over calls")
    print(f"{out / 'optimizer.safetensors'}: {theta}")
    return 0


def _tensorboard(out: Path) -> Any:
    """Writes rows of metrics; the first one makes the file, so that a refused run leaves none."""
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


def _eval(options: argparse.Namespace) -> int:
    task = _task(options)
    thetas, notes = {}, {}
    for name in options.optimizers:
        path = Path(name) / "optimizer.safetensors" if Path(name).is_dir() else name
        try:
            theta, about = load(path, space=task.space.relax()), origin(path)
        except ValueError as error:
            raise OptionError(str(error)) from error
        thetas[str(name)] = theta
        steps = about.get("trained_steps")
        notes[str(name)] = {} if steps is None else {"meta-steps": steps}
    kinds = [theta.kind for theta in thetas.values()]
    if len(set(kinds)) == len(kinds):  # else they are told apart by where they are
        notes = dict(zip(kinds, notes.values(), strict=True))
        thetas = dict(zip(kinds, thetas.values(), strict=True))
    baselines = [name for name in options.baselines.split(",") if name and name != "none"]
    unknown = [name for name in baselines if name not in GRIDS]
    if unknown:
        raise OptionError(f"unknown baselines {unknown}; expected some of {list(GRIDS)}, or none")
    if options.seeds < 1 or options.horizon < 0:
        raise OptionError(
            f"--seeds is {options.seeds} and --horizon {options.horizon}; expected at least 1 and 0"
        )
    if not thetas and not baselines:
        raise OptionError("nothing to evaluate: name optimizers, or baselines")
    try:
        comparison = compare(
            task,
            thetas,
            horizon=options.horizon or None,
            seeds=range(options.seeds),
            baselines=baselines,
            notes=notes,
            show_progress=not options.quiet,
        )
    except ValueError as error:
        raise OptionError(str(error)) from error
    out = options.out or Path("out") / f"{options.task}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, comparison.to_json())
    print(f"{comparison}\n{out}")
    return 0


def _plot(options: argparse.Namespace) -> int:
    require(["matplotlib"], "plots")
    comparisons = []
    for file in options.files:
        try:
            comparisons.append(Comparison.from_json(file.read_text()))
        except ValueError as error:
            raise OptionError(f"{file}: {error}") from error
    options.out.parent.mkdir(parents=True, exist_ok=True)
    try:
        draw_comparisons(join(comparisons), options.out)
    except ValueError as error:
        raise OptionError(str(error)) from error
    print(options.out)
    return 0
