"""Table 1 in miniature, from nothing to the table."""

import dataclasses
import json

import pytest

from tests.lab.zoos.tiny import RECIPE
from unf.lab import predict, table1

TINY = table1.Setting(
    RECIPE, 32, (20, 6, 6), seeds=2, methods=("deepset", "statnn"), epochs=1, chunk=16
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("table1")
    return out, table1.run(TINY, out, show_progress=False)


def test_the_table(made):
    out, result = made
    assert [report.method for report in result.reports] == ["deepset", "statnn"]
    assert "| StatNN | " in str(result) and "0.8839 ± 0.0007" in str(result)
    assert (out / "table1.md").read_text() == f"{result}\n"
    assert len(json.loads((out / "table1.json").read_text())[0]["tau"]) == 2
    for name in ("predictions", "curves"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_done_is_not_done_again(made, monkeypatch):
    out, result = made
    monkeypatch.setattr(table1, "train", None)
    assert str(table1.run(TINY, out, show_progress=False)) == str(result)


@pytest.mark.parametrize("change", [{"epochs": 2}, {"sizes": (21, 6, 5)}, {"seeds": 3}])
def test_another_experiment_is_done_anew(made, monkeypatch, change):
    out, result = made
    trained = []

    def train(zoo, method, *_, **__):
        trained.append(method)
        return result.reports[0]

    monkeypatch.setattr(table1, "train", train)
    table1.run(dataclasses.replace(TINY, **change), out, show_progress=False)
    assert trained == ["deepset", "statnn"]


def test_settings_have_every_method_and_the_papers_numbers():
    assert table1.FULL.methods == table1.SMALL.methods == tuple(predict.METHODS)
    assert table1.FULL.models == sum(table1.FULL.sizes) == 10_000
    assert table1.FULL.training("unf") == predict.Training(
        epochs=10, batch_size=10, learning_rate=1e-3, schedule="constant", weight_decay=0.0
    )
