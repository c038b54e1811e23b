"""From the words of a command line to a command that runs, or a message that says why not."""

import dataclasses
import inspect
import os
import traceback
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import tyro

from ..._devices import is_first
from ..._progress import say
from ..._version import __version__
from ..zoos import MixedRecipe
from ..zoos._recipe import RECIPES
from . import _experiments, _installation, _lopt, _network, _symmetry, _zoos
from ._command import (
    REGISTRY,
    Command,
    CommandError,
    as_words,
    options_of,
    read_configuration,
    recorded,
    with_flags,
)
from ._processes import CHILD, INTERRUPTED, run_child, supervise

COMMANDS: dict[str, Any] = {
    "demo": _experiments.Demo,
    "spec": _network.Spec,
    "cost": _network.Cost,
    "align": _symmetry.Align,
    "merge": _symmetry.Merge,
    "barrier": _symmetry.BarrierOf,
    "data prepare": _installation.Prepare,
    "data info": _installation.DataInfo,
    **{f"zoo build {name}": _zoos.Build[kind] for name, kind in RECIPES.items()},
    "zoo build mixed": _zoos.Build[MixedRecipe],
    "zoo import": _zoos.Import,
    "zoo info": _zoos.Info,
    "zoo plot": _zoos.Plot,
    "predict train": _zoos.Train,
    "predict apply": _zoos.Apply,
    "lopt train": _lopt.Train,
    "lopt tune": _lopt.Tune,
    "lopt eval": _lopt.Eval,
    "reproduce table1": _experiments.Table1,
    "reproduce table2": _experiments.Table2,
    "reproduce figure2": _experiments.Figure2,
    "reproduce generalize": _experiments.Generalize,
    "reproduce mixed": _experiments.Mixed,
    "reproduce inr": _experiments.Inr,
    "reproduce edit": _experiments.Edit,
    "reproduce zoos": _experiments.Zoos,
    "reproduce barriers": _experiments.Barriers,
    "report": _experiments.Report,
    "doctor": _installation.Doctor,
}
"""Every command, by the words that call it."""
_FAMILIES = {
    "": f"""Networks that read, edit and optimize the weights of other networks (unf {__version__}).

Every command has --help with examples, and --config FILE for its options. Progress goes to
standard error. Zoos, predictors and meta-trainings that were stopped go on with --resume, and
unf reproduce when it is called again.

exit codes: 0 done; 1 failed, the message says why; 2 invalid options; 130 stopped with Ctrl-C

completion: unf --tyro-write-completion bash ~/.local/share/bash-completion/completions/unf""",
    "data": "Prepare datasets, and list them.",
    "zoo": "Build, import, describe and draw zoos of trained networks.",
    "zoo build": """Train networks and store them.

A recipe of your own, a subclass of unf.lab.zoos.Recipe, is named by its module or file:
unf zoo build my_module:MyRecipe --help""",
    "predict": "Predict how well networks work from their weights.",
    "lopt": "Meta-train and evaluate learned optimizers.",
    "reproduce": "Run the paper's experiments, and others on networks never seen.",
}


_tyro = partial(tyro.cli, config=(tyro.conf.OmitArgPrefixes,), registry=REGISTRY)


def run_command(words: list[str]) -> int:
    """Run `unf` with these words; returns the exit code."""
    if words == ["--version"]:
        print(f"unf {__version__}")
        return 0
    own = words[:2] == ["zoo", "build"] and ":" in "".join(words[2:3])
    lengths = [n for n in (3, 2, 1) if " ".join(words[:n]) in COMMANDS or (own and n == 3)]
    if not lengths:
        _tyro(_family(()), prog="unf", description=_FAMILIES[""], args=words or ["--help"])  # ends
    name = " ".join(words[: lengths[0]])
    try:
        kind = _zoos.build_with(words[2]) if own else COMMANDS[name]
        command = understand(name, words[lengths[0] :], kind)
        processes = getattr(command, "processes", None)
        if processes is None or not processes.several:
            return _run(command, name, kind)
        if CHILD not in os.environ:
            return supervise(processes, words)
        return run_child(processes, partial(_run, command, name, kind))
    except CommandError as error:
        say(f"unf {name}: {error}")
        return 1


