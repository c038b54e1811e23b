"""One job in several processes: connecting them, and what to say when one is lost.

The command that a user starts runs the job in children and watches them, because a process that
loses the others is ended by JAX in the middle of whatever it does.
"""

import argparse
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO, Any

import jax

from .._devices import wait_for_all
from .._progress import say
from ._options import INTERRUPTED, OptionError

_CHILD = "UNF_CHILD_OF"
_PATIENCE = 20
"""Seconds without a sign of life after which a process counts as lost."""
_NOISE = re.compile(r"^\[Gloo\]|^\s+@\s+0x|^\*\*\* |^[EFIW]\d{4} |^#0x")
_ENVIRONMENT = {
    "processes": "JAX_NUM_PROCESSES",
    "coordinator": "JAX_COORDINATOR_ADDRESS",
    "process": "JAX_PROCESS_ID",
}


def add_processes(parser: Any) -> None:
    """Options of commands that can run in several processes."""
    group = parser.add_argument_group("several processes")
    group.add_argument(
        "--processes",
        type=int,
        default=None,
        metavar="N",
        help="how many share the job; without --coordinator all are started here "
        f"(none: {_ENVIRONMENT['processes']}, or 1)",
    )
    group.add_argument(
        "--coordinator",
        default=None,
        metavar="HOST:PORT",
        help=f"where the first process listens (none: {_ENVIRONMENT['coordinator']})",
    )
    group.add_argument(
        "--process",
        type=int,
        default=None,
        metavar="I",
        help=f"which of them this is, from 0 (none: {_ENVIRONMENT['process']})",
    )


def run_job(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Run a command: here, or in children if it has several processes."""
    count, coordinator, index = (_given(options, name) for name in _ENVIRONMENT)
    if count in (None, 1) or not hasattr(options, "processes"):
        return options.run(options)
    if os.environ.get(_CHILD):
        _connect(count, coordinator, index)
        return _run_child(options)
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


def _given(options: argparse.Namespace, name: str) -> Any:
    value = getattr(options, name, None)
    if value is None and (text := os.environ.get(_ENVIRONMENT[name])):
        value = text if name == "coordinator" else int(text)
    return value


def _start(arguments: Sequence[str], count: int, address: str, index: int) -> subprocess.Popen:
    values = {"processes": str(count), "coordinator": address, "process": str(index)}
    words = [sys.executable, "-m", "unf.cli", *arguments]
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


def _run_child(options: argparse.Namespace) -> int:
    try:
        return options.run(options)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" in str(error):
            raise
        say(f"unf: no contact with another process ({str(error).splitlines()[0][:200]})")
        sys.stderr.flush()
        os._exit(1)  # the usual way would wait for the other


def _watch(children: list[subprocess.Popen], indices: list[int], count: int) -> int:
    """Show what the first says, wait for all, and stop the rest when one fails."""
    tails: list[list[str]] = [[] for _ in children]
    readers = []
    for i, child in enumerate(children):
        for source, target in ((child.stdout, sys.stdout), (child.stderr, sys.stderr)):
            shown = target if i == 0 else None
            readers.append(threading.Thread(target=_pass_on, args=(source, shown, tails[i])))
            readers[-1].start()
    interrupted = False
    try:
        while all(child.poll() is None for child in children):
            time.sleep(0.1)
        _wait(children, 5 if any(child.poll() for child in children) else None)
    except KeyboardInterrupt:
        interrupted = True
        _wait(children, _PATIENCE)
    failed = [(i, child.poll()) for i, child in zip(indices, children, strict=True)]
    for child in children:
        child.kill()
    for reader in readers:
        reader.join(timeout=5)
    lost = [(i, code) for i, code in failed if code]
    if interrupted:
        return INTERRUPTED
    if not any(code != 0 for _, code in failed):
        return 0
    # what stopped first is what is worth telling; the others were stopped because of it
    i, code = next(((i, c) for i, c in lost if c > 0), (lost or failed)[0])
    if code and code > 0 and indices.index(i) != 0:
        say("\n".join(tails[indices.index(i)][-3:]))
    how = f"was ended by signal {-code}" if code and code < 0 else f"ended with code {code}"
    say(
        f"unf: process {i} of {count} {how}, itself or because it lost another one; "
        "the job has stopped. What was finished is kept: start all processes again with --resume"
    )
    return 1


def _wait(children: list[subprocess.Popen], seconds: float | None) -> None:
    """Until all have ended, or some time after one failed."""
    until = None if seconds is None else time.monotonic() + seconds
    while any(child.poll() is None for child in children):
        if until is None and any(child.poll() for child in children):
            until = time.monotonic() + 5
        if until is not None and time.monotonic() > until:
            return
        time.sleep(0.1)


def _pass_on(source: IO[str], target: IO[str] | None, tail: list[str]) -> None:
    for line in source:
        if _NOISE.match(line) or not line.strip():
            continue
        tail.append(line.rstrip())
        del tail[:-20]
        if target is not None:
            target.write(line)
            target.flush()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
