"""How far a long job is: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from types import TracebackType
from typing import Any, TextIO

SECONDS_BETWEEN_LINES = 10.0


def say(text: str) -> None:
    """Tell people something, on standard error."""
    print(text, file=sys.stderr, flush=True)


class Progress:
    """Counts work done, and shows its rate and the time left, on standard error.

    >>> with Progress("training", total=100, unit="steps", show=False) as progress:
    ...     progress.advance(40)
    ...     progress.done
    40
    """

    def __init__(
        self,
        label: str,
        total: int,
        *,
        unit: str = "",
        done: int = 0,
        show: bool = True,
        stream: TextIO | None = None,
    ):
        """Begin counting.

        Args:
            label: what is being done.
            total: how much there is to do.
            unit: of what, in the plural.
            done: how much was done before; it does not count for the rate.
            show: whether to show anything.
            stream: where to, by default standard error.
        """
        self.label, self.total, self.unit, self.show = label, total, unit, show
        self.done, self.note, self._before = done, "", done
        self._stream = stream or sys.stderr
        self._started = self._shown = time.monotonic()
        self._terminal = self._stream.isatty()

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Count work that is done; `note` is shown behind it."""
        self.done, self.note = self.done + amount, note or self.note
        pause = 0.1 if self._terminal else SECONDS_BETWEEN_LINES
        if self.show and time.monotonic() - self._shown >= pause:
            self._write()

    def rate(self) -> float:
        """Work done in a second, on average."""
        return (self.done - self._before) / max(time.monotonic() - self._started, 1e-9)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None
    ) -> None:
        if self.show:
            self._write(last=True)

    def _write(self, last: bool = False) -> None:
        self._shown = time.monotonic()
        elapsed = self._shown - self._started
        left = (self.total - self.done) / self.rate() if self.rate() else float("nan")
        when = f"{_clock(elapsed)} taken" if last else f"{_clock(left)} left"
        amount = f"{self.done:,}/{self.total:,} {self.unit}".rstrip()
        text = f"{self.label}: {amount}, {self.rate():,.4g}/s, {when}"
        text += f", {self.note}" if self.note else ""
        if self._terminal:
            filled = 24 * self.done // max(self.total, 1)
            text = f"\r\x1b[K{'━' * filled}{'╌' * (24 - filled)} {text}"
        end = "\n" if last or not self._terminal else ""
        print(text, end=end, file=self._stream, flush=True)


def _clock(seconds: float) -> str:
    """A duration, e.g. 1:02:03, 2:03 or 3.1 s."""
    if seconds != seconds:
        return "?"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
