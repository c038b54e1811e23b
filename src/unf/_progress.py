"""How far a long job is: a bar on a terminal, a line now and then in a log."""

import sys

from tqdm import tqdm

_SECONDS_BETWEEN_LINES = 10.0
_TIME = "{elapsed} so far, {remaining} left, {rate_noinv_fmt}{postfix}"
_BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt}, " + _TIME
_LINE = "{desc}: {n_fmt}/{total_fmt}{unit}, " + _TIME


def say(text: str) -> None:
    """Print a line on standard error, above a bar if there is one."""
    tqdm.write(text, file=sys.stderr)
    sys.stderr.flush()


class Progress:
    """Shows the work done, its rate and the time left, on standard error.

    >>> with Progress("training", total=100, unit="steps", show=False) as progress:
    ...     progress.advance(40, "loss 0.3")
    """

    def __init__(self, label: str, total: int, *, unit: str = "", done: int = 0, show: bool = True):
        """Start counting.

        Args:
            label: what is being done.
            total: how much there is to do.
            unit: what is counted, in the plural.
            done: how much was done before; it does not count for the rate.
            show: whether to show anything.
        """
        log = not sys.stderr.isatty()
        self._bar = tqdm(
            desc=label,
            total=total,
            initial=done,
            unit=f" {unit}" if unit else "",
            unit_scale=total >= 100_000,
            disable=not show,
            file=_Lines() if log else sys.stderr,
            mininterval=_SECONDS_BETWEEN_LINES if log else 0.1,
            miniters=1,
            bar_format=_LINE if log else _BAR,
            dynamic_ncols=not log,
        )

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Count work that is done; `note` is shown behind it until there is another."""
        if note:
            self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(amount)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()


class _Lines:
    """A stream for tqdm that writes lines where tqdm would return to the start of one."""

    def write(self, text: str) -> None:
        if text.strip():
            print(text.strip(), file=sys.stderr)

    def flush(self) -> None:
        sys.stderr.flush()
