"""Commands as dataclasses: options, examples, configuration files, completion, exit codes."""

import dataclasses
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unf.lab._option import option
from unf.lab.cli import main
from unf.lab.cli._command import Command, OptionError, UsageError, group, make, options_of
from unf.lab.cli._configuration import as_toml, read_configuration
from unf.lab.cli._main import COMMANDS, understand
from unf.zoo import Zoo


@dataclasses.dataclass(frozen=True, kw_only=True)
class Oven:
    heat: float = option(180.0, "degrees")

    def __post_init__(self):
        if self.heat < 0:
            raise ValueError(f"heat is {self.heat}; expected 0 or more")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bake(Command):
    """Bake cakes."""

    examples: ClassVar[str] = "  bake --cake plum\n"
    cake: str = option(help="which", choices=("plum", "poppy"))
    layers: tuple[int, ...] = option((1, 2), "sizes")
    out: Path | None = option(None, "where")
    oven: Oven = group("the oven")
    hurry: bool = option(False, "faster", passing=True)

    @classmethod
    def presets(cls, given):
        return {"heat": 220.0} if given["cake"] == "plum" else {}

    def run(self):
        return 0


def words_of_examples():
    for name, command in COMMANDS.items():
        for line in command.examples.replace("\\\n", " ").splitlines():
            words = shlex.split(re.sub(r"\(.*?\)|>.*|^\s*\w+=\S+", "", line))
            assert words[0] == "unf", (name, line)
            if words[1:]:
                yield pytest.param(words[1:], id=" ".join(words[1:]))


@pytest.mark.parametrize("words", list(words_of_examples()))
def test_examples_are_understood(words):
    name, command = understand(words)
    assert " ".join(words).startswith(name) and isinstance(command, COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_and_every_option(name, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([*name.split(), "--help"])
    printed = capsys.readouterr().out
    options = options_of(COMMANDS[name])
    assert f"unf {name.split()[0]}" in printed.partition("examples:")[2]
    assert len({o.name for o in options}) == len(options), "options are told apart by their names"
    for o in options:
        shown = o.field.metadata.get("metavar", "") if "positional" in o.field.metadata else o.shown
        assert shown in printed
        assert o.field.metadata.get("help"), f"{o.name} is explained"


def test_where_values_come_from(tmp_path):
    """The command line, then the file, then what other options imply, then the default."""
    assert make(Bake, {"cake": "poppy"}).oven.heat == 180
    assert make(Bake, {"cake": "plum"}).oven.heat == 220
    (tmp_path / "cake.toml").write_text('cake = "plum"\n[oven]\nheat = 90\n')
    stored = read_configuration(tmp_path / "cake.toml", "bake", Bake)
    assert make(Bake, stored).oven.heat == 90
    assert make(Bake, stored | {"heat": 7.0}).oven.heat == 7
    with pytest.raises(UsageError, match="required: --cake"):
        make(Bake, {})
    with pytest.raises(OptionError, match="heat is -1"):
        make(Bake, {"cake": "plum", "heat": -1.0})


@given(
    cake=st.sampled_from(["plum", "poppy"]),
    layers=st.lists(st.integers(-(2**40), 2**40)).map(tuple),
    out=st.none() | st.text(st.characters(exclude_categories=["Cs"])).map(Path("/").joinpath),
    heat=st.floats(0, allow_nan=False),
)
def test_a_configuration_is_read_as_it_was_written(cake, layers, out, heat, tmp_path_factory):
    bake = Bake(cake=cake, layers=layers, out=out, oven=Oven(heat=heat), hurry=True)
    path = tmp_path_factory.mktemp("bake") / "new\nline.toml"
    path.write_bytes(as_toml(bake, "bake", path).encode())
    again = make(Bake, read_configuration(path, "bake", Bake))
    assert again == dataclasses.replace(bake, hurry=False), "--hurry was a matter of that call"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cake = ", "cannot be read"),
        ('command = "zoo info"', r"of another command; run: unf zoo info --config"),
        ("cakes = 1", "unf bake has no option 'cakes'; it has cake, layers"),
        ("cake = 1", "cake is 1; expected str"),
        ('cake = "cheese"', r"cake is 'cheese'; expected one of \['plum', 'poppy'\]"),
        ("layers = 3", "layers is 3; expected a list of int"),
        ("layers = [1, true]", "expected a list of int"),
        ("heat = true", "heat is True; expected float"),
        ("heat = false", "heat is False; expected float"),
        ("heat = 1\n[oven]\nheat = 2", "heat is there twice"),
        ("[stove]\nheat = 2", "no option 'stove'"),
        ("[oven.door]\nheat = 2", "no option 'door'"),
        ("heat = 2026-11-15", "expected float"),
        ('hurry = "yes"', "hurry is 'yes'; expected bool"),
    ],
)
def test_configurations_that_do_not_serve(text, message, tmp_path):
    file = tmp_path / "x.toml"
    file.write_text(text)
    with pytest.raises(OptionError, match=rf"--config .*x\.toml: .*{message}"):
        read_configuration(file, "bake", Bake)
    with pytest.raises(OptionError, match=r"cannot be read .*No such file"):
        read_configuration(tmp_path / "none.toml", "bake", Bake)


