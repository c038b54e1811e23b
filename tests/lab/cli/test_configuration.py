"""Options in files: every run can be repeated from what it wrote beside its results."""

import dataclasses
import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.cli.test_commands import run
from unf.lab.cli._command import as_toml, as_words
from unf.lab.cli._main import COMMANDS, understand

TINY = "--models 2 --hidden 2 --digits 1 --steps 1 --problems 2 --batch-sizes 2 --quiet".split()
NEEDED = {
    "predict train": "--zoo z --method unf-plus",
    "lopt train": "--task mlp --optimizer unf",
    "lopt eval": "a b --task mlp",
}
RUNS = [name for name in COMMANDS if name.startswith(("zoo build", "reproduce")) or name in NEEDED]

TRAIN = understand("lopt train", ["--task", "mlp", "--optimizer", "unf"])


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    out = tmp_path_factory.mktemp("configuration") / "a.zoo"
    assert run("zoo", "build", "tiny-rnn", *TINY, "--out", out) == 0
    return out


@pytest.mark.parametrize("name", [*RUNS, "demo"])
def test_every_run_can_be_written_down(name, tmp_path):
    words = NEEDED.get(name, "").split()
    out = [] if name == "reproduce table2" else ["--out", "/there"]
    command = understand(name, [*words, *out])
    path = tmp_path / "config.toml"
    path.write_text(as_toml(command, name, path))
    assert tomllib.loads(path.read_text())["command"] == name
    again = understand(name, ["--config", str(path)])
    if getattr(command, "zoo", None) is not None:
        command = dataclasses.replace(command, zoo=command.zoo.absolute())
    assert dataclasses.replace(again, config=None) == command


@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=3),
    seed=st.integers(-(2**40), 2**40),
    rate=st.floats(1e-30, 1e30),
)
def test_values_are_read_as_they_were_written(texts, seed, rate, tmp_path_factory):
    training = dataclasses.replace(TRAIN.training, learning_rate=rate)
    out = Path("/").joinpath(*texts)
    command = dataclasses.replace(TRAIN, training=training, seed=seed, out=out)
    path = tmp_path_factory.mktemp("x") / "new\nline.toml"
    path.write_bytes(as_toml(command, "lopt train", path).encode())
    found = tomllib.loads(path.read_text())
    assert (found["seed"], found["training"]["learning_rate"]) == (seed, rate)
    assert Path(found["out"]) == out
    assert f"--seed={seed}" in as_words(found)


def test_a_run_is_repeated_from_what_it_wrote_down(zoo, tmp_path, capsys):
    config = zoo / "config.toml"
    again = ["zoo", "build", "tiny-rnn", "--config", config, "--out", tmp_path / "b", "--quiet"]
    assert run(*again) == 0
    files = [f for f in zoo.rglob("*") if f.is_file() and f != config]
    assert len(files) > 20, "weights, measurements, choices"
    for file in files:
        assert file.read_bytes() == (tmp_path / "b" / file.relative_to(zoo)).read_bytes(), file
    capsys.readouterr()
    assert run(*again) == 1, "refused, since there is one"
    assert "there is a zoo already" in capsys.readouterr().err


def test_what_was_left_open_is_written_with_the_values_that_were_used(zoo):
    written = tomllib.loads((zoo / "config.toml").read_text())
    assert written["out"] == str(zoo) and written["chunk"] == 1
    assert written["recipe"]["dtype"] == "float32"
    assert not {"quiet", "resume", "processes", "config"} & set(written)


@pytest.mark.nightly
def test_files_have_their_configuration_beside_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UNF_DATA", raising=False)
    words = "lopt eval --task mlp --baselines adam --seeds 1 --horizon 10 --out r.toml --quiet"
    assert run(*words.split()) == 0
    assert json.loads((tmp_path / "r.toml").read_text())["horizon"] == 10, "the comparison itself"
    written = tomllib.loads((tmp_path / "r.toml.config.toml").read_text())
    assert (written["setting"]["dataset"], written["setting"]["batch_size"]) == ("digits", 128)


def test_files_of_people_are_kept(tmp_path, capsys):
    mine = "# mine\nseed = 3\n[recipe]\nbatch-sizes = [2]\n"
    (tmp_path / "config.toml").write_text(mine)
    words = ["zoo", "build", "tiny-rnn", *TINY, "--config", tmp_path / "config.toml"]
    assert run(*words, "--out", tmp_path) == 0
    assert (tmp_path / "config.toml").read_text() == mine
    assert "left as it is" in capsys.readouterr().err
    assert json.loads((tmp_path / "zarr.json").read_text())["attributes"]["seed"] == 3


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("seed = ", 1, "cannot be read"),
        ('command = "zoo info"', 1, "for another command; run: unf zoo info --config"),
        ("seeds = 1", 1, "unf zoo build tiny-rnn has no option 'seeds'; it has"),
        ("[oven]\nheat = 2", 1, "no option 'oven'"),
        ("seed = true", 1, "seed is True, which has the wrong type"),
        ('quiet = "yes"', 1, "quiet is 'yes', which has the wrong type"),
        ('seed = "three"', 2, "--seed"),
        ("[recipe]\nhidden = 2.5", 2, "--hidden"),
        ("batch_sizes = [1, true]", 2, "--batch-sizes"),
        ("hidden = 2026-11-15", 2, "--hidden"),
    ],
)
def test_mistakes_in_files(text, code, message, tmp_path, capsys):
    file = tmp_path / "x.toml"
    file.write_text(text)
    assert run("zoo", "build", "tiny-rnn", "--out", tmp_path / "z", "--config", file) == code
    printed = capsys.readouterr().err
    assert message in printed and str(file) in printed
    assert not (tmp_path / "z").exists()


def test_flags_override_files_and_presets_follow_them(tmp_path):
    file = tmp_path / "x.toml"
    file.write_text('task = "mlp"\noptimizer = "unf"\nsmall = true\npairs = 7\n')
    small = understand("lopt train", ["--config", str(file)])
    assert small.small and (small.training.steps, small.training.pairs) == (200, 7)
    assert understand("lopt train", [f"--config={file}", "--pairs", "9"]).training.pairs == 9
    large = understand("lopt train", ["--config", str(file), "--no-small"])
    assert not large.small and (large.training.steps, large.training.pairs) == (50_000, 7)


def test_another_method_brings_its_own_training(tmp_path):
    """A file has all settings; those that came from its method go with it, others stay."""
    words = ["--zoo", "z", "--method", "unf-plus", "--batch-size", "4"]
    plus = understand("predict train", words)
    assert (plus.training.epochs, plus.training.clip, plus.training.batch_size) == (12, 1.0, 4)
    path = tmp_path / "config.toml"
    path.write_text(as_toml(plus, "predict train", path))
    again = ["--config", str(path)]
    assert understand("predict train", again).training == plus.training
    paper = understand("predict train", [*again, "--method", "unf"]).training
    assert (paper.epochs, paper.clip, paper.batch_size) == (10, 0.0, 4)
