"""Updates of large tensors: in slabs, and by kernels, they are what they are at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
from unf.optim import FORMS, init_theta, learned_optimizer, load
from unf.optim import _kernel as kernel
from unf.optim import _polar as polar
from unf.optim import _update as update
from unf.testing import spaces

KEY = jax.random.key(0)


def make_space(spec, shapes, **sizes):
    shapes = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    return unf.WeightSpace.from_spec(spec, shapes, sizes=sizes)


def awkward_space():
    """Joined projections, nested and repeated names, windows, and fixed axes."""
    joined = "((h h.k) + (h h.k) + (h h.k))"
    spec = {"qkv": f"d {joined}", "b": joined, "o": "(h h.k) d", "square": "d d"}
    shapes = {"qkv": (12, 30), "b": (30,), "o": (10, 12), "square": (12, 12)}
    spec |= {"window": "[y] [x] d e", "layers": "[l] d l.m", "cube": "p d d"}
    shapes |= {"window": (3, 3, 12, 7), "layers": (4, 12, 6), "cube": (5, 12, 12)}
    return make_space(spec, shapes, h=2)


def tiled_space():
    """Blocks that kernels can read: with at least 16 rows and columns."""
    spec = {"qk": "d ((h h.k) + (h h.k))", "o": "(h h.k) d", "window": "y x d e", "s": "d"}
    shapes = {"qk": (20, 72), "o": (36, 20), "window": (3, 2, 20, 17), "s": (20,)}
    return make_space(spec, shapes, h=2)


def random_theta(kind, space, form):
    theta = init_theta(kind, space, key=KEY, form=FORMS[form], hidden_channels=5, beta=0.3)
    leaves, treedef = jax.tree.flatten(theta)
    keys = jax.random.split(KEY, len(leaves))
    pairs = zip(keys, leaves, strict=True)
    leaves = [x if x.any() else 0.1 * jax.random.normal(k, x.shape, x.dtype) for k, x in pairs]
    return treedef.unflatten(leaves).on(space)


def random_params(space, seed):
    keys = jax.random.split(jax.random.key(seed), len(space.leaves))
    pairs = zip(keys, space.leaves, strict=True)
    return space.unflatten([jax.random.normal(k, x.shape, jnp.float32) for k, x in pairs])


def two_updates(theta, space, seed=1, **options):
    """Steps and states after two updates."""
    optimizer, params = learned_optimizer(theta, **options), random_params(space, seed)
    state, run = optimizer.init(params), jax.jit(lambda *args: optimizer.update(*args))
    for seed in (2, 3):
        steps, state = run(random_params(space, seed), state, params)
        params = jax.tree.map(jnp.add, params, steps)
    return steps, state


def largest_difference(found, expected):
    """Relative to the largest number of each array."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return max(float(np.max(np.abs(x - y)) / (np.max(np.abs(y)) or 1)) for x, y in pairs)


KINDS_AND_FORMS = [
    ("deepset", "code"),
    ("deepset", "adaptive"),
    ("nfn", "adaptive"),
    ("unf", "normalized"),
    ("unf", "adaptive"),
    ("tied", "code"),
]


@pytest.mark.parametrize(("kind", "form"), KINDS_AND_FORMS)
def test_slabs_change_nothing(kind, form, monkeypatch):
    space = awkward_space()
    theta = random_theta(kind, space, form)
    expected = two_updates(theta, space)
    monkeypatch.setattr(update, "TOGETHER", 40)
    monkeypatch.setattr(update, "SLAB", {"cpu": 10})
    monkeypatch.setattr(polar, "_LARGE", 20)
    assert largest_difference(two_updates(theta, space), expected) < 3e-6


@pytest.mark.parametrize("kind", ["deepset", "tied"])
def test_the_last_slab_may_be_shorter(kind, monkeypatch):
    space = make_space({"w": "a b"}, {"w": (211, 199)})  # two primes
    theta = random_theta(kind, space, "normalized")
    expected = two_updates(theta, space)
    monkeypatch.setattr(update, "TOGETHER", 40)
    monkeypatch.setattr(update, "SLAB", {"cpu": 4000})
    cut = update._cut([(0, 211), (1, 199)], (211, 199))
    assert cut.size % cut.length
    assert largest_difference(two_updates(theta, space), expected) < 3e-6


