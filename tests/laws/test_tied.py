"""The laws of layers whose coefficients are tied by role, over the table of architectures."""

from functools import cache
from itertools import permutations, product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
from tests.laws.architectures import ARCHITECTURES, FOURFOLD, space_of, typical_by_day
from unf.basis import terms
from unf.basis._keys import find_ties
from unf.models import InvariantTied, Tied, TiedDeepSet, TiedStatNN
from unf.nn import TiedLinear
from unf.nn._tied import tie_pointwise
from unf.testing import assert_equivariant, assert_invariant

KEY = jax.random.key(0)
NAMES = [name for name in ARCHITECTURES if name not in (FOURFOLD, "rank 5", "heads twice")]
SMALL = ["mlp", "cnn 2d", "rnn", "attention, nested", "fused qkv", "stacked for a scan", "rank 0"]


@cache
def layer():
    """With random coefficients at both levels, for all architectures."""
    spaces = [ARCHITECTURES[name] for name in NAMES]
    made = TiedLinear(2, 3, key=KEY, spaces=spaces, dtype=jnp.float64)
    table = jax.random.normal(KEY, made.table.shape, jnp.float64)
    bias = jax.random.normal(KEY, made.bias.shape, jnp.float64)
    return eqx.tree_at(lambda m: (m.table, m.bias), made, (table, bias))


def features(space, seed=0):
    rng = np.random.default_rng(seed)
    return space.unflatten([jnp.array(rng.normal(size=(*x.shape, 2))) for x in space.leaves])


def same(got, expected):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


@typical_by_day(NAMES)
def test_equivariant(name):
    space = ARCHITECTURES[name]
    assert_equivariant(eqx.filter_jit(layer().on(space)), space.relax(), key=KEY, channels=2)


def _play_the_same_part(a, b, plan, roles):
    """Whether a renaming of axes that keeps their roles turns one term into the other."""
    if (a.source_block == a.target_block) != (b.source_block == b.target_block):
        return False
    blocks = [[plan.in_space.blocks[i] for i in (x.source_block, x.target_block)] for x in (a, b)]
    labels = [[[x.name for x in block.labels] for block in pair] for pair in blocks]
    of = [
        [[roles[block.leaf][block.atoms[i].axis] for i in block.permuted] for block in pair]
        for pair in blocks
    ]
    ranks = [[len(x) for x in pair] for pair in of]
    if ranks[0] != ranks[1]:
        return False
    wanted = {frozenset(group) for group in b.partition}
    every = [list(permutations(range(n))) for n in ranks[0]]
    one = a.source_block == a.target_block
    for pair in [(p, p) for p in every[0]] if one else product(*every):
        place = {(side, i): pair[s][i] for s, side in enumerate("io") for i in range(ranks[0][s])}
        if any(of[0][s][i] != of[1][s][place[side, i]] for s, side in enumerate("io")
               for i in range(ranks[0][s])):  # fmt: skip
            continue
        if {frozenset((s, place[s, i]) for s, i in group) for group in a.partition} != wanted:
            continue
        axes = [(s, side, i) for s, side in enumerate("io") for i in range(ranks[0][s])]
        if all(
            (labels[0][s][i] == labels[0][t][j])
            == (labels[1][s][place[side, i]] == labels[1][t][place[other, j]])
            for (s, side, i), (t, other, j) in product(axes, axes)
        ):
            return True
    return False


@pytest.mark.parametrize("name", ["mlp", "rnn", "cnn 2d, all permuted", "attention, nested"])
def test_keys_are_what_renaming_axes_keeps(name):
    """Two terms have one fine key if and only if a search finds a renaming between them."""
    space = ARCHITECTURES[name]
    ties = find_ties(space)
    plan, roles = ties.plan, list(space.roles.values())
    key_of = {}
    for core, place in zip(plan.cores, ties.places["fine"], strict=True):
        for term in (x for x in terms(plan) if x.core == core.name):
            key_of[term] = ties.keys["fine"][place[term.row, term.column]]
    leaders = {}
    for term, key in key_of.items():
        found = [k for k, other in leaders.items() if _play_the_same_part(term, other, plan, roles)]
        assert found == ([key] if key in leaders else [])
        leaders.setdefault(key, term)
    assert len(leaders) == len(ties.keys["fine"])


@pytest.mark.parametrize("name", SMALL)
def test_is_the_literal_layer_with_the_tables_coefficients(name):
    """Term by term: both levels' matrices, each divided by how often the key reaches the tensor."""
    space = ARCHITECTURES[name]
    bound, ties, table = layer().on(space), find_ties(space), dict(zip(
        layer().keys, np.asarray(layer().table), strict=True))  # fmt: skip
    for core, fine, coarse in zip(
        bound.plan.cores, ties.places["fine"], ties.places["coarse"], strict=True
    ):
        for term in (x for x in terms(bound.plan) if x.core == core.name):
            expected = 0
            for level, place in (("fine", fine), ("coarse", coarse)):
                key = ties.keys[level][place[term.row, term.column]]
                count = sum(
                    ties.keys[level][p[t.row, t.column]] == key
                    for c, p in zip(bound.plan.cores, ties.places[level], strict=True)
                    for t in terms(bound.plan)
                    if t.core == c.name and t.target_block == term.target_block
                )
                expected = expected + table[key] / count
            rows, columns = term.slices(2, 3)
            np.testing.assert_allclose(bound.coefficients[core.name][rows, columns], expected)


