"""Options as fields of dataclasses, which commands turn into flags."""

from dataclasses import field
from typing import Any


def option(default: Any, help: str) -> Any:
    """A field of a dataclass, with the text that `--help` shows."""
    return field(default=default, metadata={"help": help})
