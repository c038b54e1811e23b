"""Zoos that lie about what they hold: the lie is found before anything is read of its size."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.lab.faults.readers import Zoos
from unf.zoo import Zoo, ZooError

HUGE = 10**12
GZIP = [
    {"name": "bytes", "configuration": {"endian": "little"}},
    {"name": "gzip", "configuration": {"level": 1}},
]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return Zoos(tmp_path_factory.mktemp("good")).path


@pytest.fixture
def zoo(good, tmp_path):
    return Path(shutil.copytree(good, tmp_path / "zoo"))


def change(file, *keys, value):
    document = json.loads(file.read_text())
    node = document
    for key in keys[:-1]:
        node = node[key]
    node[keys[-1]] = value
    file.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("models", HUGE, "models is 1000000000000, expected 1 to"),
        ("models", 0, "models is 0"),
        ("models", 3.0, "models is 3.0"),
        ("models", float("inf"), "models is inf"),
        ("chunk", 0, "chunk is 0"),
        ("chunk", HUGE, "chunk is 1000000000000"),
        ("seed", None, "seed is None"),
        ("seed", "0", "seed is '0'"),
        ("choices", ["../../../secret"], "one of its choices is called '../../../secret'"),
        ("choices", ["/secret"], "one of its choices is called '/secret'"),
        ("choices", [1], "one of its choices is called 1"),
        ("choices", 3, "incomplete"),
        ("config", 3, "incomplete"),
        ("space", 3, "incomplete"),
        ("format", [1], r"a zoo of format \[1\]"),
    ],
)
def test_descriptions_that_lie(zoo, name, value, match):
    change(zoo / "zarr.json", "attributes", name, value=value)
    with pytest.raises(ZooError, match=f"{zoo}.*{match}"):
        Zoo(zoo)


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("codecs",), GZIP),
        (("data_type",), "complex128"),
        (("chunk_grid", "configuration", "chunk_shape"), [2, HUGE]),
        (("chunk_key_encoding",), {"name": "v2"}),
        (("shape",), [3, HUGE]),
    ],
    ids=lambda x: str(x[-1]) if isinstance(x, tuple) else "",
)
def test_arrays_of_another_form_are_not_read(zoo, keys, value):
    change(zoo / "success" / "zarr.json", *keys, value=value)
    with pytest.raises(ZooError, match="success could not be opened: its description was altered"):
        Zoo(zoo).success  # noqa: B018


def test_a_chunk_is_as_long_as_its_models(zoo):
    """Were it believed, room would be made for a million million numbers."""
    change(zoo / "weights.w" / "zarr.json", "shape", value=[3, 2, HUGE])
    chunks = {"name": "regular", "configuration": {"chunk_shape": [2, 2, HUGE]}}
    change(zoo / "weights.w" / "zarr.json", "chunk_grid", value=chunks)
    attributes = json.loads((zoo / "zarr.json").read_text())["attributes"]
    space = json.loads(attributes["space"])
    space["sizes"]["b"], space["tree"]["dict"][0][1]["shape"] = HUGE, [2, HUGE]
    change(zoo / "zarr.json", "attributes", "space", value=json.dumps(space))
    with pytest.raises(
        ZooError, match=r"a chunk is damaged; .* \(52 bytes, expected 16000000000004"
    ):
        Zoo(zoo).weights()


def test_a_huge_zoo_that_has_only_begun_opens_at_once(zoo):
    """What it costs to open a zoo follows from the files there are, not from its promises."""
    change(zoo / "zarr.json", "attributes", "models", value=10**6)
    for file in zoo.glob("*/zarr.json"):
        shape = json.loads(file.read_text())["shape"]
        change(file, "shape", value=[10**6, *shape[1:]])
    assert not Zoo(zoo).complete and len(Zoo(zoo).trained) == 3


def test_other_files_beside_the_chunks_are_ignored(zoo):
    for name in ("9" * 200, "7", "-1", "x", "²"):
        (zoo / "status" / "c" / name).write_bytes(b"?")
    os.mkfifo(zoo / "status" / "c" / "pipe")
    assert Zoo(zoo).complete
