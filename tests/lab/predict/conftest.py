"""One zoo and one experiment, made once."""

import pytest

from tests.lab.predict.memory import MemoryZoo, train
from unf.models._reader import SIZES


@pytest.fixture(autouse=True)
def tiny_readers(monkeypatch):
    """Readers that compile in seconds."""
    options = {"hidden_channels": 4, "num_blocks": 1, "num_frequencies": 2}
    monkeypatch.setitem(SIZES, "base", options)
    monkeypatch.setattr("unf.models._reader._MLP_WIDTH", 16)


@pytest.fixture(scope="package")
def zoo():
    return MemoryZoo()


@pytest.fixture(scope="package")
def trained(zoo, tmp_path_factory):
    """The folder and the report of a training with the quickest method."""
    out = tmp_path_factory.mktemp("statnn")
    return out, train(zoo, out)
