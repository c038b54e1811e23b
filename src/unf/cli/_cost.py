"""`unf cost`: what an equivariant layer on a user's network takes."""

import argparse
import dataclasses
import json
from typing import Any

from ..basis import cost_report
from ..graph import infer
from ._load import load_example
from ._options import Help, OptionError

EPILOG = """\
The target is as for unf spec: a function that returns (fn, params, *inputs).

examples:
  unf cost my_model:example
  unf cost my_model.py:example --channels 16,32 --batch 64 --relax
  unf cost my_model:example --devices 8
"""


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "cost",
        help="terms, parameters, FLOPs and bytes of a layer on a network's weights",
        description="What one UNFLinear on a network's weights takes, forward, part by part.",
        epilog=EPILOG,
        formatter_class=Help,
    )
    parser.add_argument("target", help="package.module:function or path/to/file.py:function")
    parser.add_argument("--channels", default="16,16", metavar="IN,OUT", help="of the layer")
    parser.add_argument("--batch", type=int, default=1, help="networks processed together")
    parser.add_argument("--devices", type=int, default=1, help="that leaves are spread over")
    parser.add_argument("--relax", action="store_true", help="permute every axis, as in the paper")
    parser.add_argument("--minimal", action="store_true", help="a basis, without redundant terms")
    parser.add_argument("--json", action="store_true", help="for scripts")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    try:
        channels = [int(part) for part in options.channels.split(",")]
        if len(channels) != 2 or min(*channels, options.batch, options.devices) < 1:
            raise ValueError
    except ValueError:
        raise OptionError(
            f"--channels is {options.channels!r}, --batch {options.batch} and --devices "
            f"{options.devices}; expected two positive numbers such as 16,16, and positive numbers"
        ) from None
    fn, params, inputs = load_example(options.target)
    space = infer(fn, params, *inputs)
    report = cost_report(
        space.relax() if options.relax else space,
        *channels,
        batch=options.batch,
        minimal=options.minimal,
        devices=options.devices,
    )
    if options.json:
        rows = {row.part: dataclasses.asdict(row) for row in (*report.rows, report.total)}
        print(json.dumps(rows, indent=1))
    else:
        print(report)
    return 0