def interpreted(monkeypatch):
    """Run kernels in the interpreter; returns a list to which the names of kernels are added."""
    called = []
    for name in ("steps", "gather", "describe", "hidden"):

        def counted(*args, name=name, function=getattr(kernel, name)):  # noqa: B008
            called.append(name)
            return function(*args)

        monkeypatch.setattr(kernel, name, counted)
    monkeypatch.setattr(kernel, "INTERPRET", True)
    return called


@pytest.mark.parametrize(
    ("kind", "form"), [("deepset", "normalized"), ("deepset", "adaptive"), ("tied", "code")]
)
def test_kernels_change_nothing_but_rounding(kind, form, monkeypatch):
    space = tiled_space()
    theta = random_theta(kind, space, form)
    expected = two_updates(theta, space)
    monkeypatch.setattr(update, "TOGETHER", 200)
    called = interpreted(monkeypatch)
    found = two_updates(theta, space)
    assert set(called) == {"describe", "hidden", "steps" if kind == "deepset" else "gather"}
    # f's products have factors of half precision; momenta have none.
    assert largest_difference(found[0], expected[0]) < 5e-4
    assert largest_difference(found[1].momenta, expected[1].momenta) < 1e-6


@pytest.mark.parametrize(("kind", "form"), [("deepset", "normalized"), ("tied", "adaptive")])
def test_kernels_update_many_networks_at_once(kind, form, monkeypatch):
    space = make_space({"w": "a b", "c": "b"}, {"w": (20, 18), "c": (18,)})
    theta = random_theta(kind, space, form)
    thetas = [jax.tree.map(lambda x, s=s: x * s, theta) for s in (1.0, 1.1)]
    expected = [two_updates(t, space, seed) for t, seed in zip(thetas, (1, 5), strict=True)]
    monkeypatch.setattr(update, "SMALL", 100)
    called = interpreted(monkeypatch)
    both = jax.tree.map(lambda *x: jnp.stack(x), *thetas)
    found = jax.vmap(lambda t, seed: two_updates(t, space, seed))(both, jnp.array([1, 5]))
    assert {"describe", "steps" if kind == "deepset" else "gather"} <= set(called)
    for i, one in enumerate(expected):
        each = jax.tree.map(lambda x, i=i: x[i], found)
        assert largest_difference(each[0], one[0]) < 5e-4
        assert largest_difference(each[1].momenta, one[1].momenta) < 1e-6


def test_what_kernels_compute_has_derivatives(monkeypatch):
    space = make_space({"w": "a b"}, {"w": (3, 4)})
    params, gradient = random_params(space, 1), random_params(space, 2)

    def loss(theta):
        optimizer = learned_optimizer(theta)
        steps, _ = optimizer.update(gradient, optimizer.init(params), params)
        return jnp.sum(steps["w"] ** 2)

    theta = random_theta("deepset", space, "normalized")
    expected = jax.grad(loss)(theta)
    monkeypatch.setattr(kernel, "INTERPRET", True)
    assert largest_difference(jax.grad(loss)(theta), expected) < 1e-5


@pytest.mark.parametrize("kind", ["deepset", "tied"])
def test_tensors_of_one_shape_share_a_kernel(kind, monkeypatch):
    """Else it takes long to compile the update of a deep network."""

    def count(layers):
        spec = {f"w{i}": f"n{i} n{i + 1}" for i in range(layers)}
        space = make_space(spec, dict.fromkeys(spec, (64, 64)))
        optimizer = learned_optimizer(random_theta(kind, space, "adaptive"))
        params = random_params(space, 0)
        traced = jax.jit(optimizer.update).trace(params, optimizer.init(params), params)
        return traced.lower(lowering_platforms=("cuda",)).as_text().count("xla.gpu.triton")

    monkeypatch.setattr(kernel, "is_available", lambda: True)
    assert count(2) == count(4) > 0


