"""Without PyTorch and torchax, their package and its tests are not collected."""

from importlib.util import find_spec

_FOUND = find_spec("torch") and find_spec("torchax")
collect_ignore_glob = [] if _FOUND else ["src/unf/torch/*", "tests/torch/*"]