@typical_by_day(NAMES)
def test_contains_the_pointwise_layer(name):
    space = ARCHITECTURES[name]
    weight = jnp.arange(6.0).reshape(2, 3)
    x = features(space)
    pointwise = tie_pointwise(TiedLinear(2, 3, key=KEY, spaces=(), dtype=jnp.float64), weight)
    same(pointwise(x, space), jax.tree.map(lambda leaf: leaf @ np.asarray(weight), x))


CONVOLUTION = space_of({"b": ("o", (2,)), "k": ("[h w] i m", (3, 2, 2, 4)), "w": ("m o", (4, 2))})


def test_does_not_depend_on_the_order_of_axes():
    """PyTorch stores (out, in, height, width) what JAX stores as (height, width, in, out)."""
    shapes = {"b": (2,), "k": (4, 2, 3, 2), "w": (2, 4)}
    stored = unf.WeightSpace.from_spec(
        {"b": "o", "k": "m i [h w]", "w": "o m"},
        {path: jax.ShapeDtypeStruct(shape, jnp.float32) for path, shape in shapes.items()},
        roles={"b": "shift", "k": "out in window window", "w": "out in"},
    )
    x = features(CONVOLUTION)
    turned = {"b": x["b"], "k": x["k"].transpose(3, 2, 0, 1, 4), "w": x["w"].transpose(1, 0, 2)}
    got, expected = layer()(turned, stored), layer()(x, CONVOLUTION)
    same(got["k"], expected["k"].transpose(3, 2, 0, 1, 4))
    same(got["w"], expected["w"].transpose(1, 0, 2))
    same(got["b"], expected["b"])


def test_does_not_depend_on_names():
    """Neither on paths nor on names of axes, by which plans are sorted."""
    renamed = space_of(
        {"zb": ("a", (2,)), "yk": ("[y x] q p", (3, 2, 2, 4)), "xw": ("p a", (4, 2))}
    )
    x = features(CONVOLUTION)
    got = layer()({"zb": x["b"], "yk": x["k"], "xw": x["w"]}, renamed)
    expected = layer()(x, CONVOLUTION)
    same([got["zb"], got["yk"], got["xw"]], [expected["b"], expected["k"], expected["w"]])


def test_identical_blocks_may_be_exchanged():
    space = space_of(
        {f"{part}{i}": (spec, shape) for i in range(3)
         for part, spec, shape in (("u", f"d m{i}", (3, 2)), ("v", f"m{i} d", (2, 3)))}
    )  # fmt: skip
    swap = {"u0": "u2", "v0": "v2", "u2": "u0", "v2": "v0"}
    x = features(space)
    got = layer()({path: x[swap.get(path, path)] for path in x}, space)
    expected = layer()(x, space)
    same(got, {path: expected[swap.get(path, path)] for path in expected})


def test_nothing_grows_with_the_number_of_tensors():
    """Equal contributions of one key are averaged, so more of them change nothing."""
    rng = np.random.default_rng(0)
    w, v = rng.normal(size=(2, 3, 2)), rng.normal(size=(2, 2, 2))
    found = []
    for copies in (1, 4):
        leaves = {f"v{i}": (f"c{i} d{i}", (2, 2)) for i in range(copies)}
        space = space_of({"w": ("a b", (2, 3)), **leaves})
        found.append(layer()({"w": w, **{path: v for path in leaves}}, space)["w"])
    same(found[0], found[1])


def test_jit_vmap_and_grad():
    space = ARCHITECTURES["rnn"]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), features(space), features(space, 1))
    got = jax.jit(jax.vmap(lambda x: layer()(x, space)))(batch)
    same(jax.tree.map(lambda x: x[1], got), layer()(features(space, 1), space))

    def loss(made, x):
        return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(made(x, space)))

    gradient = eqx.filter_grad(loss)(layer(), features(space))
    known = set(find_ties(space).keys["fine"]) | set(find_ties(space).keys["coarse"])
    moved = np.abs(gradient.table).max(axis=(1, 2)) > 0
    assert {k for k, found in zip(layer().keys, moved, strict=True) if found} <= known
    assert moved.sum() > len(known) / 2