def understand(name: str, words: list[str], kind: Any = None) -> Command:
    """The command with its options; ends the program if they are wrong."""
    kind, given = kind or COMMANDS[name], {}
    for word, following in pairwise([*words, ""]):
        flag, _, value = word.partition("=")
        given[flag.removeprefix("--").replace("-", "_")] = value or following
    file = Path(given["config"]) if "config" in given else None
    stored = read_configuration(file, name, kind) if file else {}
    try:
        if {"--help", "-h"} & {*words}:  # with the defaults that follow from other options
            return _parse(name, words, kind, stored, kind.presets(stored | given))  # ends
        command = _parse(name, words, kind, stored, {})
        presets = kind.presets(vars(command))
        for group, before in kind.presets(stored).items():
            if presets.get(group) != before:  # then what came with the file's preset goes
                came = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(before).items()}
                stored = {k: v for k, v in stored.items() if k not in came or came[k] != v}
        return _parse(name, words, kind, stored, presets) if presets else command
    except SystemExit as end:
        if file and end.code:
            say(f"unf {name}: these options include those in {file}")
        raise


def _parse(
    name: str, words: list[str], kind: Any, stored: dict[str, Any], values: dict[str, Any]
) -> Command:
    """Let tyro read a command, with options of a file and values of groups as defaults."""
    bare = get_origin(kind) or kind
    hints = get_type_hints(bare, include_extras=True)
    options, defaults = dict(stored), object.__new__(bare)  # which is not checked, unlike kind()
    for field in dataclasses.fields(bare):
        value: Any = values.get(field.name, field.default)
        hint: Any = hints[field.name]
        hint, *markers = get_args(hint) or (hint,)
        if field.name in options and tyro.conf.Positional in markers:  # which has no flag
            found = options.pop(field.name)
            value = tuple(map(get_args(hint)[0], found)) if isinstance(found, list) else hint(found)
        value = tyro.MISSING_NONPROP if value is dataclasses.MISSING else value
        object.__setattr__(defaults, field.name, value)
    words = [*as_words(options), *words]
    return _tyro(
        kind, prog=f"unf {name}", description=_describe(kind), args=words, default=defaults
    )


def _family(first: tuple[str, ...]) -> Any:
    """The type of all commands that begin with these words."""
    names = [name.split() for name in COMMANDS]
    members = []
    for word in dict.fromkeys(n[len(first)] for n in names if n[: len(first)] == [*first]):
        name = " ".join((*first, word))
        kind = COMMANDS.get(name) or _family((*first, word))
        about = _FAMILIES.get(name) or _describe(kind).partition("\n")[0]
        members.append(Annotated[kind, tyro.conf.subcommand(word, description=about)])
    return Union[tuple(members)]  # noqa: UP007


def _describe(kind: Any) -> str:
    """The docstring of a command, after that of its recipe if it has one."""
    kinds = (*get_args(kind), get_origin(kind) or kind)
    return "\n\n".join(inspect.getdoc(kind) or "" for kind in kinds)


def _run(command: Command, name: str, kind: Any) -> int:
    """Run a command and write its configuration; errors of ours become messages."""
    try:
        with recorded(command, name) if is_first() else nullcontext():
            return command.run() or 0
    except (CommandError, OSError, ValueError) as error:
        if isinstance(error, ValueError) and not _is_ours(error):
            raise
        say(f"unf {name}: {with_flags(str(error), options_of(kind))}")
        return 1
    except KeyboardInterrupt:
        kept = "; finished work is kept: go on with --resume" if hasattr(command, "resume") else ""
        say(f"\nunf {name}: stopped{kept}")
        return INTERRUPTED


def _is_ours(error: Exception) -> bool:
    """Whether this package raised an error, so that its message is all that people need."""
    *_, last = traceback.extract_tb(error.__traceback__)
    return last.filename.startswith(str(Path(__file__).parents[2]))
