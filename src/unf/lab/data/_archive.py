"""Reading files out of a compressed tar archive, without unpacking it."""

import gzip
import tarfile
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import Any

from ._types import DataError

_MOST_BYTES = 2**28
_MOST_BETWEEN = 2**29
"""From one member to the next; the headers of both may be read into memory."""
_MOST_RATIO = 100
"""Of what an archive holds to its own size, beyond `_MOST_BETWEEN`; official ones have 3."""
_MOST_MEMBERS = 10_000
_BLOCK = 2**20


class _Bounded:
    """A stream that ends with an error where an archive is larger than any official one."""

    def __init__(self, stream: gzip.GzipFile, path: Path):
        self.stream, self.path = stream, path
        self.left = _MOST_BETWEEN + _MOST_RATIO * path.stat().st_size
        self.left_here = _MOST_BETWEEN

    def read(self, size: int) -> bytes:
        data = self.stream.read(size)
        self.left, self.left_here = self.left - len(data), self.left_here - len(data)
        if min(self.left, self.left_here) < 0:
            raise DataError(
                f"{self.path}: holds far more than its size of {self.path.stat().st_size} bytes "
                "suggests; this is not the official archive"
            )
        return data

    def at_member(self) -> None:
        """So much, and no more, until the next member."""
        self.left_here = _MOST_BETWEEN


def read_members(path: Path, wanted: Collection[str], *, to_end: bool = True) -> dict[str, bytes]:
    """The contents of some files in an archive, in memory; nothing is written.

    Args:
        path: the archive, a .tar.gz.
        wanted: folder and name of each file; folders above these are ignored.
        to_end: read all of the archive, which compares its checksum; otherwise stop as soon
            as everything wanted was found.

    Raises:
        DataError: if the archive is damaged, lacks a file, or has members with odd paths.
    """
    found: dict[str, bytes] = {}
    try:
        with gzip.open(path) as compressed:
            stream: Any = _Bounded(compressed, path)
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for count, member in enumerate(archive):
                    if count > _MOST_MEMBERS:
                        raise DataError(f"{path}: has more than {_MOST_MEMBERS} members")
                    stream.at_member()
                    name = _last_two(path, member)
                    if name in wanted:
                        if name in found:
                            raise DataError(f"{path}: holds {name} twice")
                        found[name] = _content(path, archive, member)
                    if len(found) == len(wanted) and not to_end:
                        return found
            while stream.read(_BLOCK):
                pass
    except DataError:
        raise
    except Exception as error:  # damaged headers raise almost anything
        raise DataError(
            f"{path}: cannot be read to its end ({error}); copy the official archive again"
        ) from error
    missing = sorted(set(wanted) - set(found))
    if missing:
        raise DataError(
            f"{path}: no member {missing[0]} in it ({len(missing)} of {len(wanted)} missing); "
            "copy the official archive again"
        )
    return found


def _last_two(path: Path, member: tarfile.TarInfo) -> str:
    parts = PurePosixPath(member.name).parts
    if member.name.startswith("/") or ".." in parts:
        raise DataError(
            f"{path}: a member is called {member.name!r}, outside of the archive's folder; "
            "this is not the official archive"
        )
    return "/".join(parts[-2:])


def _content(path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member) if member.isreg() else None
    if file is None:
        raise DataError(f"{path}: the member {member.name} is not a plain file")
    if member.size > _MOST_BYTES:
        raise DataError(
            f"{path}: the member {member.name} has {member.size} bytes, expected at most "
            f"{_MOST_BYTES}; this is not the official archive"
        )
    return file.read()
