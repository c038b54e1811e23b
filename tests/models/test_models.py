"""Deep models, and saving them."""

import inspect
import json
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from safetensors.numpy import load_file, save, save_file

import unf
from tests.laws.architectures import ARCHITECTURES, space_of
from unf import SpecError, load_model, save_model
from unf._persistence import checksum
from unf.models import (
    UNF,
    Invariant,
    InvariantDeepSet,
    InvariantUNF,
    NeuronFeatures,
    NeuronUNF,
    StatNN,
    reader,
)
from unf.models._neurons import _send, make_graph
from unf.models._probe import make_head
from unf.models._unf import record_call
from unf.nn import InvariantPool, UNFLinear
from unf.testing import assert_equivariant, assert_invariant, random_features, spaces

KEY = jax.random.key(0)
SPACE = ARCHITECTURES["rnn"]
SCORE = space_of({"score": ("h", (3,))})


def in_training(model):
    """A model without coefficients that are zero at the start."""
    return jax.tree.map(lambda x: x + 0.03 if eqx.is_inexact_array(x) else x, model)


MODELS = {
    "unf": lambda: UNF(SPACE, 2, 3, key=KEY, hidden_channels=4),
    "unf, other space": lambda: UNF(
        SPACE, 2, 3, key=KEY, hidden_channels=4, norm=True, out_space=SCORE
    ),
    "one layer": lambda: UNF(SPACE, 2, 3, key=KEY, num_layers=1, minimal=True, activation="tanh"),
    "invariant": lambda: InvariantUNF(
        SPACE, 2, 1, key=KEY, hidden_channels=4, mlp_width=8, dropout=0.1
    ),
    "invariant, richer": lambda: InvariantUNF(
        SPACE, 2, 5, key=KEY, hidden_channels=3, mlp_width=8, mlp_layers=2,
        statistics=("mean", "max"), keep_fixed=True,
    ),
    "invariant, products": lambda: InvariantUNF(
        SPACE, 2, 1, key=KEY, hidden_channels=3, mlp_width=8, products=2, raw_statistics=True
    ),
    "statnn": lambda: StatNN(SPACE, 2, 1, key=KEY, mlp_width=8, mlp_layers=2),
    "deep set": lambda: InvariantDeepSet(SPACE, 2, 1, key=KEY, mlp_width=8, activation=jax.nn.gelu),
    "neurons": lambda: in_training(
        NeuronFeatures(SPACE, 2, key=KEY, hidden_channels=4, num_blocks=2, num_frequencies=3)
    ),
    "neurons and back": lambda: in_training(
        NeuronUNF(SPACE, 2, 3, key=KEY, hidden_channels=4, num_blocks=1, num_frequencies=3, rank=2)
    ),
    "reader": lambda: in_training(reader(SPACE, 5, key=KEY, size="small", in_channels=2)),
}  # fmt: skip


@cache
def made(name):
    return MODELS[name]()


@pytest.mark.parametrize("name", MODELS)
def test_symmetry(name):
    model = made(name)
    if not isinstance(model, Invariant):
        out_space = getattr(model, "out_space", SPACE)
        f = eqx.filter_jit(model)
        assert_equivariant(f, SPACE, key=KEY, channels=2, out_space=out_space, tolerance=1e-5)
    else:
        assert_invariant(eqx.filter_jit(model), SPACE, key=KEY, channels=2, tolerance=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_round_trip(name, tmp_path):
    model, path = made(name), tmp_path / "model.safetensors"
    save_model(path, model)
    again = load_model(path, space=SPACE)
    assert jax.tree.structure(again) == jax.tree.structure(model)
    x = random_features(SPACE, 2, key=KEY)
    for a, b in zip(jax.tree.leaves(model(x)), jax.tree.leaves(again(x)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_sizes_may_be_numpys_numbers():
    """Without the tests' checks of types, which users do not have."""
    sizes = np.array([5, 3, 4, 2])
    head = inspect.unwrap(make_head)(*sizes, "relu", jax.random.key(0))
    assert head(jnp.ones(5)).shape == (3,)
    _, options = record_call("StatNN", {"out_size": sizes[1], "scale": jnp.ones(()), "n": "a"})
    assert json.loads(json.dumps(dict(options))) == {"out_size": 3, "scale": 1.0, "n": "a"}


def test_half_precision_is_kept(tmp_path):
    save_model(tmp_path / "half", UNF(SPACE, 1, 1, key=KEY, num_layers=1, dtype=jnp.bfloat16))
    again = load_model(tmp_path / "half")
    assert {x.dtype for x in jax.tree.leaves(again)} == {jnp.dtype(jnp.bfloat16)}


BY_DAY = ("rnn", "attention, nested")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in BY_DAY else [pytest.mark.nightly])
        for name in ARCHITECTURES
    ],
)
def test_features_of_neurons_are_equivariant(name):
    space = ARCHITECTURES[name]
    options = {"key": KEY, "hidden_channels": 3, "num_blocks": 2, "num_frequencies": 2}
    model = in_training(NeuronUNF(space, 2, 1, rank=2, **options))
    features = model.features
    f = eqx.filter_jit(lambda x: (features(x), model(x)))
    shared = {"key": KEY, "channels": 2, "tolerance": 1e-5}
    assert_equivariant(lambda x: f(x)[0], space, out_space=features.out_space, **shared)
    assert_equivariant(lambda x: f(x)[1], space, **shared)


