"""A process that gives readers altered input, as often as it is told.

    python -m tests.lab.faults.fuzz COUNT SEED READER...

It may be read, or refused with an error of this package whose message names the file. Anything
else, too long a time or too much memory, ends the process with the input's number, from which,
with the seed, it follows. A process of its own, because crashes are among what is looked for,
and without the checks of types that tests run with, because users run without them.
"""

import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

SECONDS = 5.0
"""Of the processor, for one input; what is read takes milliseconds."""
MEMORY = 2**29
"""Bytes above what is in use after the first input."""


class TooLong(BaseException):
    """No reader may catch this."""


def _stop(*_):
    raise TooLong


def allowed_memory():
    lines = Path("/proc/self/status").read_text().splitlines()
    used = next(int(line.split()[1]) for line in lines if line.startswith("VmData"))
    return used * 1024 + MEMORY


def main(count, seed, *names):
    """Run each reader on so many inputs, and print what came of them."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, _stop)
    memory = Path("/dev/shm")
    for name in names:
        with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
            if code := run(name, count, seed, Path(folder)):
                return code
    return 0


def run(reader_name, count, seed, folder):
    """Run a reader in a folder; 1 if it did what it may not."""
    from tests.lab.faults.readers import READERS

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    reader = READERS[reader_name](folder)
    reader.read(reader.good)
    if Path("/proc/self/status").exists():
        resource.setrlimit(resource.RLIMIT_DATA, (allowed_memory(), most))
    outcomes, slowest, started = Counter(), 0.0, time.perf_counter()
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        given = reader.alter(rng)
        before = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            reader.read(given)
            outcomes["read"] += 1
        except reader.errors as error:
            if type(error) not in reader.errors or reader.name_in_errors not in str(error):
                return failed(reader_name, number, given, error)
            outcomes[type(error).__name__] += 1
        except BaseException as error:
            signal.setitimer(signal.ITIMER_PROF, 0)
            return failed(reader_name, number, given, error)
        signal.setitimer(signal.ITIMER_PROF, 0)
        slowest = max(slowest, time.process_time() - before)
    said = ", ".join(f"{name} {n}" for name, n in sorted(outcomes.items()))
    print(
        f"{reader_name}: {count} inputs from seed {seed} in {time.perf_counter() - started:.0f} s, "
        f"the slowest {slowest:.2f} s: {said}"
    )
    return 0


def failed(reader_name, number, given, error):
    """Say which input it was, and what happened."""
    traceback.print_exception(error, limit=-12)
    print(f"{reader_name}, input {number}: {given!r}"[:3000], file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
