"""Nothing that is loaded can run code: what could do so is not used, but in the places listed."""

import ast
from pathlib import Path

import pytest

import unf

SOURCE = Path(unf.__file__).parent
MODULES = {
    *("pickle", "_pickle", "cPickle", "pickletools", "marshal", "shelve", "dbm", "dill"),
    *("cloudpickle", "joblib", "jsonpickle", "yaml", "code", "codeop", "runpy", "imp", "torch"),
}
"""Modules that read what runs as it is read, or run text."""
NAMES = {"eval", "exec", "compile", "__import__"}
"""Of Python itself."""
METHODS = {
    *("exec_module", "load_module", "read_pickle", "tree_deserialise_leaves", "extractall"),
    *("unpack_archive", "fromfile", "deserialize_and_load"),
}
"""Attributes by which the same is reached, or which trust the paths and sizes in a file."""

ALLOWED = {
    "cli/_load.py": {
        "exec_module": "`unf spec file.py:function` runs the user's own function, and says so",
    },
}
"""By file, what is used nevertheless, and why."""


def suspects(text):
    """What a program uses of all this."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from {alias.name.split(".")[0] for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from {(node.module or "").split(".")[0]} & MODULES
            yield from {alias.name for alias in node.names} & METHODS
        elif isinstance(node, ast.Name):
            yield from {node.id} & NAMES
        elif isinstance(node, ast.Attribute):
            yield from {node.attr} & METHODS
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield from _of_call(node.func, {k.arg: k.value for k in node.keywords})


def _of_call(function, options):
    if function.attr == "load" and isinstance(function.value, ast.Name):
        owner = function.value.id
        allow = options.get("allow_pickle")
        safe = isinstance(allow, ast.Constant) and allow.value is False
        if owner in ("np", "numpy", "jnp") and not safe:
            yield f"{owner}.load"


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_what_is_loaded_runs_no_code(path):
    allowed = ALLOWED.get(path.relative_to(SOURCE).as_posix(), {})
    assert set(suspects(path.read_text())) == set(allowed)


def test_only_what_is_there_is_allowed():
    assert set(ALLOWED) <= {path.relative_to(SOURCE).as_posix() for path in FILES}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import pickle", {"pickle"}),
        ("from pickle import loads", {"pickle"}),
        ("import os, dill.source as d", {"dill"}),
        ("def f():\n    import yaml", {"yaml"}),
        ("eval('1')", {"eval"}),
        ("f = exec", {"exec"}),
        ("np.load(f)", {"np.load"}),
        ("np.load(f, allow_pickle=True)", {"np.load"}),
        ("np.load(f, allow_pickle=flag)", {"np.load"}),
        ("np.load(f, allow_pickle=False)", set()),
        ("spec.loader.exec_module(m)", {"exec_module"}),
        ("archive.extractall()", {"extractall"}),
        ("json.loads(text); evaluate(x); model.eval(); re.compile('x')", set()),
    ],
)
def test_the_search_finds_them(text, found):
    assert set(suspects(text)) == found