def test_messages_are_sums_over_weights():
    """Between neurons of heads, [h, k], and others, [d], through an array with axes h, k, d."""
    edges = make_graph(ARCHITECTURES["attention, nested"]).edges
    by_axes = {(edge.source.axes, edge.target.axes): edge for edge in edges}
    rng = np.random.default_rng(0)
    shapes = ((2, 4, 3, 1), (2, 4, 5), (3, 5))
    weights, heads, others = (jnp.asarray(rng.normal(size=shape)) for shape in shapes)
    w = weights[..., 0]
    np.testing.assert_allclose(
        _send(by_axes[(0, 1), (2,)], weights, heads), np.einsum("hkd,hkc->dc", w, heads) / 8**0.5
    )
    np.testing.assert_allclose(
        _send(by_axes[(2,), (0, 1)], weights, others), np.einsum("hkd,dc->hkc", w, others) / 3**0.5
    )
    edges = make_graph(ARCHITECTURES["grouped convolution"]).edges  # stored as i, g, o
    edge = next(edge for edge in edges if edge.target.axes == (1, 0))
    weights, outputs = (jnp.asarray(rng.normal(size=shape)) for shape in ((3, 2, 4, 1), (2, 4, 5)))
    np.testing.assert_allclose(
        _send(edge, weights, outputs), np.einsum("igo,goc->gic", weights[..., 0], outputs) / 4**0.5
    )


def test_the_coefficients_of_neurons_are_used_as_they_are():
    options = {"key": KEY, "hidden_channels": 4, "num_blocks": 1, "num_frequencies": 3}
    model = in_training(NeuronUNF(SPACE, 1, 3, **options, dtype=jnp.float64))
    x = jax.tree.map(jnp.float32, random_features(SPACE, 1, key=KEY))
    assert {leaf.dtype for leaf in jax.tree.leaves(model(x))} == {jnp.dtype(jnp.float64)}


def test_paper_defaults():
    space = spaces.gru_seq2seq(hidden=4).relax()
    model = InvariantUNF(space, 1, 1, key=KEY)
    assert [layer.out_channels for layer in model.backbone.layers] == [16, 16, 16]
    assert [layer.out_features for layer in model.head.layers] == [512, 512, 1]
    baseline = StatNN(space, 1, 1, key=KEY)
    assert [layer.out_features for layer in baseline.head.layers] == [600] * 5 + [1]
    assert baseline.head.in_size == 22 * 7


def test_statistics():
    x = random_features(SPACE, 2, key=KEY)
    got = StatNN(SPACE, 2, 1, key=KEY, mlp_width=8, mlp_layers=2).pool(x)
    entries = np.asarray(x["b"])
    expected = [
        entries.mean(0),
        entries.var(0),
        *np.quantile(entries, [0, 0.25, 0.5, 0.75, 1], axis=0),
    ]
    np.testing.assert_allclose(got[:14], np.concatenate(expected), rtol=1e-5)


def test_dropout_needs_a_key():
    model, x = made("invariant"), random_features(SPACE, 2, key=KEY)
    assert not np.array_equal(model(x), model(x, key=KEY))
    np.testing.assert_array_equal(model(x), model(x))


