"""Without PyTorch, its package and its tests are not collected."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["src/unf/torch/*", "tests/torch/*"]
