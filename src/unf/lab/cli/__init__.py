"""The `unf` command."""

import importlib.util
import os
import sys
from collections.abc import Sequence

__all__ = ["main"]

_EXTRA = (
    "jinja2", "matplotlib", "sklearn", "tensorboardX", "tensorstore", "tokenizers", "tqdm", "tyro",
)  # fmt: skip
"""The modules of the extra `[lab]`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `unf` with these arguments, by default the command line's; returns the exit code."""
    missing = [name for name in _EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        remedy = "pip install 'universal-neural-functionals[lab]'"
        print(f"unf: {', '.join(missing)} not installed; run: {remedy}", file=sys.stderr)
        return 1
    from ._main import run_command

    try:
        try:
            return run_command(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # what reads the output has ended, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