def test_learns_what_statistics_cannot_see():
    """The trace of a square: invariant, and a matter of structure."""
    space = space_of({"w": ("n n", (4, 4))})
    x = random_features(space_of({"w": ("[batch] n n", (256, 4, 4))}), 1, key=KEY)
    truth = jnp.trace(x["w"][..., 0], axis1=1, axis2=2)
    model = InvariantUNF(space, 1, 1, key=KEY, hidden_channels=8, num_layers=2, mlp_width=16)
    optimizer = optax.adam(1e-2)

    def loss(model):
        return jnp.mean((jax.vmap(model)(x)[:, 0] - truth) ** 2)

    def step(carry, _):
        model, state = carry
        value, gradient = eqx.filter_value_and_grad(loss)(model)
        updates, state = optimizer.update(gradient, state)
        return (eqx.apply_updates(model, updates), state), value

    arrays, static = eqx.partition(model, eqx.is_array)
    state = optimizer.init(arrays)

    def scan_step(carry, x):
        (model, state), value = step((eqx.combine(carry[0], static), carry[1]), x)
        return (eqx.filter(model, eqx.is_array), state), value

    _, losses = jax.jit(lambda c: jax.lax.scan(scan_step, c, length=200))((arrays, state))
    assert losses[-1] < 0.05 * float(jnp.var(truth))


def test_saving_mistakes(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(ValueError, match=r"expected a function of jax.nn"):
        save_model(path, UNF(SPACE, 1, 1, key=KEY, activation=jnp.sin))
    with pytest.raises(ValueError, match="cannot save this UNFLinear"):
        save_model(path, unf.nn.UNFLinear(SPACE, 1, 1, key=KEY))
    with pytest.raises(ValueError, match="num_layers is 0"):
        UNF(SPACE, 1, 1, key=KEY, num_layers=0)
    with pytest.raises(ValueError, match="cannot save this Invariant; expected a model as one of"):
        pool = InvariantPool(SPACE)
        save_model(path, Invariant(None, pool, eqx.nn.Linear(pool.out_size(1), 1, key=KEY)))
    with pytest.raises(ValueError, match="cannot save this UNF; expected"):
        save_model(path, eqx.tree_at(lambda m: m.layers, made("unf"), made("unf").layers[:2]))
    with pytest.raises(ValueError, match="expected 0 <= dropout < 1"):
        UNF(SPACE, 1, 1, key=KEY, dropout=1.0)
    with pytest.raises(ValueError, match="unknown activation 'rleu'"):
        UNF(SPACE, 1, 1, key=KEY, activation="rleu")
    assert not path.exists()


def test_a_model_on_a_module_is_loaded_with_its_space(tmp_path):
    module = eqx.filter(eqx.nn.Linear(2, 3, key=KEY), eqx.is_array)
    space = unf.WeightSpace.from_spec({"weight": "a [b]", "bias": "a"}, module)
    model, file = UNF(space, 1, 2, key=KEY, num_layers=1), tmp_path / "model"
    save_model(file, model)
    loaded, x = load_model(file, space=space), unf.nn.stack_channels(module)
    np.testing.assert_array_equal(loaded(x).bias, model(x).bias)
    with pytest.raises(ValueError, match=r"of the class 'Linear'[\s\S]*remedy: pass the weight"):
        load_model(file)
    roles = {"weight": "out in", "bias": "shift"}
    same = unf.WeightSpace.from_spec({"weight": "a [b]", "bias": "a"}, module, roles=roles)
    assert load_model(file, space=same).space.roles["weight"] == ("out", "in")


def test_other_backbones():
    backbone = UNFLinear(SPACE, 2, 4, key=KEY)
    pool = InvariantPool(SPACE, statistics=("mean", "max"))
    head = eqx.nn.Linear(pool.out_size(4), 2, key=KEY)
    model = Invariant(backbone, pool, head, activation=jnp.tanh)
    assert_invariant(eqx.filter_jit(model), SPACE, key=KEY, channels=2, tolerance=1e-5)


def rewrite(path, target, change_arrays=lambda a: a, change_description=lambda d: d):
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}
        description = json.loads(file.metadata()["unf"])
    arrays, metadata = change_arrays(arrays), {"unf": json.dumps(change_description(description))}
    metadata["sum"] = checksum(save(arrays, metadata))
    save_file(arrays, target, metadata=metadata)


