"""Options as fields of dataclasses, which commands turn into flags."""

from dataclasses import MISSING, field
from typing import Any


def option(default: Any = MISSING, help: str = "", **more: Any) -> Any:
    """A field of a dataclass, with the text that `--help` shows.

    Args:
        default: its value if nobody says otherwise; without one it must be given.
        help: what it means.
        more: what else a command line should know of it, see `unf.lab.cli`.
    """
    return field(default=default, metadata={"help": help, **more})
