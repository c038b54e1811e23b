"""`unf data`, as a user types it."""

import numpy as np
import pytest

from unf.lab.cli import main
from unf.lab.data import load_text


@pytest.fixture(autouse=True)
def no_data_of_this_machine(monkeypatch):
    monkeypatch.delenv("UNF_DATA", raising=False)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "lm1b").mkdir()
    (tmp_path / "lm1b" / "train.txt").write_text("one two\none two three\n" * 9)
    (tmp_path / "lm1b" / "heldout.txt").write_text("two three\n")
    return tmp_path


def run(*words):
    return main(["data", *map(str, words)])


def test_prepare(folder, tmp_path, capsys):
    assert run("prepare", "lm1b", "--data", folder, "--out", tmp_path / "out") == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "out" / "lm1b_bytes.npz")
    words = ["prepare", "lm1b", "--unit", "subwords", "--vocabulary", "260"]
    assert run(*words, "--data-folder", folder, "--out", tmp_path / "out") == 0
    assert capsys.readouterr().out.strip().endswith("lm1b_bpe260.npz")
    loaded = load_text("lm1b", tmp_path / "out", unit="subwords", vocabulary=260)
    expected = load_text("lm1b", folder, unit="subwords", vocabulary=260)
    np.testing.assert_array_equal(loaded.train, expected.train)


def test_prepare_from_the_environment(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("UNF_DATA", str(folder))
    assert run("prepare", "lm1b", "--out", tmp_path / "out") == 0


def test_info(folder, capsys):
    assert run("info", "--data", folder) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["lm1b", "bytes", "found", str(folder / "lm1b" / "train.txt")] in lines
    assert ["digits", "found", "built", "in"] in lines
    assert ["cifar10", "missing"] in lines
    text = " ".join(word for line in lines for word in line)
    assert "197 train and 9 held out (uint8), vocabulary 256" in text
    assert "t10k-labels-idx1-ubyte" in text and "cifar-10-batches-bin" in text
    assert f"cifar10 is not in {folder}" in text


def test_info_without_a_folder(capsys):
    assert run("info") == 0
    printed = capsys.readouterr().out
    assert "lm1b needs the file lm1b_bytes.npz or the official files (train.txt" in printed
    assert "no folder was named" in printed and "set the variable UNF_DATA" in printed
    assert "python-docs bytes  found    built in" in printed


def test_info_on_damaged_files(folder, capsys):
    (folder / "fashion_mnist_8x8.npz").write_bytes(b"torn")
    assert run("info", "--data", folder) == 1
    printed = capsys.readouterr().out
    assert "fashion-mnist      damaged" in printed and "make it again" in printed


def test_mistakes(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        run("prepare", "svhn", "--data", tmp_path, "--out", tmp_path)
    assert "invalid choice 'svhn'" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        run("prepare", "lm1b", "--data", tmp_path)
    assert "--out" in capsys.readouterr().err
    assert run("prepare", "lm1b", "--data", tmp_path, "--out", tmp_path / "out") == 1
    assert "lm1b" in capsys.readouterr().err