def test_loading_checks_arrays_and_description(tmp_path):
    good, bad = tmp_path / "good.safetensors", tmp_path / "bad.safetensors"
    save_model(good, made("unf"))
    first = sorted(load_file(good))[0]
    cases = [
        (lambda a: {k: v for k, v in a.items() if k != first}, lambda d: d, "got no such array"),
        (lambda a: a | {"more": np.zeros(2)}, lambda d: d, "array more: expected no such array"),
        (lambda a: a | {first: np.zeros((1, 1), np.float32)}, lambda d: d, r"got \(1, 1\)"),
        (lambda a: a, lambda d: d | {"format": 99}, "format 99"),
        (lambda a: a, lambda d: d | {"kind": "os.system"}, "unknown kind of model"),
        (lambda a: a, lambda d: d | {"space": "{}"}, "not a description of a weight space"),
        (lambda a: a, lambda d: d | {"config": {"zz": 1}}, "description of the model is invalid"),
        (lambda a: a, lambda d: [], "description"),
    ]
    for arrays, description, match in cases:
        rewrite(good, bad, arrays, description)
        with pytest.raises(ValueError, match=match):
            load_model(bad)
    bad.write_bytes(good.read_bytes()[:100])
    with pytest.raises(ValueError, match="not a complete safetensors file"):
        load_model(bad)
    save_file({"x": np.zeros(2)}, bad)
    with pytest.raises(ValueError, match="not one saved by unf"):
        load_model(bad)
    with pytest.raises(FileNotFoundError, match="absent"):
        load_model(tmp_path / "absent.safetensors")
    with pytest.raises(SpecError, match="at 'b': another network, which differs in more"):
        load_model(good, space=space_of({"b": ("d", (3,)), "r": ("d d", (3, 3))}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mlp_layers": 10**9}, "mlp_layers is 1000000000, but only 4 arrays are stored"),
        ({"num_layers": 10**9}, "num_layers is 1000000000, but only 4 arrays are stored"),
        ({"mlp_width": 10**9}, r"array .*: expected \(1000000000,\), got \(2,\)"),
        ({"mlp_layers": 0}, "the description of the model is invalid: mlp_layers is 0"),
    ],
)
def test_a_description_of_a_far_larger_model_is_refused_at_once(change, message, tmp_path):
    file = tmp_path / "model"
    save_model(file, StatNN(SPACE, 1, 1, key=KEY, mlp_width=2, mlp_layers=2))
    rewrite(file, file, change_description=lambda d: {**d, "config": {**d["config"], **change}})
    with pytest.raises(ValueError, match=message):
        load_model(file)


def test_mistakes_in_sizes():
    model = StatNN(SPACE, 1, 1, mlp_width=4, mlp_layers=2, key=KEY)
    with pytest.raises(
        SpecError, match=r"wrong number of channels[\s\S]*expected: 1,[\s\S]*got: 2"
    ):
        model(random_features(SPACE, 2, key=KEY))
    with pytest.raises(ValueError, match="mlp_layers is 0 and out_size 1; expected at least 1"):
        InvariantUNF(SPACE, 1, 1, mlp_layers=0, key=KEY)


def test_an_invariant_model_is_backbone_activation_pooling_and_mlp():
    """§4.1; without the activation, pooling would see only linear functions of the last layer."""
    model = InvariantUNF(SPACE, 1, 2, key=KEY, num_layers=1, mlp_width=8, activation="gelu")
    x = random_features(SPACE, 1, key=KEY)
    (layer,) = model.backbone.layers
    pooled = [
        jnp.mean(jax.nn.gelu(leaf), range(leaf.ndim - 1)) for leaf in jax.tree.leaves(layer(x))
    ]
    expected = model.head(jnp.concatenate(pooled))
    np.testing.assert_allclose(model(x), expected, rtol=1e-5, atol=1e-6)


LONG = space_of({"w": ("[in] h", (20, 3)), "v": ("h [out]", (3, 2)), "b": ("30", (30,))})


@pytest.fixture(scope="module")
def long_model():
    options = {"hidden_channels": 4, "num_layers": 2, "mlp_width": 16}
    return unf.models.InvariantUNF(LONG, 1, 2, key=KEY, **options)


