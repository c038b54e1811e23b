"""`unf report`: one page of a run, for a browser."""

import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path

from .._option import option
from ..report import write
from ._command import Command


@dataclass(frozen=True, kw_only=True)
class Report(Command):
    """Make one HTML page of a run: figures, curves, configuration.

    The page needs no network and no other file. It is made of a zoo, a predictor's training, a
    meta-training, a comparison of optimizers, or a folder that has several of them; of unfinished
    runs too.
    """

    examples = """\
  unf report out/zoo
  unf report out/lopt/mlp-unf --open
  unf report out/mlp.json --out mlp.html
"""
    run_folder: Path = option(
        help="a folder of results, or a file of unf lopt eval", positional=True, metavar="DIR"
    )
    out: Path | None = option(
        None, "the page; by default report.html in the folder, or beside the file", metavar="FILE"
    )
    open: bool = option(False, "show it in a browser", passing=True)

    def run(self) -> int:
        """Write the page, and print where it is."""
        page = write(self.run_folder, self.out)
        print(page)
        if self.open and not webbrowser.open(page.resolve().as_uri()):
            print("no browser was found; open the file in one", file=sys.stderr)
        return 0


COMMANDS: dict[str, type[Command]] = {"report": Report}
