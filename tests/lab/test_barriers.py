"""`unf reproduce barriers`: pairs of networks, trained, aligned, and measured between."""

import dataclasses
import json

import numpy as np
import pytest

from unf.lab import barriers
from unf.lab.cli import main
from unf.symmetry._merge import height

CASES = {"mlp": dataclasses.replace(barriers.SMALL["mlp"], steps=60)}
CASES["mlp"] = dataclasses.replace(
    CASES["mlp"], task=dataclasses.replace(CASES["mlp"].task, hidden=(16, 16))
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("barriers")
    options = {"pairs": 2, "points": 5, "show_progress": False}
    return barriers.run(CASES, folder, **options), folder, options


def test_losses_between_pairs(results):
    found, folder, _ = results
    for part in ("train", "held out"):
        losses = found.found["mlp"][part]
        assert list(losses) == ["as they are", "weights", "activations"]
        assert {x.shape for x in losses.values()} == {(2, 5)}
        ends = [x[:, [0, -1]] for x in losses.values()]
        np.testing.assert_allclose(ends[1], ends[0], rtol=1e-4)  # a permutation changes no network
        np.testing.assert_allclose(ends[2], ends[0], rtol=1e-4)
    assert len(json.loads((folder / "barriers.json").read_text())["losses"]["mlp"]["train"]) == 3
    assert (folder / "barriers.png").stat().st_size > 1000
    assert "| MLP on digits | train |" in (folder / "barriers.md").read_text()


def test_finished_cases_are_kept_and_other_options_refused(results, monkeypatch):
    found, folder, options = results
    monkeypatch.setattr(barriers, "_train", lambda *args: pytest.fail("trained again"))
    again = barriers.run(CASES, folder, **options)
    for way, losses in again.found["mlp"]["train"].items():
        np.testing.assert_allclose(losses, found.found["mlp"]["train"][way], atol=1e-5)
    with pytest.raises(barriers.BarrierError, match=r"mlp\.json has results of other options"):
        barriers.run(CASES, folder, **options | {"seed": 1})


def test_heights_are_above_the_line_between_the_ends():
    lines = np.array([[0.0, 2.0, 2.0], [1.0, 1.0, 1.0]])
    np.testing.assert_allclose(height(np.linspace(0, 1, 3), lines), [1, 0])


def test_unknown_cases_are_refused(capsys):
    assert main(["reproduce", "barriers", "--small", "--cases", "gpt"]) == 1
    assert "--cases has 'gpt'; expected some of ['mlp', 'cnn']" in capsys.readouterr().err
