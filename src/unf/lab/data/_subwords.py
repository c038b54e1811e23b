"""Text as subwords: pairs of bytes, and of what they make, that are often side by side."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Integer

from ._types import DataError, MissingDataError, Text

BYTES = 256
_LINES_AT_ONCE = 10_000


def subwords(train: str, heldout: str, vocabulary: int) -> Text:
    """Both texts as subwords that were chosen on the first.

    Args:
        train: chooses the subwords, by byte-pair encoding; the same text gives the same ones.
        heldout: is only written in them.
        vocabulary: how many there may be, with the 256 bytes; a short text has fewer.

    Raises:
        DataError: if there are too few, or the package that does this is not installed.
    """
    tokenizer = train_tokenizer(train, vocabulary)
    size = tokenizer.get_vocab_size()
    return Text(encode(tokenizer, train), encode(tokenizer, heldout), size)


def train_tokenizer(text: str, vocabulary: int) -> Any:
    """A tokenizer from the package `tokenizers`; any text can be written in it and read back."""
    if vocabulary <= BYTES:
        raise DataError(
            f"a vocabulary of {vocabulary} subwords; expected more than {BYTES}, all bytes are in "
            "it; or use the unit 'bytes'"
        )
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    except ImportError as error:
        remedy = "pip install 'universal-neural-functionals[text]'"
        raise MissingDataError(
            f"subwords need the package tokenizers, not installed; run: {remedy}, or use the unit "
            "'bytes'"
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
    tokenizer.train_from_iterator(_lines(text), trainer=trainer)
    return tokenizer


def encode(tokenizer: Any, text: str) -> Integer[np.ndarray, " length"]:
    """A text as one stream of subwords."""
    small = tokenizer.get_vocab_size() <= np.iinfo(np.uint16).max + 1
    lines, parts = list(_lines(text)), []
    for start in range(0, len(lines), _LINES_AT_ONCE):
        encoded = tokenizer.encode_batch_fast(lines[start : start + _LINES_AT_ONCE])
        numbers = [number for line in encoded for number in line.ids]
        parts.append(np.array(numbers, np.uint16 if small else np.int32))
    return np.concatenate(parts)


def _lines(text: str) -> Iterator[str]:
    """Lines with their ends, which together are the text."""
    *lines, last = text.split("\n")
    yield from (f"{line}\n" for line in lines)
    yield last
