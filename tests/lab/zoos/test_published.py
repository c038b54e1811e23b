"""Published zoos: files in their layouts, as we write them, are read as they are."""

import csv
import gzip

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
from unf.lab import _weights, predict
from unf.lab.cli import main
from unf.lab.predict._methods import problem_of
from unf.lab.zoos._published import known_about, read_published
from unf.zoo import Zoo, ZooError

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def without_torch(monkeypatch):
    """Files that end in .pth hold npz archives here; tests/torch reads those of PyTorch."""
    monkeypatch.setitem(_weights.READERS, ".pth", _weights._read_npz)


def siren(prefix, last, outputs=1):
    """A state dict of a SIREN with four hidden neurons, in PyTorch's orientation."""
    sizes = [(4, 2), (4, 4), (outputs, 4)]
    names = [f"{prefix}.0", f"{prefix}.1", last]
    state = {}
    for name, shape in zip(names, sizes, strict=True):
        state[f"{name}.weight"] = RNG.normal(size=shape).astype(np.float32) / 30
        state[f"{name}.bias"] = RNG.normal(size=shape[0]).astype(np.float32) / 30
    return state


def write(file, state):
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as stream:
        np.savez(stream, **state)


def test_sirens_of_dwsnets(tmp_path):
    states = {}
    for kind, count in (("training", 12), ("testing", 4)):
        for i in range(count):
            state = siren("seq", "seq.2")
            name = f"mnist_png_{kind}_{i % 10}_{i}"
            write(tmp_path / name / "checkpoints" / "model_final.pth", state)
            states[kind, i] = state
    zoo = read_published(tmp_path, "dws-siren", show_progress=False)
    assert zoo.models == 16 and zoo.settings["heldout"].sum() == 4
    weights = zoo.weights()
    for row in range(16):
        kind = "testing" if zoo.settings["heldout"][row] else "training"
        number = int(zoo.settings["image"][row]) % 10_000_000
        assert zoo.settings["label"][row] == number % 10
        expected = states[kind, number]["seq.1.weight"].T
        np.testing.assert_array_equal(weights["layer1"]["kernel"][row], expected)
    train, _, test = zoo.split((8, 2, 4))
    assert zoo.settings["heldout"][test].all() and not zoo.settings["heldout"][train].any()

    def fn(params, x):
        for i in range(3):
            layer = params[f"layer{i}"]
            x = x @ layer["kernel"] + layer["bias"][None]
            x = jnp.sin(30 * x) if i < 2 else x
        return x

    one = jax.tree.map(lambda x: jnp.asarray(x[0]), weights)
    unf.verify(fn, one, zoo.space, jnp.ones((5, 2), jnp.float32), key=jax.random.key(0))


def test_copies_of_an_image_stay_together(tmp_path):
    for copy in ("randinit_smaller", "randinit_smaller_aug1"):
        for i in range(30):
            write(tmp_path / f"{copy}_{i % 10}s" / f"net{i}.pth", siren("net", "net.2", 3))
    zoo = read_published(tmp_path, "nfn-siren", show_progress=False)
    assert zoo.models == 60 and "heldout" not in zoo.settings
    images = [set(zoo.settings["image"][rows]) for rows in zoo.split()]
    assert all(images) and not (images[0] & images[2] or images[0] & images[1])
    write(tmp_path / "randinit_smaller_3s" / "net50003.pth", siren("net", "net.2", 3))
    zoo = read_published(tmp_path, "nfn-siren", show_progress=False)
    assert zoo.settings["heldout"].sum() == 1, "numbers go on with the test images"


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Color images: one network each, in NFN's layout."""
    folder = tmp_path_factory.mktemp("nfn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_weights.READERS, ".pth", _weights._read_npz)
        for i in range(30):
            write(folder / f"randinit_smaller_{i % 10}s" / f"net{i}.pth", siren("net", "net.2", 3))
        read_published(folder, "nfn-siren", show_progress=False).save(folder / "zoo")
    return Zoo(folder / "zoo")


def test_imported_networks_draw_their_images(published):
    """As NFN's code does: ω = 30, pixels from edge to edge, and values from −1 to 1."""
    weights = jax.tree.map(lambda x: x[3], published.weights())
    line = np.linspace(-1, 1, 32)
    x = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1)
    for i in range(3):
        x = x @ weights[f"layer{i}"]["kernel"] + weights[f"layer{i}"]["bias"]
        x = np.sin(30 * x) if i < 2 else x
    drawn = known_about(published).task.draw(weights)
    np.testing.assert_allclose(drawn, x / 2 + 0.5, atol=1e-4)
    assert published.scores["brightness"][3, 0] == pytest.approx(np.mean(x) / 2 + 0.5, abs=1e-5)


def test_imported_networks_are_probed(published):
    problem = problem_of(published, "probe", 10)
    probe = predict.METHODS["probe"].make(problem, jax.random.key(0))
    weights = jax.tree.map(lambda x: x[3], published.weights())
    answers = problem.network.fn(weights, probe.inputs)
    features = jax.tree.map(lambda x: jnp.asarray(x)[..., None], weights)
    np.testing.assert_allclose(probe(features), probe.head(answers.reshape(-1)), rtol=1e-5)


