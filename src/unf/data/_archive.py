"""Reading files out of a compressed tar archive, without unpacking it."""

import gzip
import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from ._types import DataError

_MOST_BYTES = 2**28
_BLOCK = 2**20


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
        with gzip.open(path) as stream:
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    name = _last_two(path, member)
                    if name in wanted:
                        if name in found:
                            raise DataError(f"{path}: holds {name} twice")
                        found[name] = _content(path, archive, member)
                    if len(found) == len(wanted) and not to_end:
                        return found
            while stream.read(_BLOCK):
                pass
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
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