@pytest.mark.parametrize("make", [layer, unf.nn.RolePool], ids=["linear", "pool"])
def test_compiled_programs_tell_roles_apart(make):
    """Spaces that differ in nothing but roles are static arguments of one compiled function."""
    module = make()
    shapes = {"w": jax.ShapeDtypeStruct((3, 4), "float32")}
    spaces = [
        unf.WeightSpace.from_spec({"w": "a [b]"}, shapes, roles={"w": roles})
        for roles in ("in out", "out in")
    ]
    x = features(spaces[0])
    as_argument, bound = (
        eqx.filter_jit(f) for f in (lambda m, x, space: m(x, space), lambda m, x: m(x))
    )
    expected = [module(x, space) for space in spaces]
    same([as_argument(module, x, space) for space in spaces], expected)
    same([bound(module.on(space), x) for space in spaces], expected)
    assert not np.allclose(*[jax.tree.leaves(y)[0] for y in expected])


def test_unknown_keys_leave_the_coarse_level():
    space, other = ARCHITECTURES["mlp"], ARCHITECTURES["rnn"]
    made = TiedLinear(2, 3, key=KEY, spaces=[space])
    assert made.coverage(space) == {"coarse": 1.0, "fine": 1.0}
    partly = made.coverage(other)
    assert 0 < partly["fine"] < partly["coarse"] < 1
    grown = made.extend(other)
    assert grown.coverage(other) == {"coarse": 1.0, "fine": 1.0}
    x = jax.tree.map(lambda leaf: leaf.astype("float32"), features(other))
    same(grown(x, other), made(x, other))
    drawn = made.extend(other, key=jax.random.key(1))
    assert not np.allclose(drawn(x, other)["r"], made(x, other)["r"])


def test_the_coarse_level_alone():
    """A table without fine keys is the same as one whose fine coefficients are zero."""
    space = ARCHITECTURES["mlp"]
    both, coarse = (
        TiedLinear(2, 3, key=KEY, spaces=[space], levels=levels)
        for levels in (("coarse", "fine"), ("coarse",))
    )
    assert coarse.coverage(space) == {"coarse": 1.0, "fine": 0.0}
    assert coarse.num_parameters < both.num_parameters
    x = jax.tree.map(lambda leaf: leaf.astype("float32"), features(space))
    same(coarse(x, space), both(x, space))
    with pytest.raises(ValueError, match=r"levels has 'finest'; expected some of"):
        TiedLinear(2, 3, key=KEY, spaces=[space], levels=("finest",))


def test_tables_of_several_lists_of_spaces_agree():
    """Each key has its own random stream, so a longer list changes no coefficient but the scale."""
    spaces = [ARCHITECTURES["mlp"], ARCHITECTURES["rnn"]]
    one, both = (TiedLinear(2, 3, key=KEY, spaces=spaces[:n]) for n in (1, 2))
    shared = [both.keys.index(k) for k in one.keys]
    ratio = np.asarray(both.table)[shared] / np.where(one.table == 0, 1, one.table)
    assert len(np.unique(np.round(ratio[ratio != 0], 4))) == 1


MODELS = {
    "tied": lambda: InvariantTied(
        2, 4, key=KEY, hidden_channels=3, mlp_width=8, norm=True, raw_statistics=True
    ),
    "deepset": lambda: TiedDeepSet(2, 4, key=KEY, hidden_channels=3, mlp_width=8),
    "statnn": lambda: TiedStatNN(2, 4, key=KEY, mlp_width=8, mlp_layers=2),
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", ["mlp", "attention, nested"])
def test_invariant_models_read_any_network(kind, name):
    model, space = MODELS[kind](), ARCHITECTURES[name]
    bound = eqx.filter_jit(model.on(space))
    assert_invariant(bound, space, key=KEY, channels=2)
    x = jax.tree.map(lambda leaf: leaf.astype("float32"), features(space))
    np.testing.assert_allclose(model(x, space), bound(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_saved_models_are_the_same(kind, tmp_path):
    model = MODELS[kind]()
    unf.save_model(tmp_path / "model", model)
    again = unf.load_model(tmp_path / "model")
    assert eqx.tree_equal(again, model)
    if not isinstance(model.backbone, Tied):
        return
    with pytest.raises(ValueError, match="cannot save this Invariant"):
        unf.save_model(tmp_path / "model", model.on(ARCHITECTURES["mlp"]))


@pytest.mark.nightly
def test_an_equivariant_model_reads_any_network():
    model = Tied(2, 1, key=KEY, hidden_channels=3, num_layers=2)
    for name in ("mlp", "cnn 2d"):
        space = ARCHITECTURES[name]
        assert_equivariant(eqx.filter_jit(model.on(space)), space, key=KEY, channels=2)
    with pytest.raises(unf.SpecError, match=r"needs the weight space(.|\n)*model\(x, space\)"):
        model(features(ARCHITECTURES["mlp"]))
    with pytest.raises(unf.SpecError, match=r"needs the weight space(.|\n)*pool\(x, space\)"):
        unf.nn.RolePool()(features(ARCHITECTURES["mlp"]))
