"""`unf lopt`, and `unf reproduce` of the tables and figure about optimizers."""

import json
import tomllib
from pathlib import Path

import jax
import pytest

from unf.lab import table2
from unf.lab.cli import main
from unf.lab.tasks import MLPTask
from unf.optim import init_theta, save

TASK = MLPTask(dataset="digits", hidden=(4, 4), batch_size=8)


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
    assert "already holds results" in capsys.readouterr().err
    assert main([*train, *tiny, "--out", out, "--resume"]) == 0
    test = ["lopt", "eval", "--task", "mlp", "--horizon", "4", "--seeds", "2", "--quiet"]
    file = tmp_path / "mlp.json"
    assert main([*test, out, "--baselines", "none", "--out", str(file)]) == 0
    assert json.loads(file.read_text())["notes"] == {"sgdm": {"meta-steps": 2}}
    capsys.readouterr()
    assert main(["lopt", "train", "--task", "mlp", "--optimizer", "unf", "--vocabulary", "9"]) == 1
    assert "'mlp' has no option vocabulary" in capsys.readouterr().err
    assert main([*test, out, "--seeds", "0"]) == 1
    assert "--seeds is 0" in capsys.readouterr().err
    assert main(["reproduce", "figure2", "--tasks", "gan"]) == 1
    assert "expected some of ['mlp'" in capsys.readouterr().err
    assert main(["reproduce", "figure2", "--steps", "mlp=many"]) == 1
    assert "--steps is 'mlp=many'" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="0"):
        main(["lopt", "train", "--help"])
    assert "(default: 50000)" in capsys.readouterr().out
    assert main([*test, "nothing"]) == 1
    assert "no learned optimizer 'nothing'" in capsys.readouterr().err
    assert main([*test, "--baselines", "lion"]) == 1
    assert "unknown baselines ['lion']" in capsys.readouterr().err


def test_several_tasks(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)
    train = "lopt train --task mlp:hidden=3,mlp:hidden=2-2:batch_size=4 --optimizer sgdm --quiet"
    tiny = "--steps 2 --pairs 2 --window 2 --horizon 4 --reparametrize 0.1 --json"
    assert main([*train.split(), *tiny.split(), "--out", str(tmp_path / "a")]) == 0
    found = json.loads(capsys.readouterr().out)
    tasks = ["mlp:dataset=digits:hidden=3", "mlp:dataset=digits:batch_size=4:hidden=2-2"]
    assert [row["task"] for row in found["tasks"]] == tasks
    written = tomllib.loads((tmp_path / "a" / "config.toml").read_text())
    assert written["setting"]["task"] == ",".join(tasks)
    again = ["lopt", "train", "--config", str(tmp_path / "a" / "config.toml"), "--resume"]
    assert main([*again, "--out", str(tmp_path / "a"), "--quiet"]) == 0
    assert f"networks on {tasks[0]} over the last tenth of 4" in capsys.readouterr().out
    eval_ = ["lopt", "eval", "--task", "mlp,cnn", str(tmp_path / "a")]
    for words, message in [
        ([*train.split(), "--batch-size", "4"], "as in mlp:batch_size=…"),
        (eval_, "--task mlp,cnn has 2 tasks; expected one"),
        ([*train.split(), "--optimizer", "unf"], "have different weight spaces"),
        ("lopt train --task gan --optimizer unf".split(), "unknown task 'gan'; expected one of"),
    ]:
        assert main(words) == 1
        assert message in capsys.readouterr().err


def test_several_seeds(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)
    train = "lopt train --task mlp --batch-size 4 --optimizer sgdm --quiet --seed 5 --seeds 2"
    tiny = "--steps 2 --pairs 2 --window 2 --horizon 4"
    words = [*train.split(), *tiny.split(), "--out", str(tmp_path / "a")]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "mean ± standard error over 2 meta-trainings" in printed and "seed-6" in printed
    assert main([*words, "--resume", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["loss_after"]) == len(found["optimizers"]) == 2
    assert all(Path(file).is_file() for file in found["optimizers"])
    assert main([*words, "--seeds", "0"]) == 1
    assert "seeds is 0" in capsys.readouterr().err


def test_several_meta_trainings_of_a_folder_are_one_optimizer(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)
    names = []
    for kind, seed in (("sgdm", 0), ("sgdm", 1), ("deepset", 0), ("deepset", 1)):
        folder = tmp_path / kind / f"seed-{seed}"
        folder.mkdir(parents=True)
        theta = init_theta(kind, key=jax.random.key(seed), hidden_channels=2)
        save(folder / "optimizer.safetensors", theta)
        names.append(str(folder))
    tiny = "--task mlp --batch-size 4 --horizon 2 --seeds 1 --baselines none --quiet".split()
    out = tmp_path / "all.json"
    assert main(["lopt", "eval", *tiny, *names, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "| Deep Set |" in shown and "| SGDM, meta-trained |" in shown
    assert set(json.loads(out.read_text())["curves"]) == {
        "sgdm/seed-0", "sgdm/seed-1", "deepset/seed-0", "deepset/seed-1",
    }  # fmt: skip


def test_an_optimizer_of_another_task_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)
    save(tmp_path / "unf", init_theta("unf", TASK.space.relax(), key=jax.random.key(0)))
    assert main(["lopt", "eval", "--task", "mlp", str(tmp_path / "unf")]) == 1
    assert "another network, which differs in more" in capsys.readouterr().err


def test_reproduce_table_2(capsys, monkeypatch):
    rows = [table2.Row(task, 0, *sizes, 0, 0) for task, sizes in table2.PAPER.items()]
    monkeypatch.setattr(table2, "run", lambda **_: rows)  # tested in tests/lab/test_table2.py
    assert main(["reproduce", "table2"]) == 0
    assert "| CNN on CIFAR-10 | 7,369 | 2,788 | 41,603 |" in capsys.readouterr().out