@pytest.mark.parametrize("make", [awkward_space, tiled_space, spaces.gru_seq2seq])
def test_windows_say_where_blocks_lie(make):
    space = make()
    for leaf, layout in zip(space.leaves, space.layouts, strict=True):
        flat = np.arange(np.prod(leaf.shape))
        blocks = layout.split(flat.reshape(leaf.shape))
        for (offset, strides), block in zip(layout.windows(leaf.shape), blocks, strict=True):
            indices = np.indices(block.shape)
            places = offset + sum(i * s for i, s in zip(indices, strides, strict=True))
            np.testing.assert_array_equal(places, block)


# --- momenta in bfloat16 ---------------------------------------------------------------------


def assert_rounded_alike(found, expected, steps=1e-5):
    """Up to rare momenta that a last bit of float32 rounds to the other neighbor."""
    momenta = [jax.tree.leaves(x[1].momenta) for x in (found, expected)]
    for x, y in zip(*momenta, strict=True):
        assert x.dtype == y.dtype == jnp.bfloat16
        x, y = np.asarray(x, np.float32), np.asarray(y, np.float32)
        assert np.mean(x != y) < 2e-3
        np.testing.assert_allclose(x, y, rtol=2**-7)
    assert largest_difference(found[0], expected[0]) < steps


@pytest.mark.parametrize(("kind", "form"), [("deepset", "normalized"), ("unf", "adaptive")])
def test_slabs_round_alike(kind, form, monkeypatch):
    space = awkward_space()
    theta = random_theta(kind, space, form)
    expected = two_updates(theta, space, momenta_dtype=jnp.bfloat16)
    monkeypatch.setattr(update, "TOGETHER", 40)
    monkeypatch.setattr(update, "SLAB", {"cpu": 10})
    assert_rounded_alike(two_updates(theta, space, momenta_dtype=jnp.bfloat16), expected)


@pytest.mark.parametrize(("kind", "form"), [("deepset", "adaptive"), ("tied", "code")])
def test_kernels_round_alike(kind, form, monkeypatch):
    space = tiled_space()
    theta = random_theta(kind, space, form)
    expected = two_updates(theta, space, momenta_dtype=jnp.bfloat16)
    monkeypatch.setattr(update, "TOGETHER", 200)
    called = interpreted(monkeypatch)
    found = two_updates(theta, space, momenta_dtype=jnp.bfloat16)
    assert called
    assert_rounded_alike(found, expected, steps=1e-3)


@pytest.mark.parametrize(("form", "squares"), [("normalized", 0), ("adaptive", 4)])
def test_a_state_in_bfloat16_has_fewer_bytes(form, squares):
    params = random_params(spaces.mlp(64, 8, 10), 1)
    theta = init_theta("deepset", key=jax.random.key(0), form=FORMS[form])
    optimizer = learned_optimizer(theta, momenta_dtype=jnp.bfloat16)
    before = optimizer.init(params)
    _, after = jax.jit(optimizer.update)(params, before, params)
    for state in (before, after):
        arrays = jax.tree.leaves((state.nominal, state.momenta, state.squares))
        size = sum(x.size for x in jax.tree.leaves(params))
        assert sum(x.nbytes for x in arrays) == (4 + 12 + squares) * size
        assert {x.dtype for x in jax.tree.leaves(state.momenta)} == {jnp.dtype(jnp.bfloat16)}


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.float32, "half", 16])
def test_momenta_of_other_dtypes_are_refused(dtype):
    with pytest.raises(ValueError, match=r"momenta_dtype is .*; expected jax.numpy.bfloat16, or N"):
        learned_optimizer("deepset-any", momenta_dtype=dtype)


def test_updates_at_once_round_as_alone():
    space = make_space({"w": "a b", "b": "b"}, {"w": (5, 7), "b": (7,)})
    optimizer = learned_optimizer("deepset-any", momenta_dtype=jnp.bfloat16)
    one, other = random_params(space, 1), random_params(space, 2)

    def run(params, gradients):
        return optimizer.update(gradients, optimizer.init(params), params)

    both = jax.tree.map(lambda *x: jnp.stack(x), one, other), random_params(space, 3)
    found = jax.jit(jax.vmap(run, in_axes=(0, None)))(*both)
    assert_rounded_alike(jax.tree.map(lambda x: x[1], found), jax.jit(run)(other, both[1]))


