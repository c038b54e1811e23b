"""Every rule by itself: what it ties, cuts and fixes, and that this is a symmetry."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import pytest

import unf
from tests.graph.compare import canonical
from tests.graph.networks import fill
from unf._jaxprs import INLINED
from unf.graph import Equation, Value
from unf.graph._expressions import Reason, Variable
from unf.graph._registry import RULES
from unf.graph.rules.arithmetic import SEVERAL, UNARY


@dataclass(frozen=True)
class Row:
    """A function of parameters, their shapes, and the specification expected."""

    fn: Callable
    shapes: dict[str, tuple[int, ...]]
    expected: dict[str, str]
    sizes: dict[str, int]


def row(fn: Callable, sizes: Any = None, **leaves: Any) -> Row:
    """Each leaf is its shape, with its specification behind."""
    shapes = {name: tuple(leaf[:-1]) for name, leaf in leaves.items()}
    return Row(fn, shapes, {name: leaf[-1] for name, leaf in leaves.items()}, sizes or {})


def total(x):
    """A number that any permutation of any axis of x leaves alone."""
    return jnp.sum(jnp.tanh(x))


def weigh(x, p):
    """The same, with a weight for each row and column, so that axes are not nested."""
    return jnp.sum(jnp.tanh(x * p["r"][:, None]) * p["c"][None])


def conv(x, kernel, **options):
    return jax.lax.conv_general_dilated(
        x, kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"), **options
    )


def loop(p, body, x):
    return jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, body(s[1])), (0, x))[1]


MASK = jnp.array([1.0, 2.0, 3.0])

ROWS = {
    "transpose": row(
        lambda p: weigh(p["x"].T, p),
        x=(4, 3, "b a"),
        r=(3, "a"),
        c=(4, "b"),
    ),
    "squeeze": row(
        lambda p: total(jnp.squeeze(p["x"], 1) + p["y"]),
        x=(3, 1, "a 1"),
        y=(3, "a"),
    ),
    "broadcast_in_dim": row(
        lambda p: weigh(jnp.broadcast_to(p["x"], (3, 4)), p),
        x=(4, "b"),
        r=(3, "a"),
        c=(4, "b"),
    ),
    "reshape merging": row(
        lambda p: total(p["x"].reshape(12) * p["y"] + jnp.tile(p["z"], 3)),
        x=(3, 4, "b.a b"),
        y=(12, "(b.a b)"),
        z=(4, "b"),
    ),
    "reshape there and back": row(
        lambda p: total(jnp.tanh(p["x"].reshape(3, 4)).reshape(12) + p["y"]),
        x=(12, "a"),
        y=(12, "a"),
    ),
    "reshape across": row(
        lambda p: jnp.sum(p["x"].reshape(6, 2) @ p["y"] ** 2),
        x=(4, 3, "[4 3]"),
        y=(2, "2"),
    ),
    "reduce_sum": row(
        lambda p: total(jnp.sum(p["x"], 0) + p["y"]),
        x=(3, 4, "b.a b"),
        y=(4, "b"),
    ),
    "reduce_prod": row(
        lambda p: total(jnp.prod(p["x"], 1) + p["y"]),
        x=(3, 4, "a a.b"),
        y=(3, "a"),
    ),
    "reduce_max": row(
        lambda p: total(jnp.max(p["x"], 1) + p["y"]),
        x=(3, 4, "a a.b"),
        y=(3, "a"),
    ),
    "reduce_min": row(
        lambda p: total(jnp.min(p["x"], 1) + p["y"]),
        x=(3, 4, "a a.b"),
        y=(3, "a"),
    ),
    "reduce": row(
        lambda p: total(
            jax.lax.reduce(p["x"], jnp.zeros((), p["x"].dtype), lambda a, b: a + b + 0 * a, (1,))
            + p["y"]
        ),
        x=(3, 4, "a a.b"),
        y=(3, "a"),
    ),
    "reduce_and": row(
        lambda p: total(jnp.all(p["x"] > 0, 1) + p["y"]),
        x=(3, 4, "a a.b"),
        y=(3, "a"),
    ),
    "reduce_or": row(
        lambda p: total(jnp.any(p["x"] > 0, 1) + p["y"]),
        x=(3, 4, "a a.b"),
        y=(3, "a"),
    ),
    "concatenate": row(
        lambda p: total(jnp.concatenate([p["x"], p["y"]]) * p["z"]),
        x=(3, "a"),
        y=(4, "b"),
        z=(7, "(a + b)"),
    ),
    "pad": row(
        lambda p: total(jnp.pad(p["x"], (1, 2)) + p["y"]),
        x=(3, "a"),
        y=(6, "(1 + a + b)"),
    ),
    "pad inside": row(
        lambda p: total(jax.lax.pad(p["x"], jnp.zeros((), p["x"].dtype), [(0, 0, 1)]) + p["y"]),
        x=(3, "3"),
        y=(5, "5"),
    ),
    "stack": row(
        lambda p: total(jnp.stack([p["x"], p["y"]], 1) * p["z"]),
        x=(3, "a"),
        y=(3, "a"),
        z=(3, 2, "a 2"),
    ),
    "unstack": row(
        lambda p: sum(total(w @ v) for w, v in zip(jnp.unstack(p["w"]), p["v"], strict=True)),
        w=(2, 3, 4, "[l] l.a l.b"),
        v=(2, 4, "[l] l.b"),
    ),
    "split": row(
        lambda p: total(jnp.split(p["x"], 2)[0] * p["y"]) + total(jnp.split(p["x"], 2)[1]),
        x=(6, "(a + b)"),
        y=(3, "a"),
    ),
    "slice": row(
        lambda p: total(p["x"][:2]) - total(p["x"][2:] * p["y"]),
        x=(5, "(a + b)"),
        y=(3, "b"),
    ),
    "slice with a stride": row(
        lambda p: total(p["x"][::2] * p["y"]) - total(p["x"][1::2]),
        x=(6, "(a 2)"),
        y=(3, "a"),
    ),
    "dynamic_slice, known": row(
        lambda p: total(jax.lax.dynamic_slice(p["x"], (1,), (2,)) + p["y"]),
        x=(4, "(1 + a + 1)"),
        y=(2, "a"),
    ),
    "dynamic_slice, unknown": row(
        lambda p: total(jax.lax.dynamic_slice(p["x"], (jnp.int32(p["i"]),), (2,))),
        x=(4, "4"),
        i=("",),
    ),
    "dynamic_update_slice": row(
        lambda p: weigh(jax.lax.dynamic_update_slice(p["x"], p["y"], (1, 0)), p),
        x=(3, 4, "3 b"),
        y=(1, 4, "1 b"),
        r=(3, "3"),
        c=(4, "b"),
    ),
    "gather": row(
        lambda p: weigh(p["x"][jnp.array([0, 2, 2])], p),
        x=(5, 4, "5 b"),
        r=(3, "3"),
        c=(4, "b"),
    ),
    "gather along a batch": row(
        lambda p: total(jnp.take_along_axis(p["x"], jnp.int32(p["i"] > 0), 1) * p["c"]),
        x=(3, 4, "a 4"),
        i=(3, 2, "a a.b"),
        c=(3, 2, "a a.b"),
    ),
    "dynamic_update_slice, known": row(
        lambda p: total(jax.lax.dynamic_update_slice(p["x"], p["y"], (1,)) * p["c"]),
        x=(6, "(1 + a + b)"),
        y=(3, "a"),
        c=(6, "(1 + a + b)"),
    ),
    "scatter": row(
        lambda p: weigh(p["x"].at[jnp.array([0, 2])].set(p["y"]), p),
        x=(3, 4, "3 b"),
        y=(2, 4, "2 b"),
        r=(3, "3"),
        c=(4, "b"),
    ),
    "scatter-add": row(
        lambda p: weigh(p["x"].at[jnp.array([0, 2])].add(p["y"]), p),
        x=(3, 4, "3 b"),
        y=(2, 4, "2 b"),
        r=(3, "3"),
        c=(4, "b"),
    ),
    "scatter-mul": row(
        lambda p: weigh(p["x"].at[jnp.array([0, 2])].multiply(p["y"]), p),
        x=(3, 4, "3 b"),
        y=(2, 4, "2 b"),
        r=(3, "3"),
        c=(4, "b"),
    ),
    "scatter-min": row(
        lambda p: weigh(p["x"].at[jnp.array([0, 2])].min(p["y"]), p),
        x=(3, 4, "3 b"),
        y=(2, 4, "2 b"),
        r=(3, "3"),
        c=(4, "b"),
    ),
    "scatter-max": row(
        lambda p: weigh(p["x"].at[jnp.array([0, 2])].max(p["y"]), p),
        x=(3, 4, "3 b"),
        y=(2, 4, "2 b"),
        r=(3, "3"),
        c=(4, "b"),
    ),
    "scatter into a known window": row(
        lambda p: weigh(p["x"].at[:, :4].multiply(2), p),
        x=(3, 6, "a (b + d)"),
        r=(3, "a"),
        c=(6, "(b + d)"),
        sizes={"b": 4},
    ),
    "scatter at one known place": row(
        lambda p: weigh(p["x"].at[1].add(p["y"]), p),
        x=(4, 3, "(2 + a) b"),
        y=(3, "b"),
        r=(4, "(2 + a)"),
        c=(3, "b"),
    ),
    "scatter at an unknown place": row(
        lambda p: weigh(p["x"].at[jnp.int32(p["i"])].set(p["y"]), p),
        x=(4, 3, "4 b"),
        y=(3, "b"),
        i=("",),
        r=(4, "4"),
        c=(3, "b"),
    ),
    "scatter-add of rows in any order": row(
        lambda p: weigh(p["x"].at[jnp.int32(p["i"] > 0)].add(p["y"]), p),
        x=(3, 4, "3 b"),
        y=(5, 4, "u b"),
        i=(5, "u"),
        r=(3, "3"),
        c=(4, "b"),
    ),
    "scatter of rows in their order": row(
        lambda p: weigh(p["x"].at[jnp.int32(p["i"] > 0)].set(p["y"]), p),
        x=(3, 4, "3 b"),
        y=(5, 4, "5 b"),
        i=(5, "5"),
        r=(3, "3"),
        c=(4, "b"),
    ),
    "scatter-add along a batch": row(
        lambda p: weigh(
            jax.vmap(lambda x, i, y: x.at[i].add(y))(p["x"], jnp.int32(p["i"] > 0), p["y"]), p
        ),
        x=(4, 3, "a 3"),
        i=(4, 2, "a a.u"),
        y=(4, 2, "a a.u"),
        r=(4, "a"),
        c=(3, "3"),
    ),
    "dot_general": row(
        lambda p: weigh(p["x"] @ p["y"], p),
        x=(3, 5, "a k"),
        y=(5, 4, "k b"),
        r=(3, "a"),
        c=(4, "b"),
    ),
    "dot_general with a batch": row(
        lambda p: total(jnp.einsum("gik,gkj->gij", p["x"], p["y"])),
        x=(2, 3, 5, "g g.a g.k"),
        y=(2, 5, 4, "g g.k g.b"),
    ),
    "conv_general_dilated": row(
        lambda p: total(conv(p["x"][None], p["k"])[0] * p["c"][None]),
        x=(6, 2, "6 i"),
        k=(3, 2, 4, "3 i o"),
        c=(4, "o"),
    ),
    "convolution, pointwise": row(
        lambda p: weigh(conv(p["x"][None], p["k"])[0], p),
        x=(3, 2, "a i"),
        k=(1, 2, 4, "1 i b"),
        r=(3, "a"),
        c=(4, "b"),
    ),
    "convolution in groups": row(
        lambda p: total(conv(p["x"][None], p["k"], feature_group_count=2)[0]),
        x=(6, 4, "6 (g g.i)"),
        k=(3, 2, 6, "3 g.i (g g.o)"),
        sizes={"g": 2},
    ),
    "convolution, batch groups": row(
        lambda p: total(conv(p["x"], p["k"], batch_group_count=2)),
        x=(4, 6, 2, "(g g.b) 6 g.i"),
        k=(3, 2, 6, "3 g.i (g g.o)"),
        sizes={"g": 2},
    ),
    "cumsum": row(
        lambda p: weigh(jnp.cumsum(p["x"], 0), p),
        x=(3, 4, "3 b"),
        r=(3, "3"),
        c=(4, "b"),
    ),
    "cumprod": row(
        lambda p: weigh(jnp.cumprod(p["x"], 0), p),
        x=(3, 4, "3 b"),
        r=(3, "3"),
        c=(4, "b"),
    ),
    "cummax": row(
        lambda p: weigh(jax.lax.cummax(p["x"], 0), p),
        x=(3, 4, "3 b"),
        r=(3, "3"),
        c=(4, "b"),
    ),
    "cummin": row(
        lambda p: weigh(jax.lax.cummin(p["x"], 0), p),
        x=(3, 4, "3 b"),
        r=(3, "3"),
        c=(4, "b"),
    ),
    "cumlogsumexp": row(
        lambda p: weigh(jax.lax.cumlogsumexp(p["x"], 0), p),
        x=(3, 4, "3 b"),
        r=(3, "3"),
        c=(4, "b"),
    ),
    "rev": row(
        lambda p: weigh(p["x"][::-1], p),
        x=(3, 4, "3 b"),
        r=(3, "3"),
        c=(4, "b"),
    ),
    "sort": row(
        lambda p: weigh(jnp.sort(p["x"], 0), p),
        x=(3, 4, "3 b"),
        r=(3, "3"),
        c=(4, "b"),
    ),
    "argmax": row(
        lambda p: total(jnp.argmax(p["x"], 0) * p["c"]),
        x=(3, 4, "3 b"),
        c=(4, "b"),
    ),
    "argmin": row(
        lambda p: total(jnp.argmin(p["x"], 0) * p["c"]),
        x=(3, 4, "3 b"),
        c=(4, "b"),
    ),
    "top_k": row(
        lambda p: total(jax.lax.top_k(p["x"], 2)[0] * p["r"][:, None]),
        x=(3, 4, "a 4"),
        r=(3, "a"),
    ),
    "fft": row(
        lambda p: weigh(jnp.abs(jnp.fft.fft(p["x"], axis=-1)).T, p),
        x=(4, 3, "b 3"),
        r=(3, "3"),
        c=(4, "b"),
    ),
    "reduce_window_max": row(
        lambda p: total(pool(p["x"], jax.lax.max, -jnp.inf) * p["c"][None]),
        x=(6, 4, "6 b"),
        c=(4, "b"),
    ),
    "reduce_window_min": row(
        lambda p: total(pool(p["x"], jax.lax.min, jnp.inf) * p["c"][None]),
        x=(6, 4, "6 b"),
        c=(4, "b"),
    ),
    "reduce_window_sum": row(
        lambda p: total(pool(p["x"], jax.lax.add, 0.0) * p["c"][None]),
        x=(6, 4, "6 b"),
        c=(4, "b"),
    ),
    "select_and_gather_add": row(
        lambda p: jax.jvp(
            lambda x: total(pool(x, jax.lax.max, -jnp.inf) * p["c"][None]), (p["x"],), (p["y"],)
        )[1],
        x=(6, 4, "6 b"),
        y=(6, 4, "6 b"),
        c=(4, "b"),
    ),
    "select_and_scatter_add": row(
        lambda p: total(
            jax.grad(lambda x: total(pool(x, jax.lax.max, -jnp.inf) * p["c"][None]))(p["x"])
        ),
        x=(6, 4, "6 b"),
        c=(4, "b"),
    ),
    "reduce_window of two arrays": row(
        lambda p: total(latest(p["x"], p["y"])[1] * p["c"][None]),
        x=(6, 4, "6 b"),
        y=(6, 4, "6 b"),
        c=(4, "b"),
    ),
    "svd, values": row(
        lambda p: total(jnp.linalg.svd(p["x"], compute_uv=False) * p["c"][:, None]),
        x=(2, 3, 4, "a a.b a.d"),
        c=(2, "a"),
    ),
    "svd, vectors": row(
        lambda p: total(jnp.linalg.svd(p["x"], full_matrices=False)[0] * p["c"][:, None, None]),
        x=(2, 3, 4, "a 3 4"),
        c=(2, "a"),
    ),
    **{
        name: row(
            lambda p, fn=fn: total(fn(gram(p["x"])) * p["c"][:, None, None]),
            x=(2, 4, 4, "a [4] a.b"),
            c=(2, "a"),
        )
        for name, fn in {
            "cholesky": jnp.linalg.cholesky,
            "eigh": lambda x: jnp.linalg.eigh(x)[1] ** 2,
            "lu": lambda x: jax.lax.linalg.lu(x)[0],
            "qr": lambda x: jnp.linalg.qr(x)[1],
            "custom_linear_solve": jnp.linalg.inv,
        }.items()
    },
    "triangular_solve": row(
        lambda p: jnp.sum(
            jax.scipy.linalg.solve_triangular(p["x"] + 9 * jnp.eye(3), p["y"]) ** 2 * p["c"][None]
        ),
        x=(3, 3, "[3 3]"),
        y=(3, 4, "[3] b"),
        c=(4, "b"),
    ),
    "solve": row(
        lambda p: jnp.sum(jnp.linalg.solve(p["x"], p["y"]) ** 2 * p["c"][None]),
        x=(3, 3, "[3 3]"),
        y=(3, 4, "[3] b"),
        c=(4, "b"),
    ),
    "conjugate gradients": row(
        lambda p: jnp.sum(jax.scipy.sparse.linalg.cg(gram(p["x"]), p["y"], maxiter=3)[0] * p["c"]),
        x=(3, 4, "a b"),
        y=(3, "a"),
        c=(3, "a"),
    ),
    "ragged_dot_general": row(
        lambda p: total(jax.lax.ragged_dot(p["x"], p["y"], jnp.array([2, 4])) @ p["c"] * p["r"]),
        x=(6, 3, "[6] k"),
        y=(2, 3, 4, "[2] k n"),
        c=(4, "n"),
        r=(6, "[6]"),
    ),
    "iota": row(
        lambda p: total(p["x"] * jnp.arange(3.0)),
        x=(3, "3"),
    ),
    "a constant that is uniform": row(
        lambda p: total(p["x"] * jnp.full((3,), 2.0)),
        x=(3, "a"),
    ),
    "a constant that is not": row(
        lambda p: total(p["x"] * MASK),
        x=(3, "3"),
    ),
    "a constant that is tiled": row(
        lambda p: total(p["x"] * jnp.tile(MASK, 4) + p["y"]),
        x=(12, "(b.a [b])"),
        y=(12, "(b.a [b])"),
        sizes={"b": 3},
    ),
    "a constant with repeats": row(
        lambda p: total(p["x"] * jnp.repeat(MASK, 4)),
        x=(12, "([b] b.a)"),
        sizes={"b": 3},
    ),
    "an identity of blocks": row(
        lambda p: total(p["x"] * jnp.kron(jnp.eye(3), jnp.ones((2, 2))) @ p["c"]),
        x=(6, 6, "(g g.a) (g g.b)"),
        c=(6, "(g g.b)"),
        sizes={"g": 3},
    ),
    "the identity": row(
        lambda p: weigh(p["x"] + jnp.eye(3), p),
        x=(3, 3, "a a"),
        r=(3, "a"),
        c=(3, "a"),
    ),
    "random numbers": row(
        lambda p: total(p["x"] * jax.random.normal(jax.random.key(0), (3,))),
        x=(3, "3"),
    ),
    "random numbers from a parameter": row(
        lambda p: total(p["x"] * jax.random.normal(jax.random.key(jnp.int32(p["seed"])), (3,))),
        x=(3, "3"),
        seed=("",),
    ),
    "while": row(
        lambda p: total(loop(p, lambda h: jnp.tanh(h @ p["w"]), p["x"])),
        x=(3, "a"),
        w=(3, 3, "a a"),
    ),
    "while, from zeros": row(
        lambda p: total(loop(p, lambda h: jnp.tanh(h @ p["w"] + p["x"]), jnp.zeros(3))),
        x=(3, "a"),
        w=(3, 3, "a a"),
    ),
    "scan": row(
        lambda p: total(
            jax.lax.scan(
                lambda h, x: (jnp.tanh(h @ p["w"] + x), h),
                p["h"],
                jnp.outer(jnp.arange(4, dtype=p["x"].dtype), p["x"]),
            )[1]
            * p["y"][None]
        ),
        h=(3, "a"),
        w=(3, 3, "a a"),
        x=(3, "a"),
        y=(3, "a"),
    ),
    "scan backwards over layers": row(
        lambda p: total(
            jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), p["h"], p["w"], reverse=True)[0]
        ),
        h=(3, "a"),
        w=(2, 3, 3, "[l] l{b | a} l{c | b}"),
    ),
    "cond": row(
        lambda p: total(jax.lax.cond(p["i"] > 0, lambda: p["x"], lambda: p["y"])),
        i=("",),
        x=(3, "a"),
        y=(3, "a"),
    ),
    "debug_callback": row(
        lambda p: total(watched(p["x"]) + p["y"]),
        x=(3, "a"),
        y=(3, "a"),
    ),
    "custom_jvp": row(
        lambda p: total(jax.nn.relu(p["x"]) + p["y"]),
        x=(3, "a"),
        y=(3, "a"),
    ),
    "checkpoint": row(
        lambda p: total(jax.checkpoint(jnp.sin)(p["x"]) + p["y"]),
        x=(3, "a"),
        y=(3, "a"),
    ),
}


def gram(x):
    """A positive definite matrix for each of a batch."""
    unit = jnp.eye(x.shape[-2], dtype=x.dtype)
    return x @ jnp.swapaxes(x, -1, -2) + jnp.expand_dims(unit, tuple(range(x.ndim - 2)))


def latest(x, y):
    """Entries of y where x is largest, in windows."""
    start = jnp.full((), -jnp.inf, x.dtype), jnp.zeros((), y.dtype)

    def larger(a, b):
        return jnp.maximum(a[0], b[0]), jnp.where(a[0] > b[0], a[1], b[1])

    return jax.lax.reduce_window((x, y), start, larger, (2, 1), (2, 1), "VALID")


def watched(x):
    jax.debug.callback(lambda x: None, x)
    return x


def pool(x, combine, start):
    return jax.lax.reduce_window(x, start, combine, (2, 1), (2, 1), "VALID")


def shapes_of(row: Row) -> dict:
    return {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in row.shapes.items()}


@pytest.mark.parametrize("name", ROWS)
def test_rule(name):
    row = ROWS[name]
    space = unf.infer(row.fn, shapes_of(row))
    expected = unf.WeightSpace.from_spec(row.expected, shapes_of(row), sizes=row.sizes)
    assert canonical(space) == canonical(expected)
    assert not unf.verify(row.fn, fill(shapes_of(row)), space, key=jax.random.key(0)).broken


@pytest.mark.parametrize("name", UNARY)
def test_unary_operations_pass_axes_on(name):
    x = Value.of([Variable(3), Variable(4)])
    (y,) = RULES[name](equation(name, (3, 4)), x)
    assert y.axes == x.axes


@pytest.mark.parametrize("name", SEVERAL)
def test_operations_on_several_arrays_make_axes_one(name):
    x, y = Value.of([Variable(3), Variable(4)]), Value.of([Variable(3), Variable(4)])
    z = RULES[name](equation(name, (3, 4)), x, y)
    assert z.axes == x.axes == y.axes


def test_every_rule_is_tested():
    """Each primitive with a rule stands in some row's jaxpr, or this JAX does not have it."""
    met = set(UNARY) | set(SEVERAL)
    for row in ROWS.values():
        met |= primitives(jax.make_jaxpr(row.fn)(shapes_of(row)).jaxpr)
    unmet = set(RULES) - met
    assert unmet <= NOT_MET, f"rules without a test: {sorted(unmet - NOT_MET)}"


