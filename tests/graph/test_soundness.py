"""Programs that once got more symmetries than they have, or none for a wrong reason."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import unf


def layers(p, x, body):
    return lax.scan(lambda c, q: (body(c, q), None), x, p)[0]


def mlp_layer(c, q):
    return c + jnp.tanh(c @ q["u"]) @ q["v"]


def indexed_in_a_loop(p, x):
    def body(s):
        return s[0] + 1, s[1] + jnp.tanh(s[1] @ p["u"][s[0]]) @ p["v"][s[0]]

    return lax.while_loop(lambda s: s[0] < 3, body, (0, x))[1]


def padded_carry(p, x):
    start = jnp.concatenate([p["p"], jnp.zeros(3)])
    return lax.scan(lambda c, _: (c + p["q"], total(p["r"] * c)), start, None, length=3)[1]


def batch_groups(p, x):
    y = lax.conv_general_dilated(
        p["x"], jnp.ones((1, 3, 4)), (1,), "VALID", batch_group_count=2,
        dimension_numbers=("NWC", "WIO", "NWC"),
    )  # fmt: skip
    return total(p["r"][None, None] * y)


def pairs_of_two_groups(p, x):
    """The same three columns belong to the second group in `w`, to the first in `v`."""
    both = p["w"].reshape(1, 2, 3) * p["v"][:, None] + p["u"].reshape(2, 2, 3)
    sums = p["w"].reshape(2, 3).sum(1), p["v"].sum(1)
    return total(both * p["g"][:, None, None]) + total((sums[0] + 2 * sums[1]) * p["g"])


def merged_with_another_group(p, x):
    """A transposition in between makes the columns those of the other group."""
    w = p["w"].reshape(2, 2, 3)
    y = w.transpose(1, 0, 2).reshape(2, 6) + 2 * p["w"]
    return total(y) + total(w.sum(-1) + p["g"][:, None] + p["g"][None])


def total(x):
    return jnp.sum(jnp.tanh(x))


def chosen(p, x):
    branches = [lambda x, i=i: mlp_layer(x, {k: w[i] for k, w in p.items()}) for i in range(3)]
    return lax.switch(jnp.int32(x[0] > 0), branches, x)


def chosen_in_turn(p, x):
    branches = [lambda x, i=i: mlp_layer(x, {k: w[i] for k, w in p.items()}) for i in range(3)]
    return lax.fori_loop(0, 3, lambda i, x: lax.switch(i, branches, x), x)


def gradient_of(fn):
    def loss(p, x):
        return jnp.sum(fn(p, x) ** 2 * jnp.arange(1.0, 5.0))

    return jax.value_and_grad(loss)


def one_by_one(p, x):
    for i in range(3):
        x = mlp_layer(x, {k: w[i] for k, w in p.items()})
    return x


def collected(p, x):
    """All layers' hidden units, and their sum over the layers."""

    def step(c, q):
        return mlp_layer(c, q), jnp.tanh(c @ q["u"])

    x, hidden = lax.scan(step, x, p)
    return jnp.sum(jnp.sort(x)) + total(hidden) + total(jnp.sum(hidden, 0) ** 2)


def of_two_kinds(mix):
    """Two rows of a product with x, which `mix` also combines with each other before or after."""

    def fn(p, x):
        y = jnp.einsum("i,cik->ck", x, p["w"])
        before, after = mix(y, p)
        a, b = before
        return total(a * p["r"]) + total(jnp.sum(b)) + after(before)

    return fn, {"w": (2, 4, 3), "r": (3,), "m": (2, 2)}


def nothing(_):
    return 0.0


