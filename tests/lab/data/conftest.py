"""Tests of datasets see only the files that they made."""

import pytest


@pytest.fixture(autouse=True)
def no_data_of_this_machine(monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)
