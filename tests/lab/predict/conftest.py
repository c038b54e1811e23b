"""One zoo and one experiment, made once."""

import pytest

from tests.lab.predict.memory import MemoryZoo, train


@pytest.fixture(scope="package")
def zoo():
    return MemoryZoo()


@pytest.fixture(scope="package")
def trained(zoo, tmp_path_factory):
    """The folder and the report of a training with the quickest method."""
    out = tmp_path_factory.mktemp("statnn")
    return out, train(zoo, out)