STACK = {"u": (3, 4, 5), "v": (3, 5, 4)}
PROGRAMS = {
    "flipped and added": (lambda p, x: total(p["w"] + jnp.flip(p["w"], 0)), {"w": (2, 3)}),
    "cumulated and added": (lambda p, x: total(p["w"] + jnp.cumsum(p["w"], 0)), {"w": (3, 3)}),
    "indexed and added": (
        lambda p, x: total(p["w"] + p["w"][jnp.array([1, 0, 1])]),
        {"w": (3, 3)},
    ),
    "cut across": (
        lambda p, x: total(p["w"].reshape(6, 3)[1:3] + p["w"].sum(1)),
        {"w": (2, 3, 3)},
    ),
    "a counter is no constant": (
        lambda p, x: lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c * p["g"][i] + 1.0), x),
        {"g": (3,)},
    ),
    "layers indexed in a loop": (indexed_in_a_loop, STACK),
    "a counted mask": (
        lambda p, x: lax.scan(
            lambda c, _: (c + 1.0, jnp.sum(p["w"] * (jnp.arange(4.0) * c))),
            jnp.array(0.0),
            None,
            length=3,
        )[1],
        {"w": (4,)},
    ),
    "a padded carry": (padded_carry, {"p": (2,), "q": (5,), "r": (5,)}),
    "products that do not fit": (
        lambda p, x: total((jnp.tile(p["p"], 2) + p["b"].reshape(6)) * p["r"]),
        {"p": (3,), "b": (3, 2), "r": (6,)},
    ),
    "groups of a batch": (batch_groups, {"x": (4, 5, 3), "r": (4,)}),
    "the sign of zero": (
        lambda p, x: total(jnp.arctan2(jnp.array([0.0, -0.0, 0.0]), -jnp.abs(p["w"])) * p["w"]),
        {"w": (3,)},
    ),
    "rolled, and one row": (
        lambda p, x: jnp.sum(jnp.roll(p["w"], 1, -1)) + jnp.sum(p["w"][1]),
        {"w": (3, 4)},
    ),
    "layers, and some of them": (
        lambda p, x: layers(p, x, mlp_layer).sum() + jnp.sum(p["v"][:2, 0, 0]),
        STACK,
    ),
    "a long shift": (lambda p, x: total(jnp.roll(p["w"], 1) + p["w"]), {"w": (500,)}),
    "an empty part": (lambda p, x: jnp.split(p["w"], [4])[0].sum(), {"w": (4,)}),
    "many empty parts": (
        lambda p, x: sum(jnp.sum(q) for q in jnp.array_split(p["w"], 6)),
        {"w": (4,)},
    ),
    "nothing concatenated": (
        lambda p, x: jnp.concatenate([p["w"], jnp.arange(0.0)]).sum(),
        {"w": (4,)},
    ),
    "a dilated window": (
        lambda p, x: jnp.sum(
            p["v"]
            * lax.reduce_window(p["w"], 0.0, lax.add, (1,), (1,), "VALID", base_dilation=(2,))
        ),
        {"w": (4,), "v": (7,)},
    ),
    "a Gram matrix": (lambda p, x: total(p["w"] @ p["w"].T), {"w": (3, 4)}),
    "pairs of two groups": (pairs_of_two_groups, {"w": (6,), "v": (2, 3), "u": (2, 6), "g": (2,)}),
    "merged with another group": (merged_with_another_group, {"w": (2, 6), "g": (2,)}),
    "two axes nested in a fixed one": (
        lambda p, x: (
            jnp.sum(x[:3] * (jnp.sin(p["w"]) @ jnp.kron(jnp.eye(3), jnp.ones((2, 1))))[0])
            + total(jnp.kron(jnp.eye(3), jnp.ones((1, 2))) @ p["w"])
        ),
        {"w": (6, 6)},
    ),
    "scattered onto itself": (
        lambda p, x: total(p["w"].at[jnp.array([1, 2, 0])].add(p["w"])),
        {"w": (3, 3)},
    ),
    "shifted into itself": (
        lambda p, x: total(p["w"].at[1:].add(p["w"][:-1])),
        {"w": (3, 3)},
    ),
    "overwritten beyond the end": (
        lambda p, x: total(lax.dynamic_update_slice(p["w"], p["v"], (3,)) * p["u"]),
        {"w": (4,), "v": (2,), "u": (4,)},
    ),
    "layers chosen": (chosen, STACK),
    "layers chosen in turn": (chosen_in_turn, STACK),
    "a gradient through layers": (gradient_of(lambda p, x: layers(p, x, mlp_layer)), STACK),
    "a gradient through layers one by one": (gradient_of(one_by_one), STACK),
    "hidden units of all layers": (collected, STACK),
    "layers added to another leaf": (
        lambda p, x: (
            total(lax.scan(lambda c, w: (c, jnp.tanh(w)), 0.0, p["u"])[1] + p["w"][None])
            + jnp.sum(p["w"][0] * x[:3])
        ),
        {"u": (3, 4, 3), "w": (4, 3)},
    ),
    "kinds": of_two_kinds(lambda y, p: (y, nothing)),
    "kinds flipped and added": of_two_kinds(lambda y, p: (y + jnp.flip(y, 0), nothing)),
    "kinds flipped before": of_two_kinds(lambda y, p: (jnp.flip(y, 0), lambda _: total(y[0]))),
    "kinds cumulated": of_two_kinds(lambda y, p: (jnp.cumsum(y, 0), nothing)),
    "kinds mixed": of_two_kinds(lambda y, p: (p["m"] @ jnp.tanh(y), nothing)),
    "kinds summed before": of_two_kinds(lambda y, p: (y * jnp.sum(y, 0)[None], nothing)),
    "kinds summed after": of_two_kinds(lambda y, p: (y, lambda y: total(jnp.sum(y, 0)))),
    "kinds mixed after": of_two_kinds(lambda y, p: (y, lambda y: total(p["m"] @ y))),
    "kinds flipped after": of_two_kinds(lambda y, p: (y, lambda y: total(y + jnp.flip(y, 0)))),
    "kinds merged after": of_two_kinds(
        lambda y, p: (y, lambda y: total(y.reshape(6)[1:] * y.reshape(6)[:-1]))
    ),
    "kinds compared": of_two_kinds(lambda y, p: (y, lambda y: total(y[0] * y[1]))),
    "kinds and their weights": of_two_kinds(
        lambda y, p: (y, lambda y: total(y * jnp.sum(p["w"], (0, 1))[None]))
    ),
    "kinds transposed": of_two_kinds(lambda y, p: (y, lambda y: total(y.T @ y))),
    "a gradient through kinds": (
        jax.grad(lambda p, x: of_two_kinds(lambda y, p: (y, nothing))[0](p, x)),
        {"w": (2, 4, 3), "r": (3,), "m": (2, 2)},
    ),
    "stacks of stacks": (
        lambda p, x: lax.scan(
            lambda c, q: (lax.scan(lambda c, w: (jnp.tanh(c @ w), None), c, q)[0], None),
            x,
            p["w"],
        )[0],
        {"w": (2, 3, 4, 4)},
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_found_is_a_symmetry(name):
    fn, shapes = PROGRAMS[name]
    rng = np.random.default_rng(0)
    params = {key: rng.normal(size=shape) for key, shape in shapes.items()}
    x = rng.normal(size=4)
    space = unf.infer(fn, params, x)
    assert not unf.verify(fn, params, space, x, key=jax.random.key(1)).broken


def shapes(**leaves):
    return {name: jax.ShapeDtypeStruct(shape, "float64") for name, shape in leaves.items()}


@pytest.mark.parametrize(
    ("fn", "leaves"),
    [
        (
            lambda p, x: layers(p, x, lambda c, q: c + q["g"] * (mlp_layer(c, q))),
            {"g": (3,), **STACK},
        ),
        (lambda p, x: layers(p, x, mlp_layer) + sum(jnp.sum(a**2) for a in p.values()), STACK),
        (chosen, STACK),
        (chosen_in_turn, STACK),
        (gradient_of(lambda p, x: layers(p, x, mlp_layer)), STACK),
        (gradient_of(lambda p, x: layers(p, x, jax.checkpoint(mlp_layer))), STACK),
        (gradient_of(one_by_one), STACK),
        (lambda p, x: sum(jnp.sum(a * a) for a in p.values()) + layers(p, x, mlp_layer), STACK),
    ],
    ids=[
        "with a number for each layer",
        "with a penalty after",
        "chosen",
        "chosen in turn",
        "gradient",
        "gradient recomputed",
        "gradient one by one",
        "with a penalty before",
    ],
)
def test_layers_keep_permutations_of_their_own(fn, leaves):
    spec = unf.infer(fn, shapes(**leaves), jax.ShapeDtypeStruct((4,), "float64")).to_spec()
    assert spec["u"].removeprefix("[layer").endswith("] layer.mlp")
    assert spec["v"].startswith("[layer] layer.mlp ")


def test_members_of_an_ensemble_that_is_not_averaged():
    def fn(p, x):
        return jnp.einsum("ma,mao->mo", jnp.tanh(jnp.einsum("i,mia->ma", x, p["u"])), p["v"])

    space = unf.infer(fn, shapes(u=(2, 4, 3), v=(2, 3, 5)), jax.ShapeDtypeStruct((4,), "float64"))
    assert space.to_spec() == {"u": "[out in] out.u", "v": "[out] out.u [out_2]"}


@pytest.mark.parametrize(
    ("fn", "params"),
    [
        (lambda w, x: x @ w, np.ones((4, 4))),
        (lambda p, x: (jnp.tanh(x @ p[0]), jnp.sum(p[1])), [np.ones((4, 4)), np.ones(3)]),
        (lambda p, x: {"logits": {"out": x @ p["out"]}}, {"out": np.ones((4, 4))}),
    ],
    ids=["a bare array", "positions in a list", "a name by coincidence"],
)
def test_outputs_of_a_parameters_shape_are_fixed(fn, params):
    assert unf.infer(fn, params, np.ones((4, 4))).fixed == ("in", "out")
