"""`unf zoo`, `unf predict` and `unf reproduce`, as a user types them."""

import csv
import io
import json
from collections import Counter

import pytest

from tests.lab.zoos.tiny import CHUNK, MODELS
from unf.lab.cli import main
from unf.lab.cli._main import understand
from unf.lab.predict._methods import defaults_of

BUILD = [
    "zoo", "build", "tiny-rnn", "--models", str(MODELS), "--chunk", str(CHUNK), "--hidden", "3",
    "--digits", "1", "--steps", "4", "--problems", "30", "--batch-sizes", "2,3",
    "--dtype", "float32",
]  # fmt: skip


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "zoo"
    assert main([*BUILD, "--out", str(path), "--quiet"]) == 0
    return path


def test_info(zoo, capsys):
    assert main(["zoo", "info", str(zoo), "--check"]) == 0
    printed = capsys.readouterr().out
    assert "14 of 14 models, 0 diverged" in printed and "0 damaged chunks" in printed
    assert main(["zoo", "info", str(zoo), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"]["hidden"] == 3


def test_metadata_as_csv(zoo, tmp_path, capsys):
    assert main(["zoo", "info", str(zoo), "--csv", str(tmp_path / "new" / "zoo.csv")]) == 0
    rows = list(csv.DictReader((tmp_path / "new" / "zoo.csv").read_text().splitlines()))
    assert len(rows) == MODELS and rows[0]["status"] == "trained"
    assert {row["batch_size"] for row in rows} == {"2", "3"}
    assert all(1e-4 <= float(row["learning_rate"]) <= 1e-2 for row in rows)


def test_plot(zoo, capsys):
    assert main(["zoo", "plot", str(zoo)]) == 0
    assert (zoo / "zoo.png").read_bytes().startswith(b"\x89PNG")
    (zoo / "zoo.png").unlink()


@pytest.mark.nightly
def test_predict(zoo, tmp_path, capsys):
    train = ["predict", "train", "--zoo", str(zoo), "--method", "statnn", "--out", str(tmp_path)]
    options = ["--seeds", "2", "--split", "8,3,3", "--epochs", "1", "--quiet"]
    assert main([*train, *options]) == 0
    printed = capsys.readouterr()
    assert "StatNN: τ" in printed.out
    assert "3 test networks are too few to tell apart methods" in printed.out
    assert (tmp_path / "predictions.png").exists() and (tmp_path / "curves.png").exists()
    assert main(["predict", "apply", "--checkpoint", str(tmp_path), "--zoo", str(zoo)]) == 0
    printed = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(printed.out)))
    assert len(rows) == MODELS and 0 <= float(rows[3]["predicted"]) <= 1
    assert Counter(row["split"] for row in rows) == {"train": 8, "valid": 3, "test": 3}
    assert "11 of 14 networks were used in training" in printed.err
    tested = json.loads((tmp_path / "result.json").read_text())["tested"]
    assert {int(row["model"]) for row in rows if row["split"] == "test"} == set(tested)
    file = tmp_path / "new" / "predictions.csv"
    apply = ["predict", "apply", "--checkpoint", str(tmp_path), "--zoo", str(zoo)]
    assert main([*apply, "--out", str(file)]) == 0
    assert len(file.read_text().splitlines()) == MODELS + 1


def test_unknown_datasets_are_refused(capsys, tmp_path):
    words = ["zoo", "build", "small-cnn", "--dataset", "svhn", "--models", "2", "--out"]
    assert main([*words, str(tmp_path / "x")]) == 1
    assert "unknown dataset 'svhn'" in capsys.readouterr().err


def test_building_twice_is_refused(zoo, capsys):
    assert main([*BUILD, "--out", str(zoo)]) == 1
    assert "there is a zoo already; continue it with --resume" in capsys.readouterr().err


@pytest.mark.nightly
def test_a_mixed_zoo_from_build_to_report(tmp_path, capsys):
    folder = tmp_path / "mixed"
    build = ["zoo", "build", "mixed", "--datasets", "digits", "--architectures", "2"]
    build += ["--held-out", "1", "--depths", "2", "--widths", "2", "--new-depths", "3"]
    build += ["--new-widths", "3", "--steps", "2", "--batch-size", "4", "--models", "6"]
    assert main([*build, "--out", str(folder), "--quiet"]) == 0
    assert "3 architectures with " in capsys.readouterr().out
    assert main([*build, "--out", str(folder), "--quiet"]) == 1
    assert "there is a zoo already; continue it with --resume" in capsys.readouterr().err
    assert main(["zoo", "info", str(folder), "--check", "--csv", str(tmp_path / "zoo.csv")]) == 0
    assert "0 damaged chunks" in capsys.readouterr().out
    rows = list(csv.DictReader((tmp_path / "zoo.csv").read_text().splitlines()))
    assert len(rows) == 6 and len({row["architecture"] for row in rows}) == 3
    assert main(["zoo", "plot", str(folder)]) == 0
    assert main(["report", str(folder)]) == 0
    assert "6 of 6 networks are trained" in (folder / "report.html").read_text()
    options = understand("predict train", ["--zoo", str(folder), "--method", "tied"])
    assert options.training == defaults_of("tied", mixed=True)
    capsys.readouterr()
    assert main(["predict", "train", "--zoo", str(folder), "--method", "unf"]) == 1
    assert "'unf' reads networks of one architecture" in capsys.readouterr().err