def test_imported_networks_are_moved_and_their_signs_mean_nothing(published, tmp_path, capsys):
    words = ["predict", "train", "--zoo", published.path, "--method", "statnn", "--augment"]
    words += ["--seeds", 1, "--epochs", 1, "--out", tmp_path / "out", "--json", "--quiet"]
    assert main([str(x) for x in words]) == 0
    assert '"h0"' in capsys.readouterr().out
    weights, model = published.weights(), unf.load_model(tmp_path / "out" / "model-0.safetensors")
    signs = {"h0": -jnp.ones(4), "h1": jnp.array([1.0, -1.0, 1.0, -1.0])}
    flipped = jax.vmap(lambda x: published.space.flip(x, signs))(weights)
    np.testing.assert_allclose(model.predict(flipped), model.predict(weights), rtol=1e-4)
    assert main(["zoo", "plot", str(published.path), "--out", str(tmp_path / "zoo.png")]) == 0
    assert (tmp_path / "zoo.png").read_bytes().startswith(b"\x89PNG")


def test_networks_that_are_not_finite_are_left_out(tmp_path, capsys):
    for i in range(20):
        state = siren("net", "net.2")
        if i == 7:
            state["net.1.bias"][0] = np.nan
        write(tmp_path / f"randinit_smaller_{i % 10}s" / f"net{i}.pth", state)
    zoo = read_published(tmp_path, "nfn-siren", show_progress=False)
    assert "left out: 1 networks" in (found := capsys.readouterr().err) and "net7.pth" in found
    assert zoo.models == 19 and 7 not in zoo.settings["image"]


def write_cnns(folder, networks=10, steps=(0, 43, 86)):
    layout = {"conv2d/kernel:0": (3, 3, 1, 4), "conv2d/bias:0": (4,),
              "conv2d_1/kernel:0": (3, 3, 4, 4), "conv2d_1/bias:0": (4,),
              "dense/kernel:0": (4, 10), "dense/bias:0": (10,)}  # fmt: skip
    ends = np.cumsum([0, *(int(np.prod(shape)) for shape in layout.values())])
    folder.mkdir(exist_ok=True)
    with (folder / "layout.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["varname", "start_idx", "end_idx", "size", "shape"])
        for (name, shape), a, b in zip(layout.items(), ends[:-1], ends[1:], strict=True):
            writer.writerow([f"sequential/{name}", a, b, b - a, shape])
    weights = RNG.normal(size=(networks * len(steps), ends[-1])).astype(np.float32)
    with gzip.open(folder / "metrics.csv.gz", "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["config.activation", "config.learning_rate", "step", "test_accuracy"])
        for i in range(len(weights)):
            step = steps[i % len(steps)]
            writer.writerow(["relu" if i % 2 else "tanh", 0.1 * i, step, i / len(weights)])
    np.save(folder / "weights.npy", weights)
    return weights


def test_the_small_cnn_zoo(tmp_path, capsys):
    weights = write_cnns(tmp_path / "cifar10")
    weights[5, 3] = np.nan
    np.save(tmp_path / "cifar10" / "weights.npy", weights)
    command = ["zoo", "import", tmp_path / "cifar10", "--layout", "small-cnn-zoo"]
    assert main([str(x) for x in (*command, "--out", tmp_path / "zoo", "--quiet")]) == 0
    assert (
        "left out: 1 networks with weights or scores that are not finite" in capsys.readouterr().err
    )
    zoo = unf.zoo.Zoo(tmp_path / "zoo")
    assert zoo.models == 9 and set(zoo.settings["activation"]) == {"relu", "tanh"}
    rows = [i for i in range(2, 30, 3) if i != 5]
    np.testing.assert_allclose(zoo.scores["test_accuracy"][:, 0], np.array(rows) / 30)
    found = jax.tree.leaves(zoo.weights())
    total = sum(leaf.reshape(9, -1).sum(axis=1) for leaf in found)
    np.testing.assert_allclose(total, weights[rows].sum(axis=1), rtol=1e-3, atol=1e-3)
    kinds = {leaf.path: str(leaf) for leaf in zoo.space.leaves}
    assert len(kinds) == 6 and zoo.space.sizes["c0"] == zoo.space.sizes["c1"] == 4


def test_mistakes(tmp_path, capsys):
    with pytest.raises(ZooError, match=r"unknown layout 'zip'; expected one of \['dws-siren'"):
        read_published(tmp_path, "zip")
    for layout, message in {
        "dws-siren": "folders such as mnist_png_training",
        "nfn-siren": "folders such as randinit",
        "small-cnn-zoo": "weights.npy: no such file",
    }.items():
        with pytest.raises(ZooError, match=message):
            read_published(tmp_path, layout, show_progress=False)
    write(tmp_path / "a" / "mnist_png_training_1_1" / "x.pth", {"weight": np.ones((2, 2))})
    with pytest.raises(ZooError, match="expected the weights and biases of an MLP"):
        read_published(tmp_path / "a", "dws-siren", show_progress=False)
    write_cnns(tmp_path / "b")
    np.save(tmp_path / "b" / "weights.npy", np.ones((4, 3), np.float32))
    with pytest.raises(ZooError, match="4 rows of weights, and 30 of metrics"):
        read_published(tmp_path / "b", "small-cnn-zoo", show_progress=False)
    out = ["--out", str(tmp_path / "zoo")]
    assert main(["zoo", "import", str(tmp_path), *out]) == 1
    assert "--scores is missing; or name a published zoo" in capsys.readouterr().err
    command = ["zoo", "import", str(tmp_path), "--layout", "nfn-siren", "--settings", "a", *out]
    assert main(command) == 1
    assert "--layout needs no --scores" in capsys.readouterr().err
