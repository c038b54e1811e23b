"""Zoos of networks in files: every format and every way to name a file gives the same zoo."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.flax import save_file as save_flax
from safetensors.numpy import save_file

from tests.zoo.test_arrays import assert_same
from unf.lab.zoos import _files
from unf.spec import WeightSpace
from unf.zoo import Zoo, ZooError

MODELS = 4
RNG = np.random.default_rng(0)
WEIGHTS = [{"net": {"w": RNG.normal(size=(3, 4)), "v": RNG.normal(size=4)}} for _ in range(MODELS)]
WEIGHTS = [jax.tree.map(lambda x: x.astype(np.float32), tree) for tree in WEIGHTS]
SPACE = WeightSpace.from_spec({"net": {"w": "[in] hidden", "v": "hidden"}}, WEIGHTS[0])
ACCURACY, AGAIN, LOSS = np.linspace(0, 1, 3 * MODELS).reshape(3, MODELS).round(3)
TABLE = "file,accuracy,optimizer,accuracy_again,loss,rate\n" + "".join(
    f"{{}},{ACCURACY[i]},{'adam' if i % 2 else 'sgd'},{AGAIN[i]},{LOSS[i]},{0.1 * i}\n"
    for i in range(MODELS)
)
EXPECTED = Zoo.from_arrays(
    WEIGHTS,
    {"accuracy": np.stack([ACCURACY, AGAIN], axis=1), "loss": LOSS},
    SPACE,
    settings={"optimizer": ["sgd", "adam"] * 2, "rate": 0.1 * np.arange(MODELS)},
)
SETTINGS = ("optimizer", "rate")


def flat(tree, between="/"):
    return {f"net{between}{name}": array for name, array in tree["net"].items()}


def write(folder, save, names):
    for name, tree in zip(names, WEIGHTS, strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        save(folder / name, tree)


def save_npz(path, tree):
    np.savez(path, **flat(tree))


def save_safetensors(path, tree):
    save_file(flat(tree, "."), path)


def read(tmp_path, names, **options):
    (tmp_path / "scores.csv").write_text(TABLE.format(*names))
    options = {"settings": SETTINGS, "show_progress": False, **options}
    return _files.read_zoo(tmp_path / "nets", tmp_path / "scores.csv", SPACE, **options)


@pytest.mark.parametrize("rows", ["{}.{}", "{}", "./{}.{}"])
@pytest.mark.parametrize(("suffix", "save"), [("npz", save_npz), ("safetensors", save_safetensors)])
def test_files_make_the_zoo_of_their_arrays(tmp_path, suffix, save, rows):
    names = ["a", "b.v2", "sub/c", "sub/deeper/d"]
    write(tmp_path / "nets", save, [f"{name}.{suffix}" for name in names])
    assert_same(read(tmp_path, [rows.format(name, suffix) for name in names]), EXPECTED)


def test_files_of_several_formats_and_bare_names(tmp_path):
    names = ["a.npz", "sub/b.npz", "sub/c.npz", "d.npz"]
    write(tmp_path / "nets", save_npz, names)
    save_safetensors(tmp_path / "nets" / "d.safetensors", WEIGHTS[0])
    assert_same(read(tmp_path, ["a", "b", "c.npz", "d.npz"]), EXPECTED)


def test_bfloat16_is_read(tmp_path):
    def save(path, tree):
        save_flax({k: jnp.asarray(x, jnp.bfloat16) for k, x in flat(tree).items()}, str(path))

    names = [f"{i}.safetensors" for i in range(MODELS)]
    write(tmp_path / "nets", save, names)
    rounded = jnp.asarray(WEIGHTS[2]["net"]["w"], jnp.bfloat16)
    np.testing.assert_array_equal(read(tmp_path, names).weights()["net"]["w"][2], rounded)


def test_settings_are_numbers_or_words(tmp_path):
    write(tmp_path / "nets", save_npz, [f"{i}.npz" for i in range(MODELS)])
    (tmp_path / "scores.csv").write_text(
        '\ufefffile,score,rate,name\n0, 1,0.5,x\n1,2,,\n2,3,nan,3\n\n3,4,1e-3,"a,b"\n',
        encoding="utf-8",
    )
    zoo = _files.read_zoo(
        tmp_path / "nets", tmp_path / "scores.csv", SPACE, settings=("rate", "name"),
        show_progress=False,
    )  # fmt: skip
    np.testing.assert_array_equal(zoo.settings["rate"], [0.5, np.nan, np.nan, 1e-3])
    assert zoo.settings["name"].tolist() == ["x", "", "3", "a,b"]
    assert zoo.scores["score"].ravel().tolist() == [1, 2, 3, 4]


def test_other_arrays_are_ignored_only_where_they_may_be(tmp_path):
    names = [f"{i}.npz" for i in range(MODELS)]
    write(tmp_path / "nets", save_npz, names)
    extra = {"steps": np.array(3), **flat(WEIGHTS[1])}
    np.savez(tmp_path / "nets" / "1.npz", **extra)
    assert_same(read(tmp_path, names), EXPECTED)
    np.savez(tmp_path / "nets" / "1.npz", mean=np.ones(4), **extra)
    with pytest.raises(ZooError, match=r"1\.npz: an array 'mean' that the network does not have"):
        read(tmp_path, names)
    assert_same(read(tmp_path, names, others_allowed=True), EXPECTED)


def test_files_without_a_row_are_counted(tmp_path, capsys):
    names = [f"{i}.npz" for i in range(MODELS)]
    write(tmp_path / "nets", save_npz, names)
    save_npz(tmp_path / "nets" / "more.npz", WEIGHTS[0])
    read(tmp_path, names)
    assert "1 files in" in (printed := capsys.readouterr().err) and "left out" in printed


def damaged(folder, i, change):
    arrays = flat(WEIGHTS[i])
    change(arrays)
    np.savez(folder / f"{i}.npz", **arrays)


def test_everything_that_does_not_fit_is_named_at_once(tmp_path):
    names = [f"{i}.npz" for i in range(MODELS)]
    folder = tmp_path / "nets"
    write(folder, save_npz, names)
    damaged(folder, 0, lambda x: x.update({"net/w": np.ones((3, 5)), "net/v": np.arange(4)}))
    damaged(folder, 1, lambda x: x.pop("net/v"))
    (folder / "2.npz").write_bytes((folder / "2.npz").read_bytes()[:100])
    np.savez(folder / "3.npz", **{"net/w": np.array([None]), "net/v": np.ones(4)})
    text = TABLE.format(*names) + "gone,1,adam,1,nan,1\n0.npz,1,adam,many,1,1\n"
    (tmp_path / "scores.csv").write_text(text)
    with pytest.raises(ZooError, match=r"^8 problems:\n") as found:
        _files.read_zoo(folder, tmp_path / "scores.csv", SPACE, settings=SETTINGS)
    message = str(found.value)
    for problem in (
        "accuracy_again of 0.npz is 'many', not a finite number",
        "loss of gone is 'nan', not a finite number",
        f"no file 'gone' in {folder}",
        "two rows, '0.npz' and '0.npz', are of one file",
        "0.npz: 'net/v' is int64, expected floating-point numbers; "
        "'net/w' has shape (3, 5), expected (3, 4)",
        "1.npz: no array 'net/v'",
        "2.npz: not a complete npz file of arrays",
        "3.npz: not a complete npz file of arrays (Object arrays cannot be loaded",
    ):
        assert problem in message


def test_the_first_problems_are_shown_and_the_others_counted(tmp_path):
    (tmp_path / "nets").mkdir()
    lines = "".join(f"net{i},1\n" for i in range(30))
    (tmp_path / "scores.csv").write_text(f"file,score\n{lines}")
    with pytest.raises(ZooError, match=r"(?s)^30 problems:.*'net19'.*\n  and 10 more$") as found:
        _files.read_zoo(tmp_path / "nets", tmp_path / "scores.csv", SPACE)
    assert "'net20'" not in str(found.value)


def test_names_that_several_files_have(tmp_path):
    names = ["a.npz", "x/b.npz", "y/b.npz", "c.npz"]
    write(tmp_path / "nets", save_npz, names)
    with pytest.raises(ZooError, match=r"'b' may be x/b\.npz and y/b\.npz; write the folder"):
        read(tmp_path, ["a", "b", "y/b", "c"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read as CSV with a header"),
        ("file\na\n", r"expected a column of file names.*got the header \['file'\] and 1 lines"),
        ("file,score\n", "and 0 lines"),
        ("file,x,x\na,1,2\n", "each with a name of its own"),
        ("file,x\na,1,2\n", "row 2 has 3 cells, the header 2"),
        (
            "file,x,optimizer\na,b,adam\n",
            "column 'x' holds no numbers .*settings=",
        ),
        ("file,optimizer\na,adam\n", "all columns are settings; expected scores too"),
        ("file,x\na,1\n", r"no column 'optimizer' for a setting; it has \['x'\]"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, text, message):
    (tmp_path / "scores.csv").write_text(text)
    with pytest.raises(ZooError, match=message):
        _files.read_zoo(tmp_path, tmp_path / "scores.csv", SPACE, settings=("optimizer",))


def test_missing_folders_and_tables(tmp_path):
    with pytest.raises(ZooError, match=r"scores\.csv: cannot be read .*No such file"):
        _files.read_zoo(tmp_path, tmp_path / "scores.csv", SPACE)
    (tmp_path / "scores.csv").write_text("file,score\na,1\n")
    with pytest.raises(ZooError, match="nowhere: no such folder"):
        _files.read_zoo(tmp_path / "nowhere", tmp_path / "scores.csv", SPACE)


def test_files_of_pytorch_need_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "a.pt").write_bytes(b"")
    (tmp_path / "scores.csv").write_text("file,score\na,1\n")
    message = r"a\.pt: reading it needs PyTorch; run: pip install .*\[torch\]"
    with pytest.raises(ZooError, match=message):
        _files.read_zoo(tmp_path, tmp_path / "scores.csv", SPACE)
