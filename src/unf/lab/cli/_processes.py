"""One job in several processes, joined by `jax.distributed`.

JAX aborts a process that loses another one, in the middle of whatever it does. So the command
that people start runs the job in a child, waits for it, and says what has happened.
"""

import os
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import jax
from tyro.conf import arg

from ..._devices import is_first, wait_for_all
from ..._progress import say

INTERRUPTED = 130
"""The exit code after Ctrl-C."""
CHILD = "UNF_CHILD"
"""The environment variable that tells a child process that it is one."""
_CRASHED = 3
"""The exit code of a child that ends with an exception, often because it lost another process."""
_CONNECT_SECONDS, _HEARTBEAT_SECONDS, _GRACE_SECONDS = 60, 20, 5


@dataclass(frozen=True, kw_only=True)
class Processes:
    """Several processes that share the job."""

    processes: Annotated[int | None, arg(metavar="N")] = None
    """How many processes share the job; without --coordinator, all of them are started here."""
    coordinator: Annotated[str | None, arg(metavar="HOST:PORT")] = None
    """Where the first process listens, or "auto" to ask Slurm, Open MPI or Kubernetes through
    jax.distributed."""
    process: Annotated[int | None, arg(metavar="I")] = None
    """Which of the processes this is, from 0; with --coordinator HOST:PORT."""

    def __post_init__(self):
        named = self.coordinator not in (None, "auto")
        if named != (self.process is not None) or (named and self.processes is None):
            raise ValueError(
                "expected --processes alone, --coordinator auto, or --processes, --process and "
                "--coordinator HOST:PORT together"
            )
        if self.processes is not None and not 0 <= (self.process or 0) < self.processes:
            raise ValueError(f"--process is {self.process or 0} of {self.processes} processes")

    @property
    def several(self) -> bool:
        """Whether this process has to find others."""
        return self.coordinator is not None or self.processes not in (None, 1)


def supervise(options: Processes, words: Sequence[str]) -> int:
    """Run the job in children, and say so if one of them is lost; returns the exit code."""
    joining: list[list[str]] = [[]]
    if options.coordinator is None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        joining = [
            ["--coordinator", address, "--process", str(index)]
            for index in range(options.processes or 1)
        ]
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "unf.lab.cli", *words, *more],
            env={**os.environ, CHILD: "1"},
            stdin=subprocess.PIPE,
        )
        for more in joining
    ]
    try:
        while {child.poll() for child in children} in ({None}, {None, 0}):
            time.sleep(0.1)
    except KeyboardInterrupt:  # which the children got too
        _end(children, _HEARTBEAT_SECONDS)
        return INTERRUPTED
    codes = _end(children, _GRACE_SECONDS)
    if 1 not in codes and any(code < 0 or code == _CRASHED for code in codes):  # 1 said why
        say(
            "unf: a process of this job crashed, was killed, or lost contact with another one, so "
            "the job has stopped. Finished work is kept: start all processes again with --resume"
        )
    return int(any(codes))


def _end(children: list[subprocess.Popen], seconds: float) -> list[int]:
    """Give the children time to end, then kill the rest; returns the codes of those that ended."""
    until = time.monotonic() + seconds
    while any(child.poll() is None for child in children) and time.monotonic() < until:
        time.sleep(0.1)
    codes = [code for child in children if (code := child.poll()) is not None]
    for child in children:
        child.kill()
    return codes


def run_child(options: Processes, run: Callable[[], int]) -> int:
    """Join the other processes and do the job; ends the program at once if that fails."""

    def end_with_parent() -> None:
        sys.stdin.read()
        os._exit(_CRASHED)

    threading.Thread(target=end_with_parent, daemon=True).start()
    output = os.dup(1)
    os.dup2(2, 1)  # what libraries in C++ print is not a result
    try:
        jax.distributed.initialize(
            None if options.coordinator == "auto" else options.coordinator,
            options.processes,
            options.process,
            initialization_timeout=_CONNECT_SECONDS,
            heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
        )
        wait_for_all("all processes have started")
        sys.stdout = os.fdopen(output, "w") if is_first() else open(os.devnull, "w")
        code = run()
    except Exception:
        traceback.print_exc()
        code = _CRASHED
    sys.stdout.flush()
    sys.stderr.flush()
    if code:
        os._exit(code)  # the usual way would wait for the other processes
    return code
