"""`unf data`: prepare datasets, and say which are there."""

from dataclasses import dataclass
from pathlib import Path

from .._option import option
from .._progress import say
from ..data import DATASETS, TEXTS, UNITS, catalogue, prepare
from ._command import Command
from ._shared import print_json

NAMES = (*(name for name, file in DATASETS.items() if file), *TEXTS)
FOLDER = ("--data", "--data-folder")
"""The zoo's recipes call it the second, and so do messages."""


@dataclass(frozen=True, kw_only=True)
class Prepare(Command):
    """Make a small prepared file from official ones."""

    examples = """\
  unf data prepare fashion-mnist --data downloads --out prepared
  unf data prepare lm1b --unit subwords --vocabulary 4096 --data downloads --out prepared
"""
    name: str = option(help="which dataset", positional=True, choices=NAMES)
    data: Path | None = option(
        None, "where the official files are; by default what UNF_DATA names",
        names=FOLDER, metavar="DIR",
    )  # fmt: skip
    out: Path = option(help="where to write the prepared file", metavar="DIR")
    unit: str = option("bytes", "of texts", choices=UNITS)
    vocabulary: int = option(4096, "how many subwords, at most")

    def run(self) -> int:
        """Prepare, and print where the file is."""
        say(f"preparing {self.name} …")
        print(prepare(self.name, self.data, self.out, unit=self.unit, vocabulary=self.vocabulary))
        return 0


@dataclass(frozen=True, kw_only=True)
class Info(Command):
    """Say which datasets are there, and what is in them."""

    examples = """\
  unf data info --data downloads
  UNF_DATA=prepared unf data info
"""
    data: Path | None = option(
        None, "where to look; by default what UNF_DATA names", names=FOLDER, metavar="DIR"
    )
    json: bool = option(False, "for scripts", passing=True)

    def run(self) -> int:
        """List everything; 1 if a file is damaged."""
        entries = catalogue(self.data)
        if self.json:
            print_json({e.name: {**e._asdict(), "path": e.path and str(e.path)} for e in entries})
        else:
            width = max(len(entry.name) for entry in entries)
            for entry in entries:
                source = entry.path or ("built in" if entry.status == "found" else "")
                print(f"{entry.name:{width}}  {entry.status:7}  {source}".rstrip())
                print(f"{'':{width}}  {entry.note}")
        return int(any(entry.status == "damaged" for entry in entries))


FAMILIES = {"data": "prepare datasets, and say which are there"}
COMMANDS: dict[str, type[Command]] = {"data prepare": Prepare, "data info": Info}
