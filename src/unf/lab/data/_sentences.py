"""Texts as strings: from files, from the official archive, or from Python's own documentation."""

import importlib
from collections.abc import Sequence
from pathlib import Path

from ._archive import read_members
from ._find import Official, read_file
from ._types import DataError, MissingDataError

_ARCHIVE = "1-billion-word-language-modeling-benchmark-r13output.tar.gz"
_SHARDS = 99  # the archive's training shards are 1 to 99; 0 became its held-out shards

LM1B = Official(
    paths=("lm1b_sample/train.txt", "lm1b/train.txt", _ARCHIVE),
    words=f"{_ARCHIVE}, or train.txt and heldout.txt in lm1b_sample or lm1b",
    instead="python-docs",
)
LM1B_ARCHIVE = LM1B._replace(paths=(_ARCHIVE,), words=_ARCHIVE)


def read_lm1b(path: Path, shards: int) -> tuple[str, str]:
    """Training and held-out sentences, one a line.

    Args:
        path: the archive, or a file train.txt beside a file heldout.txt.
        shards: how many training shards of the archive to read; of the held-out ones it is
            always the first, so that results can be compared.

    Raises:
        DataError: if a file is missing, empty, or not UTF-8.
    """
    if path.name == _ARCHIVE:
        return _from_archive(path, shards)
    heldout = path.with_name("heldout.txt")
    if not heldout.is_file():
        raise DataError(f"no file heldout.txt in {path.parent}: put it beside train.txt")
    train_text, heldout_text = (_decode([read_file(file)], str(file)) for file in (path, heldout))
    return train_text, heldout_text


def python_docs() -> tuple[str, str]:
    """The help topics that come with Python, by name; every tenth is held out."""
    try:
        topics = importlib.import_module("pydoc_data.topics").topics
    except ImportError as error:
        raise MissingDataError(
            "this Python comes without its help topics (the module pydoc_data.topics); "
            "install a complete Python, or use the dataset 'lm1b'"
        ) from error
    texts = [topics[name].strip("\n") for name in sorted(topics)]
    train = [text for i, text in enumerate(texts) if i % 10]
    return "\n".join(train), "\n".join(texts[::10])


def _from_archive(path: Path, shards: int) -> tuple[str, str]:
    if not 1 <= shards <= _SHARDS:
        raise DataError(f"shards is {shards}; expected 1 to {_SHARDS}")
    where = "{}-monolingual.tokenized.shuffled/"
    train = [where.format("training") + f"news.en-{i:05}-of-00100" for i in range(1, shards + 1)]
    heldout = where.format("heldout") + "news.en.heldout-00000-of-00050"
    members = read_members(path, [*train, heldout], to_end=False)
    return (
        _decode([members[name] for name in train], f"{path}: {train[0]} and following"),
        _decode([members[heldout]], f"{path}: {heldout}"),
    )


def _decode(parts: Sequence[bytes], name: str) -> str:
    """Sentences joined by newlines, without one at the end."""
    try:
        texts = [part.decode().replace("\r\n", "\n").strip("\n") for part in parts]
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: not UTF-8 ({error}); copy the official file again") from error
    if not all(texts):
        raise DataError(f"{name}: is empty; expected a sentence a line")
    return "\n".join(texts)
