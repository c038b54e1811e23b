"""The user's source line behind an equation."""

import sysconfig
from functools import lru_cache
from typing import Any

_INSTALLED = ("site-packages", "dist-packages")


def source_line(eqn: Any) -> str:
    """`file.py:12`, the innermost line that is not in an installed package; empty if unknown."""
    traceback = getattr(eqn.source_info, "traceback", None)
    if traceback is None:
        return ""
    for frame in traceback.frames:
        if _is_users(frame.file_name):
            return f"{_short(frame.file_name)}:{frame.line_num}"
    return ""


@lru_cache(maxsize=4096)
def _is_users(file_name: str) -> bool:
    if file_name.startswith("<") or any(part in file_name for part in _INSTALLED):
        return False
    return not file_name.startswith(sysconfig.get_paths()["stdlib"])


def _short(file_name: str) -> str:
    return file_name.replace("\\", "/").rsplit("/", 1)[-1]
