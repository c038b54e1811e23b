"""Table 1 in miniature, from nothing to the table."""

import dataclasses
import json

import numpy as np
import pytest

from tests.lab.predict.memory import SIZES, MemoryZoo
from tests.lab.zoos.tiny import RECIPE
from unf.lab import predict, table1
from unf.models._scores import kendall_tau

pytestmark = pytest.mark.nightly
TINY = table1.Setting(RECIPE, 32, SIZES, seeds=2, methods=("statnn",), epochs=1, chunk=16)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("table1")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(table1, "build", lambda *_, **__: MemoryZoo())
        yield out, table1.run(TINY, out, show_progress=False)


@pytest.mark.nightly
def test_from_nothing(tmp_path):
    result = table1.run(TINY, tmp_path, show_progress=False)
    assert result.reports[0].zoo["recipe"] == "tiny-rnn"


def test_the_table(made):
    out, result = made
    assert [report.method for report in result.reports] == ["statnn"]
    assert "| StatNN | " in str(result) and "0.8839 ± 0.0007" in str(result)
    assert (out / "table1.md").read_text() == f"{result}\n"
    assert len(json.loads((out / "table1.json").read_text())[0]["tau"]) == 2
    for name in ("predictions", "curves"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_finished_is_kept_and_not_replaced(made):
    out, result = made
    again = table1.run(TINY, out, show_progress=False)
    assert [r.seconds for r in again.reports] == [r.seconds for r in result.reports]
    with pytest.raises(predict.PredictError, match=r"statnn: the job there has seeds = \[0, 1\]"):
        table1.run(TINY, out, seeds=3, show_progress=False)


def test_differences_come_with_their_standard_errors(made):
    """Two methods that err on the same networks differ by less than chance suggests."""
    (report,) = made[1].reports
    rng = np.random.default_rng(0)

    def table(n):
        true = rng.random(n)
        worse, better = (true + s * rng.normal(size=(2, n)) for s in (0.1, 0.05))
        tests = {"true": true, "tested": np.arange(n)}
        reports = [
            dataclasses.replace(
                report, predicted=x, method=method, **tests,
                tau=np.array([kendall_tau(row, true) for row in x]),
            )
            for method, x in (("deepset", worse), ("unf", better))
        ]  # fmt: skip
        return str(table1.Result(reports, made[0]))

    few, many = table(48), table(1500)
    assert "48 test networks are too few to tell apart τ" in few
    assert "too few" not in many
    rows = [line.split("|")[3].split() for line in many.splitlines()[2:4]]
    assert rows[1] == [] and float(rows[0][0]) > 2 * float(rows[0][2]) > 0


def test_settings_have_the_papers_methods_and_numbers():
    assert table1.FULL.methods == table1.SMALL.methods
    assert {"statnn", "deepset", "unf"} <= set(table1.FULL.methods)
    assert table1.FULL.models == sum(table1.FULL.sizes) == 10_000
    assert table1.FULL.training("unf") == predict.Training(
        epochs=10, batch_size=10, learning_rate=1e-3, schedule="constant", weight_decay=0.0
    )
