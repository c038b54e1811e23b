"""Progress bars on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from typing import Any


class Reporter:
    """Shows how far the work is, with `rich`."""

    def __init__(self):
        from rich.console import Console

        self.console = Console(highlight=False)

    def track(self, label: str, steps: Any, total: int | None = None) -> Iterator[Any]:
        """Pass on `steps` while showing how far they are."""
        from rich.progress import track

        started = time.perf_counter()
        if self.console.is_terminal:
            yield from track(steps, f"{label:26}", total, console=self.console)
        else:
            yield from steps
            self.console.print(f"{label:26} {time.perf_counter() - started:5.1f} s")