def test_long_fixed_axes_are_permuted_and_told_apart(long_model):
    """In layers they permute, for the model they stay fixed: it sees which index is which."""
    assert long_model.space == LONG
    layers = long_model.backbone.layers[0].plan.in_space
    assert set(layers.sizes) == {"h", "in", "axis0"} and layers.fixed == ("out",)
    assert "PositionalEncoding(axis0=30, in=20; 4 channels" in repr(long_model)
    assert_invariant(eqx.filter_jit(long_model), LONG, key=KEY)
    with pytest.raises(AssertionError, match="not invariant"):
        assert_invariant(eqx.filter_jit(long_model), LONG.relax("in"), key=KEY, tolerance=1e-4)


def test_models_keep_long_axes_fixed_on_request():
    spaces = {limit: unf.models.UNF(LONG, 1, 1, key=KEY, max_fixed=limit) for limit in (None, 25)}
    assert spaces[None].positions is None and spaces[None].layers[0].plan.in_space == LONG
    assert set(spaces[25].layers[0].plan.in_space.fixed) == {"in", "out"}
    editor = unf.models.UNF(LONG, 1, 1, key=KEY, hidden_channels=2, num_layers=2)
    assert_equivariant(eqx.filter_jit(editor), LONG, key=KEY)


def test_an_output_space_keeps_what_the_input_cannot_tell_apart():
    """Positions of the input's axes are known in the output; other long axes stay fixed."""
    out = space_of({"y": ("[in] [class]", (20, 30))})
    options = {"hidden_channels": 4, "num_layers": 2, "activation": "tanh", "out_space": out}
    model = unf.models.UNF(LONG, 1, 1, key=KEY, **options)
    y = np.asarray(model(random_features(LONG, 1, key=KEY))["y"][..., 0])
    assert len(np.unique(y.round(6), axis=0)) == 20
    assert len(np.unique(y.round(6), axis=1).T) == 30


def test_long_axes_are_saved_and_loaded(long_model, tmp_path):
    unf.save_model(tmp_path / "m.safetensors", long_model)
    loaded = unf.load_model(tmp_path / "m.safetensors", space=LONG)
    x = random_features(LONG, 1, key=KEY)
    np.testing.assert_array_equal(loaded(x), long_model(x))


def test_mlps_on_images_have_models_of_ordinary_size():
    shapes = {"w0": ("[in] h", (784, 128)), "b0": ("h", (128,)), "w1": ("h [out]", (128, 10))}
    shapes["b1"] = ("[out]", (10,))
    model = eqx.filter_eval_shape(
        lambda: unf.models.InvariantUNF(space_of(shapes), 1, 1, key=jax.random.key(0))
    )
    assert sum(x.size for x in jax.tree.leaves(model) if hasattr(x, "size")) < 1_000_000
    report = unf.basis.cost_report(space_of(shapes), 16, 16)
    assert report.long_fixed == {"in": 784}
    assert f"with in=784 permuted, as models do above max_fixed=16: {report.without_them:,}" in str(
        report
    )
    assert report.without_them < 1_000_000 < report.total.parameters
    relaxed = unf.basis.cost_report(space_of(shapes).relax("in"), 16, 16)
    assert relaxed.total.parameters == report.without_them and not relaxed.long_fixed


@pytest.mark.nightly
@pytest.mark.parametrize("told_apart", [True, False])
def test_which_input_is_which_can_be_learned(told_apart):
    """The target weighs inputs by a wave along 100 of them; without positions it is noise."""
    rng, count = np.random.default_rng(0), 1200
    space = space_of({"w": ("[in] h", (100, 4)), "v": ("h", (4,))})
    wave, draws = np.sin(np.arange(100) / 16), rng.normal(size=(count, 1, 1))
    weights = {
        "w": (rng.normal(size=(count, 100, 4)) + draws * wave[:, None]).astype(np.float32),
        "v": rng.normal(size=(count, 4)).astype(np.float32),
    }
    targets = weights["w"].mean(axis=2) @ wave
    model = unf.models.InvariantUNF(
        space if told_apart else space.relax("in"), 1, 1, hidden_channels=8, mlp_width=64, key=KEY
    )
    train, test = (
        jax.tree.map(lambda x, rows=rows: x[rows], (weights, targets))
        for rows in (slice(1000), slice(1000, None))
    )
    result = unf.fit(model, *train, epochs=15, learning_rate=3e-3, key=KEY, progress=False)
    r2 = result.model.score(*test)["r2"]
    assert r2 > 0.9 if told_apart else r2 < 0.3
