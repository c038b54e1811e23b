"""The experiment on mixed zoos: what its table says, and that it runs."""

import dataclasses
import json

import numpy as np
import pytest

from unf.lab import mixed
from unf.lab.predict import Report, Training
from unf.lab.zoos import MixedRecipe
from unf.models._scores import kendall_tau

TINY = mixed.Setting(
    MixedRecipe(
        architectures=2, held_out=1, datasets=("digits",), depths=(2,), widths=(2,),
        new_depths=(3,), new_widths=(3,), steps=5, batch_size=4,
    ),
    36,
    1,
    epochs=1,
)  # fmt: skip


def report(method, noise, rng):
    """Predictions that are the truth and noise; on held-out architectures, twice the noise."""

    def part(scale):
        true = rng.random(400)
        predicted = true + scale * rng.normal(size=(2, 400))
        tau = np.array([kendall_tau(row, true) for row in predicted])
        return {"predicted": predicted, "true": true, "tau": tau, "r2": tau, "retest": 0.9,
                "settings": 0.5, "tested": np.arange(400)}  # fmt: skip

    empty = np.zeros((1, 2))
    return Report(
        method=method, zoo={}, training={}, split={}, include_diverged=False, seeds=[0, 1],
        valid_scores=empty, losses=empty, invariance=1e-7, parameters=1, seconds=1.0,
        held_out=part(2 * noise), architectures={}, **part(noise),
    )  # fmt: skip


def test_the_table_compares_with_statnn_on_both_parts(tmp_path):
    rng = np.random.default_rng(0)
    reports = [report("tied", 0.1, rng), report("statnn", 0.2, rng)]
    result = mixed.Result(reports, tmp_path)
    text, rows = str(result), json.loads(result.to_json())
    known, held = text.split("400 networks of held-out architectures")
    for part, scores in ((known, reports), (held, [r.on_held_out for r in reports])):
        ahead = scores[0].tau.mean() - scores[1].tau.mean()
        assert ahead > 0.05 and f"| {ahead:+.4f} ±" in part
        assert "a model that sees only the training settings reaches 0.5000" in part
    for name, scores in (("known", reports), ("held-out", [r.on_held_out for r in reports])):
        tied, statnn = (row[name] for row in rows)
        assert tied["tau"] == scores[0].tau.tolist() and tied["retest"] == 0.9
        assert tied["ahead"]["of"] == "statnn"
        assert statnn["ahead"] == {"of": "statnn", "mean": 0, "standard_error": 0}
        assert tied["ahead"]["mean"] == pytest.approx(scores[0].tau.mean() - scores[1].tau.mean())
        assert 0 < tied["ahead"]["standard_error"] < 0.05
    assert "reordering hidden neurons changes predictions by at most 1e-07" in text


def test_settings_are_as_documented():
    assert mixed.FULL.models == 10_000 and mixed.FULL.recipe == MixedRecipe()
    assert mixed.FULL.training("tied") == mixed.FULL.training("statnn")
    assert mixed.SMALL.training("tied") == dataclasses.replace(
        Training(batch_size=16, schedule="cosine", clip=1.0), epochs=10
    )


@pytest.mark.nightly
def test_the_experiment_runs_and_is_resumed(tmp_path):
    result = mixed.run(TINY, tmp_path, show_progress=False)
    table = json.loads((tmp_path / "mixed-table.json").read_text())
    assert [row["method"] for row in table] == list(mixed.METHODS)
    assert all(len(row["held-out"]["tau"]) == 1 for row in table)
    for name in ("scores.png", "curves.png", "predictions.png", "mixed-table.md"):
        assert (tmp_path / name).stat().st_size > 0
    assert str(mixed.run(TINY, tmp_path, show_progress=False)) == str(result)
