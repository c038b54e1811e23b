"""Writing files atomically."""

import os
from pathlib import Path


def write_whole(path: str | os.PathLike, data: str | bytes) -> None:
    """Write a file so that a crash leaves the old file or the new one, never a part of it."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target}: there is no folder {target.parent}; make it first")
    if target.is_dir():
        raise IsADirectoryError(f"{target}: is a folder; name a file")
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
