"""`unf data`: prepare datasets, and say which are there."""

import argparse
from pathlib import Path
from typing import Any

from ..data import DATASETS, TEXTS, UNITS, catalogue, prepare
from ._options import Help

EPILOG = """\
examples:
  unf data info --data downloads
  unf data prepare fashion-mnist --data downloads --out prepared
  unf data prepare lm1b --unit subwords --vocabulary 4096 --data downloads --out prepared
  UNF_DATA=prepared unf data info
"""


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "data",
        help="prepare datasets, and say which are there",
        description="Datasets: official files made small, once, and what is there.",
        epilog=EPILOG,
        formatter_class=Help,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    prepare = actions.add_parser(
        "prepare", help="make a prepared file from official ones", formatter_class=Help
    )
    names = [name for name, file in DATASETS.items() if file] + list(TEXTS)
    prepare.add_argument("name", metavar="NAME", help=", ".join(names))
    _add_folder(prepare, "where the official files are")
    prepare.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="where to write the prepared file"
    )
    prepare.add_argument("--unit", choices=UNITS, default="bytes", help="of texts")
    prepare.add_argument("--vocabulary", type=int, default=4096, help="how many subwords, at most")
    prepare.set_defaults(run=_prepare)
    info = actions.add_parser(
        "info", help="which datasets are there, and what is in them", formatter_class=Help
    )
    _add_folder(info, "where to look")
    info.set_defaults(run=_info)


def _add_folder(parser: Any, what: str) -> None:
    # The zoo's recipes call it --data-folder, and so do messages.
    parser.add_argument(
        "--data",
        "--data-folder",
        type=Path,
        default=None,
        metavar="FOLDER",
        help=f"{what}; none: the variable UNF_DATA",
    )


def _prepare(options: argparse.Namespace) -> int:
    path = prepare(
        options.name,
        options.data,
        options.out,
        unit=options.unit,
        vocabulary=options.vocabulary,
    )
    print(path)
    return 0


def _info(options: argparse.Namespace) -> int:
    """List everything; fails if a file is damaged."""
    entries = catalogue(options.data)
    width = max(len(entry.name) for entry in entries)
    for entry in entries:
        source = entry.path or ("built in" if entry.status == "found" else "")
        print(f"{entry.name:{width}}  {entry.status:7}  {source}".rstrip())
        print(f"{'':{width}}  {entry.note}")
    return int(any(entry.status == "damaged" for entry in entries))
