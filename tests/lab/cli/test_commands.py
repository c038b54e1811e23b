"""The command as people use it: help, mistakes, exit codes, completion."""

import importlib.util
import inspect
import os
import re
import shlex
import subprocess
import sys
from typing import get_args, get_origin

import pytest

from unf import _progress
from unf.lab.cli import main
from unf.lab.cli._command import options_of, with_flags
from unf.lab.cli._main import COMMANDS, understand


def run(*words):
    """The exit code, also where tyro ends the program."""
    try:
        return main([str(word) for word in words])
    except SystemExit as end:
        return end.code or 0


def examples():
    kinds = {get_origin(kind) or kind for kind in COMMANDS.values()}
    for kind in kinds:
        text = inspect.getdoc(kind).partition("Examples:\n")[2]
        for line in text.replace("\\\n", " ").splitlines():
            yield shlex.split(re.sub(r"\(.*?\)|>.*|^\s*\w+=\S+", "", line))


def test_examples_are_understood():
    named = set()
    for words in examples():
        name = max((n for n in COMMANDS if words[1:][: len(n.split())] == n.split()), key=len)
        named.add(name)
        command = understand(name, words[1 + len(name.split()) :])
        assert isinstance(command, get_origin(COMMANDS[name]) or COMMANDS[name])
    assert named == set(COMMANDS), "every command has examples"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_and_explains_every_option(name, capsys):
    assert run(*name.split(), "--help") == 0
    printed = capsys.readouterr().out
    assert "Examples:" in printed and f"unf {name}" in printed
    words = " ".join(re.sub(r"[│\s]+", " ", printed).split())
    for option in options_of(COMMANDS[name]):
        flag = f"--{option.replace('_', '-')} "
        if flag in words:
            assert not re.match(r"[\w{}|,…:]* ?\((default|required)", words.split(flag, 1)[1]), flag


@pytest.mark.parametrize(("method", "epochs"), [("unf", 10), ("reader", 20), ("tied", 12)])
def test_help_shows_the_defaults_of_the_method(method, epochs, capsys):
    assert run("predict", "train", "--method", method, "--help") == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert f"Passes over the training networks. (default: {epochs})" in shown


def test_groups_are_flat_and_their_options_told_apart():
    for kind in COMMANDS.values():
        groups = [get_args(kind)[0]] if get_args(kind) else []
        assert not set(options_of(groups[0])) & {"out", "models"} if groups else True


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("", 0, "usage: unf"),
        ("--version", 0, "unf 0."),
        ("zoo", 2, "Expected one of {build, import, info, plot}"),
        ("zoo info", 2, "The folder of the zoo. (required)"),
        ("zoos", 2, "Unrecognized options: zoos"),
        ("lopt train --task mlp --optimiser unf", 2, "--optimizer"),
        ("predict train --zoo x --method magic", 2, "invalid choice 'magic'"),
        ("zoo build tiny-rnn --out x --models many", 2, "--models"),
        ("zoo build tiny-rnn --out x --hidden 0", 2, "hidden is 0; expected at least 1"),
        ("predict train --zoo x --method unf --split a,b", 2, "--split"),
        ("cost m:f --channels 4", 2, "expected two positive numbers such as 16,16"),
        ("lopt eval --task mlp --baselines lion", 1, "unknown baselines ['lion']"),
        ("lopt eval --task mlp --baselines none", 1, "something to evaluate"),
        ("demo --config nowhere.toml", 1, "--config nowhere.toml: cannot be read"),
        ("demo --networks 3", 1, "networks is 3; expected at least 20"),
        ("zoo info nowhere", 1, "nowhere: no zoo here"),
        ("predict train --zoo nowhere --method unf", 1, "nowhere: no zoo here"),
        ("reproduce figure2 --tasks gan", 1, "unknown tasks ['gan']"),
        ("reproduce figure2 --steps mlp=many", 1, "--steps is 'mlp=many'"),
        ("reproduce generalize --tasks gan", 1, "unknown tasks ['gan']; expected some of"),
        ("reproduce generalize --seeds 0", 1, "seeds is 0; expected at least 1"),
        ("reproduce generalize nothing", 1, "no learned optimizer 'nothing'"),
        ("reproduce generalize unf-mlp-fashion-mnist", 1, "belongs to the weight space"),
        ("report nowhere", 1, "nowhere"),
        ("zoo build tiny-rnn --out x --processes 2 --process 0", 2, "expected --processes alone"),
        ("zoo build tiny-rnn --out x --processes 0", 2, "--process is 0 of 0 processes"),
    ],
)
def test_exit_codes_and_messages(words, code, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(*words.split()) == code
    printed = capsys.readouterr()
    text = " ".join(re.sub(r"[│\s]+", " ", printed.out + printed.err).split())
    assert message in text
    assert "Traceback" not in text
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not left, "a command that refuses to run leaves nothing"


def test_a_missing_extra_comes_with_its_remedy(monkeypatch, capsys):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "tyro" else real(n))
    assert main(["demo"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("run: pip install 'universal-neural-functionals[lab]'")


@pytest.mark.parametrize("words", [["--version"], ["zoo", "info", "--help"]])
def test_whoever_reads_the_output_may_stop(words, monkeypatch, capsys):
    """Like `unf … | head`: no traceback."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert run(*words) == 1
        assert capsys.readouterr().err == ""


def test_messages_of_the_library_name_options():
    names = {"pairs", "overwrite", "batch_size", "split"}
    assert with_flags("choose fewer pairs=, e.g. pairs=4", names) == (
        "choose fewer --pairs, e.g. --pairs 4"
    )
    assert with_flags("pass `overwrite=True` or sizes=", names) == "pass `--overwrite` or --split"
    assert with_flags("out/pairs=3 and other=True stay", names) == "out/pairs=3 and other=True stay"


def test_completion(tmp_path, capsys):
    assert run("--tyro-print-completion", "bash") == 0
    (tmp_path / "unf").write_text(capsys.readouterr().out)
    script = (
        f"source {tmp_path / 'unf'}; COMP_WORDS=(unf zoo ''); COMP_CWORD=2; _tyro_unf; "
        "echo ${COMPREPLY[@]}"
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert {"build", "import", "info", "plot"} <= set(done.stdout.split())


def test_progress_in_a_log_is_a_line_now_and_then(capsys, monkeypatch):
    with _progress.Progress("training", 300_000, unit="steps", done=100_000) as progress:
        for _ in range(100):
            progress.advance(2000, "loss 0.1")
    first, last = capsys.readouterr().err.splitlines()
    assert "training: 100k/300k steps" in first
    assert "training: 300k/300k steps" in last and "steps/s, loss 0.1" in last
    with _progress.Progress("training", 3, show=False) as progress:
        progress.advance()
    assert capsys.readouterr().err == ""
