"""`unf predict`: how well networks work, from their weights alone."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from .._devices import is_first
from ..experiments import predict
from ..zoo import Zoo
from ._options import Help, add_options, from_options, require, whole_numbers
from ._processes import add_processes

EPILOG = """\
examples:
  unf predict train --zoo out/zoo --method unf --seeds 5 --out out/unf
  unf predict train --zoo out/zoo --method statnn
  unf predict apply --checkpoint out/unf --zoo out/another-zoo > predictions.csv
"""


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "predict",
        help="predict how well networks work from their weights",
        description="Predict the success of a zoo's networks from their weights alone.",
        epilog=EPILOG,
        formatter_class=Help,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    train = actions.add_parser("train", help="train predictors and test them once")
    option = train.add_argument
    option("--zoo", type=Path, required=True, metavar="DIR")
    option("--method", choices=list(predict.METHODS), required=True)
    option("--out", type=Path, metavar="DIR", help="for results; by default out/predict-METHOD")
    option("--seeds", type=int, default=5, help="how many predictors (default: 5)")
    option("--seed", type=int, default=0, help="of the first predictor (default: 0)")
    option(
        "--split",
        type=whole_numbers,
        metavar="A,B,C",
        help="models to train on, validate with and test on (default: 8:1:1)",
    )
    option("--include-diverged", action="store_true", help="use models with NaN weights, as zeros")
    option("--resume", action="store_true", help="go on after the last epoch of a stopped run")
    option("--json", action="store_true", help="print result.json")
    option("--quiet", action="store_true", help="show no progress")
    add_processes(train)
    paper = "training (defaults: the paper's; unf-plus has its own)"
    add_options(train.add_argument_group(paper), predict.Training, defaults=False)
    train.set_defaults(run=_train)
    apply = actions.add_parser("apply", help="predict the success of a zoo's networks, as CSV")
    option = apply.add_argument
    option("--checkpoint", type=Path, required=True, help="a predictor, or a folder of several")
    option("--zoo", type=Path, required=True, metavar="DIR")
    option("--out", type=Path, metavar="FILE", help="by default standard output")
    apply.set_defaults(run=_apply)


def _train(options: argparse.Namespace) -> int:
    require(["matplotlib"], "plots")
    out = options.out or Path("out") / f"predict-{options.method}"
    report = predict.train(
        Zoo(options.zoo),
        options.method,
        out,
        training=from_options(
            predict.Training, options, **predict.METHODS[options.method].defaults
        ),
        seeds=options.seeds,
        seed=options.seed,
        sizes=options.split,
        include_diverged=options.include_diverged,
        resume=options.resume,
        show_progress=not options.quiet,
    )
    if not is_first():
        return 0
    predict.draw_predictions([report], out / "predictions.png")
    predict.draw_curves([report], out / "curves.png")
    print(json.dumps(json.loads(report.to_json())) if options.json else report)
    print(f"results in {out}", file=sys.stderr)
    return 0


def _apply(options: argparse.Namespace) -> int:
    zoo = Zoo(options.zoo)
    rows, predicted = predict.apply(options.checkpoint, zoo)
    lines = ["model,predicted,measured"]
    lines += [
        f"{row},{value:.6f},{zoo.success[row, 0]:.6f}"
        for row, value in zip(rows, predicted, strict=True)
    ]
    text = "\n".join(lines) + "\n"
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)
    else:
        sys.stdout.write(text)
    return 0
