"""One job in several processes: connecting them, and what to say when one is lost.

The command that a user starts runs the job in children and watches them, because a process that
loses the others is ended by JAX in the middle of whatever it does.
"""

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import inf
from typing import IO, Any

import jax

from ..._devices import is_first, out_of_memory, wait_for_all
from .._option import option
from .._progress import say
from ._command import Command, OptionError
from ._configuration import recorded
from ._shared import INTERRUPTED

_CHILD = "UNF_CHILD_OF"
_PATIENCE = 20
"""Seconds without a sign of life after which a process counts as lost."""
_GRACE = 5
"""Seconds that the others have to end by themselves when one has failed."""
_NO_CONTACT = "no contact with another process"
_NOISE = re.compile(
    r"^\[Gloo\]|^\s+@\s+0x|^\*\*\* |^[EFIW]\d{4} |^#0x|^\d+$|^=== Source Location Trace"
    r"|^external/xla|^RPC: |^Additional GRPC error|^:UNAVAILABLE|^INTERNAL: Barrier"
    r"|^Barrier result|^The tasks have crashed|^This suggests that the workers"
)
"""What JAX prints when processes lose each other, line by line."""
_ENVIRONMENT = {
    "processes": "JAX_NUM_PROCESSES",
    "coordinator": "JAX_COORDINATOR_ADDRESS",
    "process": "JAX_PROCESS_ID",
}


@dataclass(frozen=True, kw_only=True)
class Processes:
    """Options of commands that can run in several processes."""

    processes: int | None = option(
        None,
        "how many share the job; without --coordinator all are started here "
        f"(by default {_ENVIRONMENT['processes']}, or 1)",
        metavar="N",
        passing=True,
    )
    coordinator: str | None = option(
        None,
        f"where the first process listens (by default {_ENVIRONMENT['coordinator']})",
        metavar="HOST:PORT",
        passing=True,
    )
    process: int | None = option(
        None,
        f"which of them this is, from 0 (by default {_ENVIRONMENT['process']})",
        metavar="I",
        passing=True,
    )


def run_job(name: str, command: Command, arguments: Sequence[str]) -> int:
    """Run a command: here, or in children if it has several processes."""
    options = getattr(command, "processes", None)
    if not isinstance(options, Processes):
        return _run(command, name)
    count, coordinator, index = (_given(options, name) for name in _ENVIRONMENT)
    if count in (None, 1):
        return _run(command, name)
    if os.environ.get(_CHILD):
        _connect(count, coordinator, index)
        return _run_child(command, name)
    if count < 1 or (coordinator is None) != (index is None):
        raise OptionError(
            f"--processes is {count}, --coordinator {coordinator} and --process {index}; expected "
            "a positive number, and either both of the others or none of them"
        )
    if index is not None and not 0 <= index < count:
        raise OptionError(f"--process is {index}; expected 0 to {count - 1}")
    mine = range(count) if index is None else [index]
    address = coordinator or f"127.0.0.1:{_free_port()}"
    return _watch([_start(arguments, count, address, i) for i in mine], list(mine), count)


def _run(command: Command, name: str) -> int:
    """Do it, and write its configuration beside what comes of it."""
    with recorded(command, name) if is_first() else nullcontext():
        return command.run()


def _given(options: Processes, name: str) -> Any:
    value = getattr(options, name)
    if value is not None or not (text := os.environ.get(_ENVIRONMENT[name])):
        return value
    if name != "coordinator" and not text.isdigit():
        raise OptionError(f"the variable {_ENVIRONMENT[name]} is {text!r}; expected a number")
    return text if name == "coordinator" else int(text)


def _start(arguments: Sequence[str], count: int, address: str, index: int) -> subprocess.Popen:
    values = {"processes": str(count), "coordinator": address, "process": str(index)}
    words = [sys.executable, "-m", "unf.lab.cli", *arguments]
    for name, value in values.items():  # the last one given counts
        words += [f"--{name}", value]
    return subprocess.Popen(
        words,
        env={**os.environ, _CHILD: str(os.getpid()), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _connect(count: int, coordinator: str, index: int) -> None:
    """Join the other processes, and end when the one that watches has ended."""
    parent = int(os.environ[_CHILD])

    def end_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    jax.distributed.initialize(
        coordinator, count, index, heartbeat_timeout_seconds=_PATIENCE, initialization_timeout=60
    )
    wait_for_all("to begin")  # while they are: later one may be a minute behind


def _run_child(command: Command, name: str) -> int:
    try:
        return _run(command, name)
    except (jax.errors.JaxRuntimeError, ValueError) as error:  # the second since JAX 0.11
        if out_of_memory(error) or (isinstance(error, ValueError) and "Gloo" not in str(error)):
            raise
        say(f"unf: {_NO_CONTACT} ({str(error).splitlines()[0][:200]})")
        sys.stderr.flush()
        os._exit(1)  # the usual way would wait for the other


def _watch(children: list[subprocess.Popen], indices: list[int], count: int) -> int:
    """Show what the first says, wait for all, and stop the rest when one fails."""
    said: list[list[str]] = [[] for _ in children]
    readers = [
        threading.Thread(target=_pass_on, args=(source, target if i == 0 else None, said[i]))
        for i, child in enumerate(children)
        for source, target in ((child.stdout, sys.stdout), (child.stderr, sys.stderr))
    ]
    for reader in readers:
        reader.start()
    interrupted = False
    try:
        _wait(children)
    except KeyboardInterrupt:  # which the children got too
        interrupted = True
        _wait(children, _PATIENCE)
    codes = [child.poll() or 0 for child in children]
    for child in children:
        child.kill()
    for reader in readers:
        reader.join(timeout=5)
    if interrupted:
        return INTERRUPTED
    if any(codes):
        first = min((i for i, code in enumerate(codes) if code), key=lambda i: codes[i] < 0)
        _explain(f"process {indices[first]} of {count}", codes[first], said[first], first > 0)
    return int(any(codes))


def _wait(children: list[subprocess.Popen], seconds: float = inf) -> None:
    """Until all have ended, or for a while, or a little longer than until one fails."""
    until = time.monotonic() + seconds
    while any(child.poll() is None for child in children) and time.monotonic() < until:
        if any(child.poll() for child in children):
            until = min(until, time.monotonic() + _GRACE)
        time.sleep(0.1)


def _explain(which: str, code: int, said: list[str], hidden: bool) -> None:
    """Say why the job has stopped, if the process did not say so itself."""
    if hidden:
        say("\n".join(said[-3:]))
    if code > 0 and not any(_NO_CONTACT in line for line in said):
        return
    how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    say(
        f"unf: {which} {how}, itself or because it lost another one; the job has stopped. "
        "What was finished is kept: start all processes again with --resume"
    )


def _pass_on(source: IO[str], target: IO[str] | None, said: list[str]) -> None:
    """Show lines as they come, but for the noise of libraries, and keep the last ones."""
    for line in source:
        if _NOISE.match(line) or not line.strip():
            continue
        said.append(line.rstrip())
        del said[:-20]
        if target is not None:
            target.write(line)
            target.flush()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
