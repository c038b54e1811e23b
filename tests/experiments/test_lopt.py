"""Evaluating learned optimizers, the table of their sizes, and the commands."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from unf.cli import main
from unf.experiments import figure2, table2
from unf.experiments.lopt import (
    GRIDS,
    Comparison,
    Curves,
    compare,
    draw_comparisons,
    evaluate,
    make_task,
    tune,
)
from unf.meta import MetaTraining
from unf.optim import init_theta, learned_optimizer, save
from unf.tasks import MLPTask

TASK = MLPTask(dataset="digits", hidden=(4,), batch_size=8)
THETA = init_theta("sgdm", key=jax.random.key(0), alpha=0.05)
TINY = MetaTraining(steps=2, pairs=2, window=2, horizon=4)


@pytest.fixture(scope="module")
def comparison():
    return compare(
        TASK, {"sgdm": THETA}, horizon=20, seeds=range(3), baselines=["adam"], show_progress=False
    )


def test_table_2_is_the_papers():
    rows = table2.run()
    assert {row.task: (row.unf, row.deepset, row.nfn) for row in rows} == table2.PAPER
    assert [row.true_terms for row in rows] == [32, 86, 165, 2382]
    assert "Every cell is the paper's." in table2.as_text(rows)
    wrong = [dataclasses.replace(rows[0], unf=1), *rows[1:]]
    assert "| 1 (paper 3783) |" in table2.as_text(wrong)


def test_a_meta_learned_sgd_is_evaluated_like_the_hand_made_one():
    """The same networks, data and updates give the same curves."""
    data = TASK.data()
    learned = evaluate(TASK, data, learned_optimizer, THETA, seeds=[3, 4], horizon=10)
    options = {"learning_rate": 0.05, "momentum": 0.9}
    by_hand = evaluate(TASK, data, GRIDS["sgdm-tuned"][0], options, seeds=[3, 4], horizon=10)
    np.testing.assert_allclose(learned.train, by_hand.train, rtol=1e-4)
    np.testing.assert_allclose(learned.heldout, by_hand.heldout, rtol=1e-4)
    assert (learned.train[0] != learned.train[1]).any()


def test_tuning_finds_the_best_of_the_grid():
    chosen = tune(TASK, TASK.data(), "adam", horizon=40)
    assert chosen["learning_rate"] in GRIDS["adam"][1]["learning_rate"]
    assert chosen["learning_rate"] > 5e-4  # the smallest ones hardly move in 40 steps


def test_comparisons_round_trip(comparison):
    again = Comparison.from_json(comparison.to_json())
    assert str(again) == str(comparison)
    for name, curves in comparison.curves.items():
        np.testing.assert_allclose(again.curves[name].train, curves.train, atol=1e-6)
    assert "Adam, tuned" in str(comparison) and "learning_rate" in str(comparison)
    with pytest.raises(ValueError, match="not a comparison of optimizers"):
        Comparison.from_json("{}")


def test_curves_are_drawn_also_of_diverged_runs(comparison, tmp_path):
    lost = Curves(np.full((2, 20), np.nan), np.full((2, 20), np.nan))
    worse = dataclasses.replace(comparison, curves={**comparison.curves, "unf": lost})
    draw_comparisons([comparison, worse], tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_tasks_fall_back_to_built_in_data_and_say_so(monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)
    task, about = make_task("mlp")
    assert task.dataset == "digits" and "in place of the paper's (fashion-mnist" in about
    with pytest.raises(ValueError, match="unknown task 'gan'"):
        make_task("gan")
    with pytest.raises(ValueError, match="'mlp' has no option vocabulary"):
        make_task("mlp", vocabulary=100)


def test_figure_2_from_nothing(tmp_path, monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)
    monkeypatch.setitem(figure2.KINDS, "mlp", ("sgdm", "unf"))
    said = []
    run = {"tasks": ("mlp",), "options": TINY, "seeds": 2, "announce": said.append}
    result = figure2.run(tmp_path, **run, show_progress=False)
    assert (tmp_path / "figure2.png").exists() and "digits" in said[0]
    assert set(result.comparisons[0].curves) == {"sgdm", "unf", "adam", "sgdm-tuned"}


def test_commands(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)
    train = [
        "lopt",
        "train",
        "--task",
        "mlp",
        "--optimizer",
        "sgdm",
        "--quiet",
        "--batch-size",
        "4",
    ]
    tiny = ["--steps", "2", "--pairs", "2", "--window", "2", "--horizon", "4", "--tensorboard"]
    out = str(tmp_path / "sgdm")
    assert main([*train, *tiny, "--out", out]) == 0
    assert "with the one it ended with" in capsys.readouterr().out
    assert list((tmp_path / "sgdm" / "tensorboard").iterdir())
    assert main([*train, *tiny, "--out", out]) == 1
    assert "there is a meta-training already" in capsys.readouterr().err
    assert main([*train, *tiny, "--out", out, "--resume"]) == 0
    test = ["lopt", "eval", "--task", "mlp", "--horizon", "4", "--seeds", "2", "--quiet"]
    file = tmp_path / "mlp.json"
    assert main([*test, out, "--baselines", "none", "--out", str(file)]) == 0
    assert json.loads(file.read_text())["notes"] == {"sgdm": {"meta-steps": 2}}
    assert main(["lopt", "plot", str(file), "--out", str(tmp_path / "f.png")]) == 0
    assert (tmp_path / "f.png").exists()
    capsys.readouterr()
    assert main([*test, "nothing"]) == 1
    assert "no learned optimizer 'nothing'" in capsys.readouterr().err
    assert main([*test, "--baselines", "lion"]) == 1
    assert "unknown baselines ['lion']" in capsys.readouterr().err
    assert main(["lopt", "plot", str(tmp_path / "sgdm" / "config.json")]) == 1
    assert "not a comparison" in capsys.readouterr().err


def test_an_optimizer_of_another_task_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)
    save(tmp_path / "unf", init_theta("unf", TASK.space.relax(), key=jax.random.key(0)))
    assert main(["lopt", "eval", "--task", "mlp", str(tmp_path / "unf")]) == 1
    assert "made for another weight space" in capsys.readouterr().err


def test_reproduce_table_2(capsys):
    assert main(["reproduce", "table2"]) == 0
    assert "| CNN on CIFAR-10 | 7,369 | 2,788 | 41,603 |" in capsys.readouterr().out
