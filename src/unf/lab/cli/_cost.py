"""`unf cost`: what an equivariant layer on a user's network takes."""

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path

from ...basis import cost_report, make_plan
from ...viz import draw_terms
from .._option import option
from ._command import Command
from ._load import infer_example
from ._shared import print_json


@dataclass(frozen=True, kw_only=True)
class Cost(Command):
    """Count terms, parameters, FLOPs and bytes of a layer on a network's weights.

    The target is as for unf spec: a function that returns (fn, params, *inputs).
    """

    examples = """\
  unf cost my_model:example
  unf cost my_model.py:example --channels 16,32 --batch 64 --relax
  unf cost my_model:example --devices 8
"""
    target: str = option(
        help="package.module:function or path/to/file.py:function", positional=True
    )
    channels: tuple[int, ...] = option((16, 16), "of the layer, in and out", metavar="IN,OUT")
    batch: int = option(1, "networks processed together")
    devices: int = option(1, "that leaves are spread over")
    relax: bool = option(False, "permute every axis, as in the paper")
    minimal: bool = option(False, "a basis, without redundant terms")
    svg: Path | None = option(None, "draw the terms too, as index diagrams", metavar="FILE")
    json: bool = option(False, "for scripts", passing=True)

    def __post_init__(self):
        if len(self.channels) != 2 or min(*self.channels, self.batch, self.devices) < 1:
            raise ValueError(
                f"--channels is {','.join(map(str, self.channels))}, --batch {self.batch} and "
                f"--devices {self.devices}; expected two positive numbers such as 16,16, and "
                "positive numbers"
            )

    def run(self) -> int:
        """Print the report, part by part."""
        *_, space = infer_example(self.target)
        report = cost_report(
            space.relax() if self.relax else space,
            *self.channels,
            batch=self.batch,
            minimal=self.minimal,
            devices=self.devices,
        )
        if self.svg is not None:
            plan = make_plan(space.relax() if self.relax else space, minimal=self.minimal)
            self.svg.parent.mkdir(parents=True, exist_ok=True)
            self.svg.write_text(draw_terms(plan))
            print(f"picture: {self.svg}", file=sys.stderr)
        if self.json:
            rows = (*report.rows, report.total)
            print_json({row.part: dataclasses.asdict(row) for row in rows})
        else:
            print(report)
        return 0


COMMANDS: dict[str, type[Command]] = {"cost": Cost}