# Other releases' names of primitives, and those only reached with typed keys or other back ends.
NOT_MET = {
    "approx_top_k", "cumred_reduce_window", "debug_print", "eig", "expand_dims", "geqp3", "geqrf",
    "hessenberg", "householder_product", "schur", "tridiagonal", "random_clone",
    "random_fold_in", "random_gamma", "random_split", "random_unwrap", "random_wrap", "random_seed",
    "reduce_xor", "rng_bit_generator", "rng_uniform", "scatter-sub", "scatter_add", "scatter_max",
    "scatter_min", "scatter_mul", "scatter_sub", "philox2x32", "philox4x32", "threefry2x32",
    "threefry4x32", "tile",
}  # fmt: skip


def primitives(jaxpr) -> set[str]:
    found = set()
    for eqn in jaxpr.eqns:
        found.add(eqn.primitive.name)
        for inner in jex.jaxprs_in_params(eqn.params):
            found |= primitives(inner)
    return found - INLINED


if "unstack" not in primitives(jax.make_jaxpr(jnp.unstack)(jnp.zeros((2, 2))).jaxpr):
    NOT_MET |= {"stack", "unstack"}  # primitives only since JAX 0.10.1 or 0.10.2
    del ROWS["unstack"]


def equation(name: str, *shapes: tuple[int, ...]) -> Equation:
    return Equation(name, {}, shapes, Reason(name), lambda jaxpr, operands: [], [])
