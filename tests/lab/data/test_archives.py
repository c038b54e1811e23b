"""Archives are read in memory, and only if they are what they should be."""

import tarfile

import pytest

from tests.lab.data.official_files import archive
from unf.lab.data import DataError
from unf.lab.data._archive import read_members

CONTENT = {"top/a/one": b"1" * 5000, "top/a/two": bytes(range(256)) * 9, "top/a/more": b"3"}


def linked(name):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, "/elsewhere"
    return info


def test_members_by_folder_and_name(tmp_path):
    path = tmp_path / "x.tar.gz"
    path.write_bytes(archive(CONTENT))
    found = read_members(path, ["a/two", "a/one"])
    assert found == {"a/one": CONTENT["top/a/one"], "a/two": CONTENT["top/a/two"]}
    assert [file.name for file in tmp_path.iterdir()] == ["x.tar.gz"]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"../a/one": b"1"}, r"a member is called '../a/one', outside"),
        ({"top/../../a/one": b"1"}, "outside of the archive's folder"),
        ({"/a/one": b"1"}, r"a member is called '/a/one', outside"),
        ({"a/other": b"1", "../x": b"1"}, r"'../x', outside"),
        ({"a/one": linked("a/one")}, "a/one is not a plain file"),
        ({"a/one": b"1", "b/a/one": b"2"}, "holds a/one twice"),
        ({"a/three": b"1"}, r"no member a/one in it \(1 of 1 missing\)"),
        ({}, "no member a/one in it"),
    ],
)
def test_odd_members(tmp_path, members, message):
    path = tmp_path / "x.tar.gz"
    path.write_bytes(archive(members))
    with pytest.raises(DataError, match=message):
        read_members(path, ["a/one"])


def test_huge_members_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("unf.lab.data._archive._MOST_BYTES", 4999)
    path = tmp_path / "x.tar.gz"
    path.write_bytes(archive(CONTENT))
    with pytest.raises(DataError, match="a/one has 5000 bytes, expected at most 4999"):
        read_members(path, ["a/one"])


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.3, 0.6, 0.9, 0.99])
def test_truncated(tmp_path, fraction):
    whole = archive(CONTENT)
    path = tmp_path / "x.tar.gz"
    path.write_bytes(whole[: int(fraction * len(whole))])
    with pytest.raises(DataError, match=r"x.tar.gz: (cannot be read to its end|no member)"):
        read_members(path, ["a/one", "a/two"])


def test_damage_behind_what_is_wanted(tmp_path):
    whole = archive(CONTENT)
    path = tmp_path / "x.tar.gz"
    path.write_bytes(whole[:-8] + bytes(4) + whole[-4:])
    with pytest.raises(DataError, match="CRC check failed"):
        read_members(path, ["a/one"])
    assert read_members(path, ["a/one"], to_end=False) == {"a/one": CONTENT["top/a/one"]}


def test_not_an_archive(tmp_path):
    path = tmp_path / "x.tar.gz"
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(DataError, match="cannot be read to its end"):
        read_members(path, ["a/one"])
