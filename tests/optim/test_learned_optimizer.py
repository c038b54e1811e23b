"""The learned optimizer: its formula, its symmetry, and its place among Optax's."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unf
from unf.optim import FORMS, Form, init_theta, learned_optimizer, load, save
from unf.optim._polar import matrix_axes, polar_factors
from unf.optim._theta import DECAYS, KINDS
from unf.testing import spaces

KEY = jax.random.key(0)
SPACE = spaces.mlp(3, 4, 2).relax()


def random_like(space, seed, dtype=jnp.float32):
    keys = jax.random.split(jax.random.key(seed), len(space.leaves))
    return space.unflatten(
        [
            jax.random.normal(k, leaf.shape, dtype)
            for k, leaf in zip(keys, space.leaves, strict=True)
        ]
    )


PARAMS = random_like(SPACE, 1)
GRADIENTS = [random_like(SPACE, seed) for seed in (2, 3, 4)]


def run(optimizer, params=PARAMS, gradients=GRADIENTS):
    """Parameters after one update with each gradient."""
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    for gradient in gradients:
        updates, state = update(gradient, state, params)
        params = optax.apply_updates(params, updates)
    return params


def assert_close(a, b, rtol=1e-5, atol=1e-6):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)


def randomized(theta):
    """θ with random coefficients wherever they start at zero."""
    leaves, treedef = jax.tree.flatten(theta)
    keys = jax.random.split(jax.random.key(7), len(leaves))
    return treedef.unflatten(
        [
            x if x.any() else 0.1 * jax.random.normal(k, x.shape)
            for k, x in zip(keys, leaves, strict=True)
        ]
    )


SCALES = [1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000, 100000]


def rms(x):
    return np.sqrt(np.mean(x**2))


def naive(theta, form):
    """Eq. 31, one number at a time, with all 19 features of every entry written out."""
    alpha, beta, gamma = float(theta.alpha), float(theta.beta), float(theta.gamma)
    params = {k: np.array(v, np.float64) for k, v in PARAMS.items()}
    decays = [gamma, *DECAYS]
    momenta = {k: [np.zeros_like(v) for _ in decays] for k, v in params.items()}
    for t, gradients in enumerate(GRADIENTS):
        for name, w in params.items():
            g = np.array(gradients[name], np.float64)
            for i, decay in enumerate(decays):
                share = 1 if form.momentum == "sum" else 1 - decay
                momenta[name][i] = decay * momenta[name][i] + share * g
            channels = [w, g, *momenta[name][1:]]
            if form.normalize == "clip-rms":
                channels = [np.clip(c, -1, 1) for c in channels]
            if form.normalize != "none":
                channels = [c / rms(c) for c in channels]
            time = [np.sin(t / s) if form.time == "sine" else np.tanh(t / s - 1) for s in SCALES]
            (out,) = naive_network([*theta.trunk, theta.head], channels, time)
            params[name] = w - alpha * (momenta[name][0] + beta * out)
    return params


def naive_network(layers, channels, time):
    """The outputs of an MLP at every entry, along the first axis."""
    *layers, (weight, bias) = [(np.asarray(x.weight).T, np.asarray(x.bias)) for x in layers]
    outputs = np.zeros((len(bias), *channels[0].shape))
    for index in np.ndindex(channels[0].shape):
        x = np.array([c[index] for c in channels] + time)
        for inner, shift in layers:
            x = np.maximum(x @ inner + shift, 0)
        outputs[:, *index] = x @ weight + bias
    return outputs


@pytest.mark.parametrize("form", [f for f in FORMS.values() if f.step == "raw"], ids=str)
def test_the_update_is_the_papers(form):
    theta = init_theta("deepset", key=KEY, form=form, beta=0.3)
    assert_close(run(learned_optimizer(theta)), naive(theta, form), rtol=1e-4)


def test_adaptive_steps_are_what_they_say():
    theta = init_theta("deepset", key=KEY, form=FORMS["adaptive"])
    head = jax.random.normal(jax.random.key(5), theta.head.weight.shape)
    theta = eqx.tree_at(lambda t: t.head.weight, theta, head)
    decay = {"log_delay": jnp.log(2.0), "log_power": jnp.log(0.5)}
    theta = eqx.tree_at(lambda t: t.scalars, theta, theta.scalars | decay)
    gamma, forget = float(theta.gamma), 1 - float(theta.gamma_squares)
    params = {k: np.array(v, np.float64) for k, v in PARAMS.items()}
    zeros = {k: np.zeros_like(v) for k, v in params.items()}
    nominal, squares = dict(zeros), dict(zeros)
    momenta = {k: [v] * len(DECAYS) for k, v in zeros.items()}
    for t, gradients in enumerate(GRADIENTS):
        for name, w in params.items():
            g = np.array(gradients[name], np.float64)
            nominal[name] = gamma * nominal[name] + (1 - gamma) * g
            pairs = zip(momenta[name], DECAYS, strict=True)
            momenta[name] = [decay * m + (1 - decay) * g for m, decay in pairs]
            squares[name] = (1 - forget) * squares[name] + forget * g**2
            root = np.sqrt(squares[name] / (1 - (1 - forget) ** (t + 1)))
            pairs = zip(momenta[name], DECAYS, strict=True)
            moving = [g, *(m / (1 - decay ** (t + 1)) for m, decay in pairs)]
            unit = max(rms(np.asarray(PARAMS[name])), 0.05)
            direction = nominal[name] / root
            direction = direction / max(1, rms(direction))
            channels = [w / unit, direction, *(m / root for m in moving), np.log(root / rms(root))]
            channels = [np.clip(c, -3, 3) for c in [*channels, np.full_like(w, w.ndim > 1)]]
            time = [np.tanh(t / s - 1) for s in SCALES if s <= 1000]
            (s,) = naive_network([*theta.trunk, theta.head], channels, time)
            step = np.exp(2 * np.tanh(s / 2)) * direction
            unit *= (4096 / w.size) ** 0.25 if w.ndim > 1 else 1
            params[name] = w - float(theta.alpha) * (1 + t / 2) ** -0.5 * unit * step
    assert_close(run(learned_optimizer(theta)), params, rtol=1e-4)


def naive_polar(matrix):
    """Five Newton–Schulz iterations, on the singular values."""
    left, values, right = np.linalg.svd(np.asarray(matrix, np.float64), full_matrices=False)
    values = values / np.linalg.norm(values)
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return max(matrix.shape) ** 0.5 * (left * values) @ right


@pytest.mark.parametrize("kind", ["unf", "tied"])
def test_adaptive_steps_of_kinds_with_a_weight_space(kind):
    """The direction of a matrix is a polar factor; in the first step, m/√v is (1 − γ) sign(g)."""
    space = spaces.mlp(3, 4, 2)
    theta = init_theta(kind, space, key=KEY, form=FORMS["adaptive"])
    moved = run(learned_optimizer(theta, space=space), gradients=GRADIENTS[:1])
    for name, w in PARAMS.items():
        g = GRADIENTS[0][name]
        direction = (1 - float(theta.gamma)) * (naive_polar(g) if g.ndim > 1 else np.sign(g))
        expected = w - float(theta.alpha) * max(rms(np.asarray(w)), 0.05) * direction
        np.testing.assert_allclose(moved[name], expected, rtol=1e-4, atol=1e-6)
    gains = run(learned_optimizer(randomized(theta), space=space), gradients=GRADIENTS[:1])
    for name, w in PARAMS.items():
        log_gain = np.log((gains[name] - w) / (moved[name] - w))  # directions are the same
        assert np.abs(log_gain).max() < 2.001 and np.ptp(log_gain) > 0.01


def test_polar_factors_have_singular_values_near_one():
    x, axes = jax.random.normal(KEY, (12, 30)), matrix_axes(("in", "out"))
    large, small = polar_factors([x, 1e-3 * x], [axes, axes])
    values = np.linalg.svd(large / 30**0.5, compute_uv=False)
    assert 0.6 < values.min() and values.max() < 1.3
    assert_close(large, small)


@pytest.mark.parametrize("shape", [(6, 10), (6, 48), (48, 6)])
@pytest.mark.parametrize(("smallest", "tolerance"), [(0.1, 1e-5), (1e-4, 2e-3)])
def test_polar_factors_of_wide_matrices_are_those_of_all_others(shape, smallest, tolerance):
    """Iterating the Gram matrix loses digits only where singular values are tiny."""
    left, _, right = np.linalg.svd(jax.random.normal(KEY, shape), full_matrices=False)
    matrix = jnp.asarray((left * np.geomspace(smallest, 1, 6)) @ right, jnp.float32)
    (found,) = polar_factors([matrix], [matrix_axes(("in", "out"))])
    expected = naive_polar(matrix)
    assert np.abs(found - expected).max() < tolerance * np.abs(expected).max()


def test_polar_factors_follow_roles_not_the_order_of_storage():
    kernels = jax.random.normal(KEY, (2, 5, 3, 4))  # experts, window, in, out
    tensors = [kernels, kernels.transpose(3, 0, 2, 1), kernels[0, 0]]
    roles = ["each window in out", "out each in window", "in out"]
    found, stored, single = polar_factors(tensors, [matrix_axes(tuple(r.split())) for r in roles])
    for each, kernel in zip(found, kernels, strict=True):
        expected = naive_polar(kernel.reshape(15, 4)).reshape(5, 3, 4)
        np.testing.assert_allclose(each, expected, rtol=1e-4, atol=1e-4)
    assert_close(stored, found.transpose(3, 0, 2, 1), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(single, naive_polar(kernels[0, 0]), rtol=1e-4, atol=1e-4)
    assert matrix_axes(("index", "out")) == matrix_axes(("index", "in")) == ([], [0], [1])
    for roles in [("shift",), ("shift", "shift"), ("scale",), ("in",), ("window", "scale")]:
        assert matrix_axes(roles) is None


def test_gradients_that_are_zero_have_derivatives():
    """Of neurons that are never active, for example."""
    space = spaces.mlp(3, 4, 2)
    theta = init_theta("unf", space, key=KEY, form=FORMS["adaptive"])
    gradients = GRADIENTS[:2]
    dead = [{**g, "w0": jnp.zeros_like(g["w0"]), "b0": g["b0"].at[0].set(0)} for g in gradients]

    def meta_loss(theta):
        moved = run(learned_optimizer(theta), gradients=dead)
        return sum(jnp.sum(x**2) for x in jax.tree.leaves(moved))

    slopes = jax.tree.leaves(jax.jit(jax.grad(meta_loss))(theta))
    assert all(bool(jnp.isfinite(x).all()) for x in slopes)
    assert sum(bool((x != 0).any()) for x in slopes) > len(slopes) // 2


def test_without_a_network_it_is_sgd_with_momentum():
    assert_close(run(learned_optimizer(init_theta("sgdm", key=KEY))), run(optax.sgd(0.1, 0.9)))
    other = init_theta("sgdm", key=KEY, form=FORMS["code"], alpha=0.5, gamma=0.5)
    assert_close(run(learned_optimizer(other)), run(optax.sgd(0.25, 0.5)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("space", "form"),
    [
        (spaces.mlp(3, 4, 2), "paper"),
        (spaces.mlp(3, 4, 2), "adaptive"),
        (spaces.paper_cnn(corrected=True), "paper"),
        (spaces.paper_rnn(5).relax(), "paper"),
    ],
    ids=["mlp", "mlp-adaptive", "cnn", "rnn"],
)
def test_updates_move_with_the_neurons(kind, space, form):
    theta = randomized(init_theta(kind, space, key=KEY, beta=0.5, form=FORMS[form]))
    params, gradients = random_like(space, 1), random_like(space, 2)
    step = jax.jit(lambda p, g: run(learned_optimizer(theta, space=space), p, [g, p]))
    permutation = space.sample_permutation(jax.random.key(3))
    moved = step(space.permute(params, permutation), space.permute(gradients, permutation))
    assert_close(moved, space.permute(step(params, gradients), permutation), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["nfn", "unf", "tied"])
def test_a_pointwise_start_is_the_deep_set(kind):
    options = {"key": KEY, "beta": 0.5, "form": FORMS["code"]}
    theta = init_theta(kind, SPACE, head_start="pointwise", **options)
    deepset = run(learned_optimizer(init_theta("deepset", **options)))
    assert_close(run(learned_optimizer(theta, space=SPACE)), deepset)
    fixed = spaces.mlp(3, 4, 2)
    theta = init_theta(kind, fixed, head_start="pointwise", **options)
    assert_close(run(learned_optimizer(theta, space=fixed)), deepset)


THETA = init_theta("unf", SPACE, key=KEY, beta=0.1)


def test_composes_with_optax():
    plain = run(learned_optimizer(THETA))
    chained = optax.chain(optax.clip_by_global_norm(1e9), learned_optimizer(THETA))
    assert_close(run(chained), plain)
    assert_close(run(optax.apply_if_finite(learned_optimizer(THETA), 5)), plain)
    bad = jax.tree.map(lambda g: g * jnp.nan, GRADIENTS[0])
    careful = optax.apply_if_finite(learned_optimizer(THETA), 5)
    assert_close(run(careful, gradients=[bad]), PARAMS)


def test_masked_leaves_stay():
    part = spaces.mlp(3, 4, 2)
    keep = {"w0": part.to_spec()["w0"], "b0": part.to_spec()["b0"]}
    space = unf.WeightSpace.from_spec(keep, {k: PARAMS[k] for k in keep}).relax()
    theta = init_theta("unf", space, key=KEY)
    masked = optax.masked(learned_optimizer(theta), {k: k in keep for k in PARAMS})
    state = masked.init(PARAMS)
    updates, _ = masked.update(GRADIENTS[0], state, PARAMS)
    assert_close({k: updates[k] for k in ("w1", "b1")}, {k: GRADIENTS[0][k] for k in ("w1", "b1")})
    alone = learned_optimizer(theta)
    inner = {k: PARAMS[k] for k in keep}
    wanted, _ = alone.update({k: GRADIENTS[0][k] for k in keep}, alone.init(inner), inner)
    assert_close({k: updates[k] for k in keep}, wanted)


def test_the_scale_can_be_scheduled():
    make = optax.inject_hyperparams(learned_optimizer, static_args=("theta",))
    optimizer = make(theta=THETA, scale=optax.linear_schedule(1.0, 0.0, 2))
    state = optimizer.init(PARAMS)
    sizes = []
    for _ in range(3):
        updates, state = optimizer.update(GRADIENTS[0], state, PARAMS)
        sizes.append(float(jnp.linalg.norm(updates["w0"])))
    assert sizes[0] > 0 and sizes[2] == 0
    injected = optax.inject_hyperparams(learned_optimizer)(theta=THETA, scale=0.5)
    half, _ = injected.update(GRADIENTS[0], injected.init(PARAMS), PARAMS)
    whole, _ = learned_optimizer(THETA).update(
        GRADIENTS[0], learned_optimizer(THETA).init(PARAMS), PARAMS
    )
    assert_close(jax.tree.map(lambda x: 2 * x, half), whole)


def test_under_scan_vmap_and_grad():
    optimizer = learned_optimizer(THETA)
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *GRADIENTS)

    def scanned(params):
        def body(carry, gradient):
            params, state = carry
            updates, state = optimizer.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(body, (params, optimizer.init(params)), stacked)[0][0]

    assert_close(jax.jit(scanned)(PARAMS), run(optimizer))
    both = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), PARAMS)
    vmapped = jax.jit(jax.vmap(scanned))(both)
    assert_close(jax.tree.map(lambda x: x[0], vmapped), run(optimizer))

    def meta_loss(theta):
        return sum(jnp.sum(x**2) for x in jax.tree.leaves(run(learned_optimizer(theta))))

    slopes = jax.jit(jax.grad(meta_loss))(THETA)
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(slopes))
    assert any(bool((x != 0).any()) for x in jax.tree.leaves(slopes.head))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32, jnp.float64])
def test_updates_have_the_type_of_parameters(dtype):
    params, gradients = random_like(SPACE, 1, dtype), random_like(SPACE, 2, dtype)
    optimizer = learned_optimizer(THETA)
    updates, state = jax.jit(optimizer.update)(gradients, optimizer.init(params), params)
    assert {x.dtype for x in jax.tree.leaves(updates)} == {jnp.dtype(dtype)}
    wide = jnp.promote_types(dtype, jnp.float32)
    assert {x.dtype for x in jax.tree.leaves((state.nominal, state.momenta))} == {wide}


@pytest.mark.parametrize("kind", ["sgdm", "deepset", "tied"])
def test_adaptive_steps_know_no_scale(kind):
    """With tensors sᵢ times as large and a loss r times as large, steps are sᵢ times as large."""
    space = spaces.mlp(3, 4, 2)
    theta = randomized(init_theta(kind, key=KEY, form=FORMS["adaptive"]))
    params, gradients = random_like(space, 1), random_like(space, 2)
    scales = dict(zip(params, (2.0, 0.5, 10.0, 1.0), strict=True))
    step = jax.jit(lambda p, g: run(learned_optimizer(theta, space=space), p, [g, g]))
    moved = step(params, gradients)
    scaled = {path: scales[path] * x for path, x in params.items()}
    steeper = {path: 7.0 / scales[path] * x for path, x in gradients.items()}
    expected = {path: scales[path] * x for path, x in moved.items()}
    assert_close(step(scaled, steeper), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["sgdm", "tied"])
def test_adaptive_steps_do_not_jump_with_the_gradients(kind):
    """A gradient that is suddenly a thousand times as large makes no long step."""
    space = spaces.mlp(3, 4, 2)
    theta = init_theta(kind, key=KEY, form=FORMS["adaptive"], gamma=0.0)
    params, usual = random_like(space, 1), [random_like(space, seed) for seed in range(2, 22)]
    large = jax.tree.map(lambda g: 1000 * g, random_like(space, 30))
    optimizer = learned_optimizer(theta, space=space)
    before, after = (run(optimizer, params, usual + more) for more in ([], [large]))
    for name, w in params.items():
        factor = 1 if kind == "tied" or w.ndim < 2 else (4096 / w.size) ** 0.25
        bound = 1.3 * float(theta.alpha) * factor * max(rms(np.asarray(w)), 0.05)
        assert rms(np.asarray(after[name] - before[name])) <= bound


@pytest.mark.parametrize("kind", ["deepset", "unf", "tied"])
def test_adaptive_steps_vanish_with_the_gradients(kind):
    space, options = spaces.mlp(3, 4, 2), {"form": FORMS["adaptive"], "key": KEY}
    theta = randomized(init_theta(kind, space, **options))
    params = random_like(space, 1)
    zeros = [jax.tree.map(jnp.zeros_like, params)] * 2
    assert_close(run(learned_optimizer(theta, space=space), params, zeros), params)
    moved = run(learned_optimizer(theta, space=space), params, [random_like(space, 2)])
    assert all(bool((moved[name] != params[name]).any()) for name in params)


def test_any_width():
    """An optimizer fits wider networks by itself, and does there what `on` makes of it."""
    wide = spaces.mlp(5, 9, 3)
    params, gradients = random_like(wide, 1), random_like(wide, 2)
    by_itself = run(learned_optimizer(THETA), params, [gradients])
    assert_close(by_itself, run(learned_optimizer(THETA.on(wide)), params, [gradients]))
    assert_close(by_itself, run(learned_optimizer(THETA.on(wide.relax())), params, [gradients]))
    assert THETA.on(wide).on(SPACE).space == SPACE
    nfn = init_theta("nfn", spaces.paper_cnn().relax(), key=KEY, spatial=(-1, -3))
    again = nfn.on(nfn.space.resize({2: 5}))
    assert again.head.plan.in_space.fixed == nfn.head.plan.in_space.fixed


def test_any_network(tmp_path):
    """One tied optimizer trains networks of other depths, and is the same after `save`."""
    theta = init_theta("tied", key=KEY, beta=0.5)
    save(tmp_path / "tied", theta, task="several")
    again = load(tmp_path / "tied")
    for space in (spaces.mlp(3, 4, 2), spaces.mlp(5, 4, 4, 3)):
        params, gradients = random_like(space, 1), random_like(space, 2)
        moved = run(learned_optimizer(theta, space=space), params, [gradients])
        assert_close(moved, run(learned_optimizer(again.on(space)), params, [gradients]))
        from_file = learned_optimizer(tmp_path / "tied", space=space)
        assert_close(moved, run(from_file, params, [gradients]))
    with pytest.raises(unf.SpecError, match=r"needs the weight space(.|\n)*space=unf\.infer"):
        learned_optimizer(theta).init(params)
    with pytest.raises(ValueError, match="is on one weight space; save it as it was before `on`"):
        save(tmp_path / "bound", theta.on(space))


def test_what_sizes_do_not_decide_is_left_to_the_user():
    shapes = {"q": jnp.zeros((3, 8)), "o": jnp.zeros((8, 3))}
    spec = {"q": "d (h h.k)", "o": "(h h.k) d"}
    space = unf.WeightSpace.from_spec(spec, shapes, sizes={"h": 2})
    theta = init_theta("unf", space, key=KEY)
    params = {"q": jnp.zeros((3, 16)), "o": jnp.zeros((16, 3))}
    with pytest.raises(unf.SpecError, match=r"not determined(.|\n)*pass theta\.on\(space\)"):
        learned_optimizer(theta).init(params)
    wide = unf.WeightSpace.from_spec(spec, params, sizes={"h": 4})
    learned_optimizer(theta.on(wide)).init(params)


def test_mistakes():
    optimizer = learned_optimizer(THETA)
    with pytest.raises(ValueError, match=r"reads the parameters: call update\(gradients, state, p"):
        optimizer.update(GRADIENTS[0], optimizer.init(PARAMS))
    with pytest.raises(unf.SpecError, match="another network") as error:
        optimizer.init({"w": jnp.zeros((2, 2))})
    assert "b0" in str(error.value) and "deepset" in str(error.value)
    with pytest.raises(unf.SpecError, match="gradients do not match") as error:
        optimizer.update({**GRADIENTS[0], "w0": jnp.zeros(())}, optimizer.init(PARAMS), PARAMS)
    assert "w0" in str(error.value)
    deepset = learned_optimizer(init_theta("deepset", key=KEY))
    with pytest.raises(unf.SpecError, match="not an array of real numbers"):
        deepset.init({"steps": jnp.zeros(3, jnp.int32)})
    mesh = jax.sharding.Mesh(jax.devices()[:1], "devices")
    with pytest.raises(ValueError, match="needs their weight space"):
        learned_optimizer(init_theta("deepset", key=KEY), mesh=mesh)
    with pytest.raises(ValueError, match="hidden_channels is 0; expected at least 1"):
        init_theta("deepset", key=KEY, hidden_channels=0)
    with pytest.raises(ValueError, match="alpha is nan"):
        init_theta("sgdm", key=KEY, alpha=float("nan"))
    with pytest.raises(ValueError, match="kind is 'adam'; expected one of"):
        init_theta("adam", key=KEY)
    with pytest.raises(unf.SpecError, match="needs the weight space"):
        init_theta("unf", key=KEY)
    with pytest.raises(ValueError, match="head_start is 'zero'"):
        init_theta("unf", SPACE, key=KEY, head_start="zero")
    with pytest.raises(ValueError, match=r"gamma 1\.5"):
        init_theta("sgdm", key=KEY, gamma=1.5)
    for name, wrong in itertools.product(Form.CHOICES, ["other"]):
        with pytest.raises(ValueError, match=f"{name} is 'other'; expected one of"):
            Form(**{name: wrong})


def test_the_defaults_are_the_papers_text():
    assert FORMS["paper"] == Form() == Form(momentum="sum", normalize="none", time="sine")
    theta = init_theta("deepset", key=KEY)
    np.testing.assert_allclose([theta.alpha, theta.beta, theta.gamma], [0.1, 0.001, 0.9], rtol=1e-6)


def test_update_mistakes():
    optimizer = learned_optimizer(THETA)
    state = optimizer.init(PARAMS)
    with pytest.raises(ValueError, match="the state of another optimizer"):
        optimizer.update(PARAMS, optax.adam(1e-3).init(PARAMS), PARAMS)
    with pytest.raises(unf.SpecError, match=r"gradients do not match[\s\S]*in this order"):
        optimizer.update({"w0": PARAMS["w0"]}, state, PARAMS)