@pytest.mark.parametrize("kind", ["deepset", "tied"])
def test_derivatives_go_through_rounded_momenta(kind, monkeypatch):
    space = make_space({"w": "a b"}, {"w": (6, 8)})
    theta, params = random_theta(kind, space, "normalized"), random_params(space, 1)

    def slopes(dtype):
        def loss(gradient):
            optimizer = learned_optimizer(theta, momenta_dtype=dtype)
            state = optimizer.init(params)
            for _ in range(3):
                steps, state = optimizer.update(gradient, state, params)
            return jnp.sum(steps["w"] ** 2) + jnp.sum(state.momenta["w"].astype(jnp.float32) ** 2)

        return jax.jit(jax.grad(loss))(random_params(space, 2))

    expected, found = slopes(None), slopes(jnp.bfloat16)
    assert largest_difference(found, expected) < 0.02
    monkeypatch.setattr(update, "TOGETHER", 0)
    monkeypatch.setattr(update, "SLAB", {"cpu": 8})
    assert largest_difference(slopes(jnp.bfloat16), found) < 1e-3


@pytest.mark.parametrize("name", ["deepset-any", "unf-any"])
def test_training_with_momenta_in_bfloat16(name):
    shapes = {"w0": (8, 16), "b0": (16,), "w1": (16, 4)}
    space = make_space({"w0": "[x] a", "b0": "a", "w1": "a [y]"}, shapes)
    theta, x = load(name).on(space), jax.random.normal(KEY, (64, 8), jnp.float32)
    start = jax.tree.map(lambda w: w / w.shape[0] ** 0.5, random_params(space, 1))

    def loss(params):
        hidden = jnp.tanh(x @ params["w0"] + jnp.broadcast_to(params["b0"], (64, 16)))
        return jnp.mean((hidden @ params["w1"] - jnp.sin(x[:, :4])) ** 2)

    def last_loss(dtype):
        optimizer = learned_optimizer(theta, momenta_dtype=dtype)

        def step(carry, _):
            params, state = carry
            steps, state = optimizer.update(jax.grad(loss)(params), state, params)
            return (jax.tree.map(jnp.add, params, steps), state), None

        first = start, optimizer.init(start)
        return loss(jax.jit(lambda: jax.lax.scan(step, first, None, 100))()[0][0])

    expected = last_loss(None)
    assert expected < loss(start) / 50
    np.testing.assert_allclose(last_loss(jnp.bfloat16), expected, rtol=0.05)


# --- memory ----------------------------------------------------------------------------------


def temporary_bytes(theta, space, donate, **options):
    optimizer = learned_optimizer(theta.on(space), **options)
    shapes = [jax.ShapeDtypeStruct(leaf.shape, jnp.float32) for leaf in space.leaves]
    params = space.unflatten(shapes)
    state = jax.eval_shape(optimizer.init, params)
    run = jax.jit(optimizer.update, donate_argnums=(1,) if donate else ())
    return run.lower(params, state, params).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("donate", [False, True])
def test_features_of_a_large_tensor_are_never_in_memory(donate):
    space = make_space({"w": "a b"}, {"w": (1024, 2048)})
    theta = init_theta("tied", key=KEY, form=FORMS["normalized"])
    features = 1024 * 2048 * 32 * 4
    found = temporary_bytes(theta, space, donate)
    assert found < features / 8
    momenta = 1024 * 2048 * 6 * 2  # of which CPUs make a copy, in 16 bits
    rounded = temporary_bytes(theta, space, donate, momenta_dtype=jnp.bfloat16)
    assert rounded < found + 1.1 * momenta


@pytest.mark.parametrize("kind", ["deepset", "unf", "tied", "unf-any"])
def test_the_memory_of_an_update_of_gpt2(kind):
    space = spaces.gpt2().relax()
    made = kind.endswith("any")
    theta = load(kind) if made else init_theta(kind, space, key=KEY, form=FORMS["normalized"])
    assert temporary_bytes(theta, space, donate=False) <= 1.5 * 2**30
