"""How much is tried: a little with every run of the tests, a lot with `make test-faults`."""

import os

FULL = os.environ.get("UNF_FAULTS") == "full"