@pytest.mark.parametrize("name", [n for n, c in COMMANDS.items() if c.results != Command.results])
def test_every_run_can_be_written_down(name, tmp_path):
    needed = {"task": "mlp", "optimizer": "unf", "method": "unf-plus"}
    options = {o.name: o for o in options_of(COMMANDS[name])}
    given = {n: needed.get(n) or Path("/somewhere") for n, o in options.items() if o.required}
    given |= {"out": Path("/there")} if "out" in options else {}
    command = make(COMMANDS[name], given)
    path = tmp_path / "config.toml"
    path.write_text(as_toml(command, name, path))
    assert tomllib.loads(path.read_text())["command"] == name
    assert understand([*name.split(), "--config", str(path)]) == (name, command)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "usage: unf"),
        (["zoo"], 2, "required: COMMAND"),
        (["zoo", "info"], 2, "required: ZOO"),
        (["zoos"], 2, "invalid choice: 'zoos'"),
        (["lopt", "train", "--optimiser", "unf"], 2, "did you mean --optimizer?"),
        (["predict", "train", "--zoo", "x", "--method", "magic"], 2, "choose from 'deepset'"),
        (["zoo", "build", "tiny-rnn", "--models", "many"], 2, "invalid int value: 'many'"),
        (["predict", "train", "--split", "a,b"], 2, "invalid comma-separated ints value"),
        (["lopt", "eval", "--task", "mlp", "--baselines", "lion"], 1, "unknown baselines"),
        (["demo", "--config", "nowhere.toml"], 1, "--config nowhere.toml: cannot be read"),
    ],
)
def test_exit_codes_and_messages(words, code, message, capsys):
    try:
        found = main(words)
    except SystemExit as end:
        found = end.code
    printed = capsys.readouterr()
    assert found == code and message in printed.out + printed.err
    assert "Traceback" not in printed.err


def test_a_run_is_repeated_from_what_it_wrote_down(tmp_path, capsys):
    words = "zoo build tiny-rnn --models 2 --hidden 2 --digits 1 --steps 1 --problems 2".split()
    assert main([*words, "--batch-sizes", "2", "--out", str(tmp_path / "a"), "--quiet"]) == 0
    config = tmp_path / "a" / "config.toml"
    assert tomllib.loads(config.read_text())["recipe"]["hidden"] == 2
    again = ["zoo", "build", "tiny-rnn", "--config", str(config), "--out", str(tmp_path / "b")]
    assert main([*again, "--quiet"]) == 0
    files = [f for f in (tmp_path / "a").rglob("*") if f.is_file() and f != config]
    assert len(files) > 20, "weights, measurements, choices"
    for file in files:
        other = tmp_path / "b" / file.relative_to(tmp_path / "a")
        assert file.read_bytes() == other.read_bytes(), file
    capsys.readouterr()
    assert main([*again, "--quiet"]) == 1, "refused, since there is one"
    assert "there is a zoo already" in capsys.readouterr().err


