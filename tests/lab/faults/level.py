"""How much is tried: a little with every run of the tests, a lot with `make test-faults`."""

import os

FULL = os.environ.get("UNF_FAULTS") == "full"
INPUTS = 100_000 if FULL else 300
"""For each reader."""
EXAMPLES = 2000 if FULL else 40
"""Of hypothesis, in tests that check types too, which takes most of their time."""
