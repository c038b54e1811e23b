"""Text as one long stream of bytes or subwords."""

import importlib
import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Integer

from ._files import (
    DataError,
    Files,
    Folder,
    MissingDataError,
    data_folder,
    find,
    read_bytes,
    read_prepared,
)

TEXTS = ("lm1b", "python-docs")
"""Names of texts; python-docs need no file."""
UNITS = ("bytes", "subwords")
"""What a text may be a stream of."""
_BENCHMARK = "1-billion-word-language-modeling-benchmark-r13output"
_SHARD = f"{_BENCHMARK}/training-monolingual.tokenized.shuffled/news.en-00001-of-00100"
_HELDOUT_SHARD = "heldout-monolingual.tokenized.shuffled/news.en.heldout-00000-of-00050"


class Text(NamedTuple):
    """Text as two streams of integers below `vocabulary`: one for training, one held out."""

    train: Integer[np.ndarray, " train"]
    heldout: Integer[np.ndarray, " heldout"]
    vocabulary: int


def load_text(
    name: str, folder: Folder = None, *, unit: str = "bytes", vocabulary: int = 4096
) -> Text:
    """Read a text.

    >>> text = load_text("python-docs")
    >>> text.vocabulary, text.train.dtype
    (256, dtype('uint8'))

    Args:
        name: "lm1b" or "python-docs".
        folder: where the prepared file or the official files are; by default the folder that the
            variable UNF_DATA names.
        unit: `bytes`, of the sentences joined by newlines; or `subwords`, chosen on the
            training text by byte-pair encoding.
        vocabulary: how many subwords there may be, including the 256 bytes.

    Returns:
        `train` and `heldout`, two streams of integers below `vocabulary`.

    Raises:
        DataError: if there is no such text, or its files are missing or damaged.
    """
    return read_text(find_text(name, folder, unit, vocabulary), unit, vocabulary)


def find_text(
    name: str, folder: Folder, unit: str, vocabulary: int, *, prepared: bool = True
) -> Path | None:
    """The path that a text is read from; None for python-docs, unless they were prepared."""
    file, where = prepared_name(name, unit, vocabulary), data_folder(folder)
    if name == "lm1b":
        paths = ("lm1b_sample/train.txt", "lm1b/train.txt", _SHARD)
        words = f"train.txt and heldout.txt in lm1b or lm1b_sample, or the folder {_BENCHMARK}"
        return find(name, folder, Files(file, paths, words, "python-docs"), prepared=prepared)
    return where / file if prepared and where and (where / file).is_file() else None


def prepared_name(name: str, unit: str, vocabulary: int) -> str:
    """The name of a prepared file.

    >>> prepared_name("lm1b", "bytes", 4096), prepared_name("lm1b", "subwords", 4096)
    ('lm1b_bytes.npz', 'lm1b_bpe4096.npz')
    """
    if name not in TEXTS:
        raise DataError(f"unknown text {name!r}; expected one of {list(TEXTS)}")
    if unit not in UNITS:
        raise DataError(f"unknown unit {unit!r}; expected one of {list(UNITS)}")
    return f"{name.replace('-', '_')}_{'bytes' if unit == 'bytes' else f'bpe{vocabulary}'}.npz"


def read_text(path: Path | None, unit: str, vocabulary: int) -> Text:
    """The text at a path that `find_text` returned."""
    if path is not None and path.suffix == ".npz":
        return _read_arrays(path)
    texts = _python_docs() if path is None else _sentences(path)
    if unit == "subwords":
        tokenizer = train_tokenizer(texts[0], vocabulary)
        train, heldout = (encode(tokenizer, text) for text in texts)
        return Text(train, heldout, tokenizer.get_vocab_size())
    train, heldout = (np.frombuffer(text.encode(), np.uint8).copy() for text in texts)
    return Text(train, heldout, 256)


def _read_arrays(path: Path) -> Text:
    *streams, vocabulary = read_prepared(path, Text._fields)
    if vocabulary.shape != () or vocabulary.dtype.kind not in "ui":
        raise DataError(f"{path}: vocabulary is {vocabulary.dtype}{list(vocabulary.shape)}")
    for part, x in zip(Text._fields, streams, strict=False):
        valid = x.dtype.kind in "ui" and x.ndim == 1 and len(x) > 0
        if not valid or x.min() < 0 or x.max() >= vocabulary:
            raise DataError(
                f"{path}: {part} is {x.dtype}{list(x.shape)}; expected integers [n] from 0 to "
                f"{vocabulary - 1}; make it again with unf data prepare"
            )
    return Text(streams[0], streams[1], int(vocabulary))


def _sentences(path: Path) -> list[str]:
    """Training and held-out sentences of LM1B, one per line."""
    plain = path.name == "train.txt"
    heldout = path.with_name("heldout.txt") if plain else path.parents[1] / _HELDOUT_SHARD
    texts = []
    for file in (path, heldout):
        try:
            texts.append(read_bytes(file).decode().replace("\r\n", "\n").strip("\n"))
        except UnicodeDecodeError as error:
            raise DataError(f"{file}: not UTF-8 ({error}); copy the official file again") from error
        if not texts[-1]:
            raise DataError(f"{file}: is empty; expected one sentence per line")
    return texts


def _python_docs() -> list[str]:
    """The help topics that are part of Python, sorted by name; every tenth is held out."""
    try:
        topics = importlib.import_module("pydoc_data.topics").topics
    except ImportError as error:
        raise MissingDataError(
            "this Python has no help topics (the module pydoc_data.topics); "
            "install a complete Python, or use the dataset 'lm1b'"
        ) from error
    texts = [topics[name].strip("\n") for name in sorted(topics)]
    return ["\n".join(text for i, text in enumerate(texts) if i % 10), "\n".join(texts[::10])]


def train_tokenizer(text: str, vocabulary: int) -> Any:
    """A byte-level BPE tokenizer of the package `tokenizers`; the same text gives the same one."""
    if vocabulary <= 256:
        raise DataError(f"vocabulary is {vocabulary}; expected more than 256, the number of bytes")
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    except ImportError as error:
        raise MissingDataError(
            "subwords need the package tokenizers, which is not installed; run: "
            "pip install 'universal-neural-functionals[lab]', or use the unit 'bytes'"
        ) from error
    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer: Any = trainers.BpeTrainer(  # type: ignore[call-arg]
        vocab_size=vocabulary,
        min_frequency=2,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(io.StringIO(text), trainer=trainer)
    return tokenizer


def encode(tokenizer: Any, text: str) -> Integer[np.ndarray, " length"]:
    """A text as one stream of subwords."""
    dtype = np.uint16 if tokenizer.get_vocab_size() <= 2**16 else np.int32
    lines, parts = list(io.StringIO(text)), []
    for first in range(0, len(lines), 10_000):
        encoded = tokenizer.encode_batch_fast(lines[first : first + 10_000])
        parts.append(np.array([number for line in encoded for number in line.ids], dtype))
    return np.concatenate(parts)