def test_what_is_written_down_is_settled_and_found_from_anywhere(tmp_path, monkeypatch, capsys):
    """What was left open is there, with the values that were used; paths are absolute."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UNF_DATA", raising=False)
    words = "zoo build tiny-rnn --models 2 --hidden 2 --digits 1 --steps 1 --problems 2".split()
    assert main([*words, "--batch-sizes", "2", "--out", "a.zoo", "--quiet"]) == 0
    written = tomllib.loads((tmp_path / "a.zoo" / "config.toml").read_text())
    assert written["out"] == str(tmp_path / "a.zoo")
    assert written["chunk"] == Zoo(tmp_path / "a.zoo").store.chunk
    assert written["recipe"]["dtype"] == "float32"
    words = ["lopt", "eval", "--task", "mlp", "--baselines", "adam", "--seeds", "1", "--horizon"]
    assert main([*words, "10", "--out", "r.toml", "--quiet"]) == 0
    assert (tmp_path / "r.toml").read_text().startswith("{"), "the comparison itself"
    written = tomllib.loads((tmp_path / "r.toml.config.toml").read_text())
    assert (written["setting"]["dataset"], written["setting"]["batch_size"]) == ("digits", 128)


def test_what_people_wrote_is_kept(tmp_path, capsys):
    words = "zoo build tiny-rnn --models 2 --hidden 2 --digits 1 --steps 1 --problems 2".split()
    (tmp_path / "config.toml").write_text("# mine\nseed = 3\nbatch_sizes = [2]\n")
    config = ["--config", str(tmp_path / "config.toml")]
    assert main([*words, *config, "--out", str(tmp_path), "--quiet"]) == 0
    assert (tmp_path / "config.toml").read_text().startswith("# mine")
    assert "is your own, and stays as it is" in capsys.readouterr().err


def test_a_run_that_is_refused_leaves_nothing(tmp_path):
    words = ["predict", "train", "--zoo", "nowhere", "--method", "unf", "--out"]
    assert main([*words, str(tmp_path / "x" / "y")]) == 1
    assert not (tmp_path / "x" / "y").exists()


def test_another_method_brings_its_own_training(tmp_path):
    """A file has all settings; those that came from its method go with it, others stay."""
    words = ["predict", "train", "--zoo", "z", "--method", "unf-plus", "--batch-size", "4"]
    name, plus = understand(words)
    path = tmp_path / "config.toml"
    path.write_text(as_toml(plus, name, path))
    again = ["predict", "train", "--config", str(path)]
    assert understand(again)[1].training == plus.training
    paper = understand([*again, "--method", "unf"])[1].training
    assert paper == dataclasses.replace(understand([*words[:5], "unf"])[1].training, batch_size=4)
    path.write_text(as_toml(understand([*words[:5], "unf"])[1], name, path))
    assert understand([*again, "--method", "unf-plus"])[1].training.epochs == 12


def test_flags_of_a_file_can_be_undone(tmp_path):
    (tmp_path / "x.toml").write_text('task = "mlp"\noptimizer = "unf"\nsmall = true\n')
    words = ["lopt", "train", "--config", str(tmp_path / "x.toml")]
    assert understand(words)[1].small and not understand([*words, "--no-small"])[1].small


def test_completion(tmp_path, capsys):
    pytest.importorskip("shtab")
    assert main(["completion", "bash"]) == 0
    (tmp_path / "unf").write_text(capsys.readouterr().out)
    script = (
        f"source {tmp_path / 'unf'}; COMP_WORDS=(unf zoo ''); COMP_CWORD=2; _shtab_unf; "
        "echo ${COMPREPLY[@]}"
    )
    run = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["build", "info", "plot"]
