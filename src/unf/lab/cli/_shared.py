"""What several commands need."""

import importlib.util
import json
from collections.abc import Sequence
from typing import Any

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


class MissingExtra(Exception):
    """An optional dependency that a command needs is not installed."""


def require(modules: Sequence[str], extra: str) -> None:
    """Stop with the remedy if a module of an extra is not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"{' and '.join(missing)} not installed; "
            f"run: pip install 'universal-neural-functionals[{extra}]'"
        )


def print_json(value: Any) -> None:
    """For scripts: one JSON value on standard output."""
    print(json.dumps(value, indent=1))
