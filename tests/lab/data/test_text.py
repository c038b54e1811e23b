"""Texts as bytes and as subwords."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.lab.data.official_files import write_lm1b
from unf.lab.data import DataError, MissingDataError, load_text
from unf.lab.data._text import encode, train_tokenizer

TRAIN = "The cat sat .\n\nDas Ähre 'll — 猫 \t  two  spaces\u2028\nThe cat sat on the mat ."
HELDOUT = "A dog barked .\nÜber 犬 !"


@pytest.mark.parametrize("folder", ["lm1b_sample", "lm1b"])
def test_bytes(tmp_path, folder, monkeypatch):
    write_lm1b(tmp_path / folder, f"{TRAIN}\n".encode(), f"{HELDOUT}\n".encode())
    text = load_text("lm1b", tmp_path)
    assert text.train.dtype == np.uint8 and text.train.ndim == 1 and text.vocabulary == 256
    assert text.train.tobytes().decode() == TRAIN
    monkeypatch.setenv("UNF_DATA", str(tmp_path))
    assert load_text("lm1b").heldout.tobytes().decode() == HELDOUT


def test_the_extracted_benchmark(tmp_path):
    top = tmp_path / "1-billion-word-language-modeling-benchmark-r13output"
    for file, content in {
        "training-monolingual.tokenized.shuffled/news.en-00001-of-00100": "one\nmore\n",
        "heldout-monolingual.tokenized.shuffled/news.en.heldout-00000-of-00050": "held out\n",
    }.items():
        (top / file).parent.mkdir(parents=True)
        (top / file).write_text(content)
    text = load_text("lm1b", tmp_path)
    assert text.train.tobytes() == b"one\nmore" and text.heldout.tobytes() == b"held out"


@pytest.mark.parametrize("unit", ["bytes", "subwords"])
def test_python_docs_need_no_file(unit):
    from pydoc_data.topics import topics

    text = load_text("python-docs", unit=unit, vocabulary=300)
    assert len(text.train) > 6 * len(text.heldout) > 1000
    if unit == "bytes":
        first, second, *_ = sorted(topics)
        assert text.heldout.tobytes().decode().startswith(topics[first].strip("\n"))
        assert text.train.tobytes().decode().startswith(topics[second].strip("\n"))
    assert text.vocabulary == (256 if unit == "bytes" else 300)


@pytest.mark.parametrize("size", [257, 280, 5000])
def test_subwords_give_the_text_back(tmp_path, size):
    write_lm1b(tmp_path / "lm1b", TRAIN.encode(), HELDOUT.encode())
    text = load_text("lm1b", tmp_path, unit="subwords", vocabulary=size)
    tokenizer = train_tokenizer(TRAIN, size)
    assert tokenizer.decode(text.train.tolist()) == TRAIN
    assert tokenizer.decode(text.heldout.tolist()) == HELDOUT
    assert text.train.dtype == np.uint16 and text.vocabulary <= size
    assert len(text.train) < len(TRAIN.encode()) and max(text.train) < text.vocabulary


def test_large_vocabularies_need_more_bits():
    class Large:
        def get_vocab_size(self):
            return 70_000

        def encode_batch_fast(self, lines):
            class Encoded:
                ids = (69_999,)

            return [Encoded] * len(lines)

    stream = encode(Large(), "a\nb")
    assert stream.dtype == np.int32 and stream.tolist() == [69_999, 69_999]


@pytest.mark.nightly
def test_subwords_are_the_same_in_another_process():
    script = (
        "import hashlib; from unf.lab.data import load_text; "
        "text = load_text('python-docs', unit='subwords', vocabulary=500); "
        "print(hashlib.sha256(text.train.tobytes()).hexdigest())"
    )
    here = load_text("python-docs", unit="subwords", vocabulary=500)
    environment = {**os.environ, "PYTHONHASHSEED": "7", "RAYON_NUM_THREADS": "1"}
    there = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert there.stdout.strip() == hashlib.sha256(here.train.tobytes()).hexdigest()


@pytest.mark.parametrize(
    ("module", "unit", "message"),
    [
        ("tokenizers", "subwords", r"pip install 'universal-neural-functionals\[lab\]'"),
        ("pydoc_data.topics", "bytes", "this Python has no help topics"),
    ],
)
def test_missing_packages(monkeypatch, module, unit, message):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDataError, match=message):
        load_text("python-docs", unit=unit)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"train": b""}, "train.txt: is empty; expected one sentence per line"),
        ({"heldout": b"\n\n"}, "heldout.txt: is empty"),
        ({"train": b"good\nb\xff\xfed\n"}, "train.txt: not UTF-8"),
        ({"heldout": None}, "heldout.txt: cannot be read .*No such file"),
    ],
)
def test_damaged_files(tmp_path, contents, message):
    write_lm1b(tmp_path / "lm1b", **contents)
    with pytest.raises(DataError, match=message):
        load_text("lm1b", tmp_path)


def test_mistakes(tmp_path):
    with pytest.raises(DataError, match=r"unknown text 'wiki'; expected one of .*'lm1b'"):
        load_text("wiki", tmp_path)
    with pytest.raises(DataError, match="unknown unit 'words'; expected one of"):
        load_text("python-docs", unit="words")
    with pytest.raises(DataError, match="vocabulary is 256; expected more than 256"):
        load_text("python-docs", unit="subwords", vocabulary=256)
    with pytest.raises(MissingDataError, match=r"lm1b needs the file lm1b_bytes.npz .*no folder"):
        load_text("lm1b")
    with pytest.raises(MissingDataError, match=r"expected the file lm1b_bpe4096.npz"):
        load_text("lm1b", tmp_path, unit="subwords")
