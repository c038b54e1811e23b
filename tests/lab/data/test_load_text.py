"""Texts as bytes and as subwords."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.lab.data.official_files import lm1b_archive
from unf.lab.data import DataError, MissingDataError, load_text
from unf.lab.data._subwords import encode, train_tokenizer

TRAIN = "The cat sat .\n\nDas Ähre 'll — 猫 \t  two  spaces\nThe cat sat on the mat ."
HELDOUT = "A dog barked .\nÜber 犬 !"
ARCHIVE = "1-billion-word-language-modeling-benchmark-r13output.tar.gz"
TRAIN_FILE, HELDOUT_FILE = f"{TRAIN}\n".encode(), f"{HELDOUT}\n".encode()


def write(folder, train=TRAIN_FILE, heldout=HELDOUT_FILE):
    folder.mkdir()
    for name, content in (("train.txt", train), ("heldout.txt", heldout)):
        if content is not None:
            (folder / name).write_bytes(content)


@pytest.mark.parametrize("folder", ["lm1b_sample", "lm1b"])
def test_bytes(tmp_path, folder):
    write(tmp_path / folder)
    text = load_text("lm1b", tmp_path)
    assert text.train.dtype == np.uint8 and text.train.ndim == 1 and text.vocabulary == 256
    assert text.train.tobytes().decode() == TRAIN
    assert text.heldout.tobytes().decode() == HELDOUT


def test_folder_from_the_environment(tmp_path, monkeypatch):
    write(tmp_path / "lm1b")
    monkeypatch.setenv("UNF_DATA", str(tmp_path))
    assert load_text("lm1b").heldout.tobytes().decode() == HELDOUT


def test_shards_of_the_archive(tmp_path):
    train = {3: b"three\n", 1: b"one\nmore\n", 2: b"two\n"}
    content = lm1b_archive(train, {1: b"not this\n", 0: b"held out\n"})
    (tmp_path / ARCHIVE).write_bytes(content)
    text = load_text("lm1b", tmp_path)
    assert text.train.tobytes() == b"one\nmore" and text.heldout.tobytes() == b"held out"
    text = load_text("lm1b", tmp_path, shards=3)
    assert text.train.tobytes() == b"one\nmore\ntwo\nthree"
    with pytest.raises(DataError, match=r"no member training-.*news.en-00004-of-00100"):
        load_text("lm1b", tmp_path, shards=4)
    with pytest.raises(DataError, match="shards is 100; expected 1 to 99"):
        load_text("lm1b", tmp_path, shards=100)
    with pytest.raises(DataError, match="shards is 0; expected at least 1"):
        load_text("lm1b", tmp_path, shards=0)


def test_several_shards_need_the_archive(tmp_path):
    write(tmp_path / "lm1b")
    with pytest.raises(MissingDataError, match=rf"no official files \({ARCHIVE}\) \(for lm1b\) in"):
        load_text("lm1b", tmp_path, shards=2)


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
    write(tmp_path / "lm1b")
    text = load_text("lm1b", tmp_path, unit="subwords", vocabulary=size)
    tokenizer = train_tokenizer(TRAIN, size)
    assert tokenizer.decode(text.train.tolist()) == TRAIN
    assert tokenizer.decode(text.heldout.tolist()) == HELDOUT
    assert text.train.dtype == np.uint16 and text.vocabulary <= size
    assert len(text.train) < len(TRAIN.encode()) and max(text.train) < text.vocabulary
    np.testing.assert_array_equal(encode(tokenizer, HELDOUT), text.heldout)


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


def test_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(
        MissingDataError, match=r"pip install 'universal-neural-functionals\[text\]'"
    ):
        load_text("python-docs", unit="subwords")


def test_python_without_documentation(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(MissingDataError, match="this Python comes without its help topics"):
        load_text("python-docs")


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"train": b""}, "train.txt: is empty; expected a sentence a line"),
        ({"heldout": b"\n\n"}, "heldout.txt: is empty"),
        ({"train": b"good\nb\xff\xfed\n"}, "train.txt: not UTF-8"),
        ({"heldout": "Ä".encode()[:1]}, "heldout.txt: not UTF-8"),
        ({"heldout": None}, "no file heldout.txt in .*lm1b: put it beside train.txt"),
    ],
)
def test_damaged_files(tmp_path, contents, message):
    write(tmp_path / "lm1b", **contents)
    with pytest.raises(DataError, match=message):
        load_text("lm1b", tmp_path)


def test_a_folder_in_place_of_a_file(tmp_path):
    (tmp_path / "lm1b" / "train.txt").mkdir(parents=True)
    (tmp_path / "lm1b" / "heldout.txt").touch()
    with pytest.raises(DataError, match=r"train.txt: cannot be read"):
        load_text("lm1b", tmp_path)


def test_damaged_archives(tmp_path):
    (tmp_path / ARCHIVE).write_bytes(lm1b_archive({1: b"a"}, {0: b"\xff"}))
    with pytest.raises(DataError, match=r"news.en.heldout-00000-of-00050: not UTF-8"):
        load_text("lm1b", tmp_path)
    (tmp_path / ARCHIVE).write_bytes(lm1b_archive({1: b""}, {0: b"a"}))
    with pytest.raises(DataError, match=r"news.en-00001-of-00100 and following: is empty"):
        load_text("lm1b", tmp_path)


def test_mistakes(tmp_path):
    with pytest.raises(DataError, match=r"unknown text 'wiki'; expected one of .*'lm1b'"):
        load_text("wiki", tmp_path)
    with pytest.raises(DataError, match="unknown unit 'words'; expected one of"):
        load_text("python-docs", unit="words")
    with pytest.raises(DataError, match="a vocabulary of 256 subwords; expected more than 256"):
        load_text("python-docs", unit="subwords", vocabulary=256)
    with pytest.raises(
        MissingDataError, match=r"lm1b is in the file lm1b_bytes.npz or .*, and no folder"
    ):
        load_text("lm1b")
    with pytest.raises(MissingDataError, match=rf"no file lm1b_bpe4096.npz .*{ARCHIVE}.*or use"):
        load_text("lm1b", tmp_path, unit="subwords")
