"""How fast a meta-training runs."""

import time

import numpy as np

from . import MetaTraining, Row


class Pace:
    """Measures trajectory-steps per second: give it to `meta_train` as `on_metrics`.

    The time from one row of the metrics to the next is that of one call of the compiled
    function; the median leaves out compilation and checkpoints.
    """

    def __init__(self, options: MetaTraining):
        self._each = options.window * 2 * options.pairs
        self._seen: list[tuple[float, float]] = []

    def __call__(self, row: Row) -> None:
        """Take the time."""
        self._seen.append((time.perf_counter(), row["step"]))

    @property
    def rate(self) -> float | None:
        """Steps of all inner trainings together, per second; None if there was too little."""
        if len(self._seen) < 2:
            return None
        seconds, steps = np.diff(np.array(self._seen), axis=0).T
        return float(np.median(steps / seconds) * self._each)
