"""One table of small weight spaces through which all laws are run."""

from collections.abc import Collection, Iterable
from functools import partial

import jax
import jax.numpy as jnp
import pytest

from unf import WeightSpace
from unf.testing import spaces


def space_of(entries: dict, **sizes: int) -> WeightSpace:
    """A space from `{path: (spec, shape)}`."""
    shapes = {p: jax.ShapeDtypeStruct(shape, jnp.float32) for p, (_, shape) in entries.items()}
    return WeightSpace.from_spec({p: spec for p, (spec, _) in entries.items()}, shapes, sizes=sizes)


FOURFOLD = "one name four times"
ARCHITECTURES: dict[str, WeightSpace] = {
    "mlp": space_of(
        {"w0": ("a b", (2, 3)), "b0": ("b", (3,)), "w1": ("b c", (3, 2)), "b1": ("c", (2,))}
    ),
    "mlp without biases": space_of({"w0": ("[i] a", (2, 3)), "w1": ("a [o]", (3, 2))}),
    "cnn 1d": space_of({"k0": ("[k] [i] a", (3, 2, 2)), "k1": ("[k] a b", (3, 2, 2))}),
    "cnn 2d": space_of(
        {"k": ("[3 2] a b", (3, 2, 2, 3)), "b": ("b", (3,)), "w": ("b [o]", (3, 2))}
    ),
    "cnn 2d, all permuted": space_of(
        {"k": ("kh kw a b", (2, 2, 2, 2)), "b": ("b", (2,)), "w": ("b o", (2, 2))}
    ),
    "rnn": space_of({"x": ("[i] h", (2, 3)), "r": ("h h", (3, 3)), "b": ("h", (3,))}),
    "gru seq2seq": spaces.gru_seq2seq(hidden=2, vocabulary=2),
    "residual": space_of(
        {"in": ("[i] d", (2, 3)), "up": ("d m", (3, 2)), "down": ("m d", (2, 3)), "n": ("d", (3,))}
    ),
    "attention, axes": space_of({"q": ("d h k", (3, 2, 2)), "o": ("h k d", (2, 2, 3))}),
    "attention, products": space_of({"q": ("d (h k)", (2, 4)), "o": ("(h k) d", (4, 2))}, h=2),
    "attention, nested": space_of(
        {"q": ("d (h h.k)", (2, 4)), "b": ("(h h.k)", (4,)), "o": ("(h h.k) d", (4, 2))}, h=2
    ),
    "tied embedding": space_of({"e": ("[v] d", (3, 3)), "w": ("d d", (3, 3)), "b": ("[v]", (3,))}),
    "fused gates": space_of(
        {"h": ("(3 h) h", (6, 2)), "x": ("(3 h) [i]", (6, 2)), "b": ("(3 h)", (6,))}
    ),
    "fused qkv": space_of(
        {"qkv": ("d ((h k) + (h k) + (h v))", (2, 8)), "o": ("(h v) d", (4, 2))}, h=2, k=1
    ),
    "interleaved qkv": space_of(
        {"qkv": ("d (h (h.k + h.k + h.v))", (2, 8)), "o": ("(h h.v) d", (4, 2))}, h=2
    ),
    "concatenated skips": space_of(
        {"a": ("[i] a", (2, 2)), "b": ("a b", (2, 3)), "c": ("(a + b + [i]) c", (7, 2))}
    ),
    "stacked for a scan": space_of(
        {"up": ("[layer] d layer.m", (2, 2, 3)), "down": ("[layer] layer.m d", (2, 3, 2)),
         "scale": ("[layer] d", (2, 2))}
    ),
    "stacked twice": space_of(
        {"w": ("([l] l.c) ([l] l.c)", (4, 4)), "v": ("([l] l.c)", (4,))}, l=2
    ),
    "keys and values in one array": space_of(
        {"kv": ("[kv] h [2] kv{[k] | h.v}", (2, 2, 2, 2)), "q": ("h [k]", (2, 2)),
         "o": ("h h.v d", (2, 2, 2))}
    ),
    "layers in a row, stacked": space_of(
        {"w": ("[l] l{a | b} l{b | c}", (2, 2, 2)), "b": ("[l] l{b | c}", (2, 2))}
    ),
    "flatten before dense": space_of(
        {"k": ("[2] a", (2, 2)), "w": ("([2 2] a) b", (8, 2)), "t": ("(a [2 2]) b", (8, 2))}
    ),
    "grouped convolution": space_of(
        {"k": ("[2] g.i (g g.o)", (2, 2, 4)), "n": ("(g g.o)", (4,))}, g=2
    ),
    "rank 0": space_of({"s": ("", ()), "t": ("", ()), "v": ("a", (3,))}),
    "rank 5": space_of({"w": ("a b c a d", (2, 2, 2, 2, 2)), "v": ("c", (2,))}),
    "one name three times": space_of({"w": ("n n n", (2, 2, 2))}),
    FOURFOLD: space_of({"w": ("n n n n", (2, 2, 2, 2))}),
    "heads twice": space_of({"w": ("h h.k h h.k", (2, 2, 2, 2)), "b": ("h h.k", (2, 2))}),
    "nested twice": space_of(
        {"w": ("a a.b a.b.c", (2, 2, 2)), "v": ("a a.b", (2, 2)), "s": ("a", (2,))}
    ),
    "nested in a fixed axis in a permuted one": space_of(
        {"w": ("h [h.l] h.l.m", (2, 2, 2)), "v": ("h", (2,))}
    ),
}  # fmt: skip

TYPICAL = (
    "mlp", "cnn 2d", "rnn", "attention, nested", "fused qkv", "grouped convolution",
    "stacked for a scan", "tied embedding", "rank 0",
)  # fmt: skip
"""One of each kind."""


def by_day(chosen: Collection[str], names: Iterable[str]) -> pytest.MarkDecorator:
    """Runs a test on all of these at night, and by day on the chosen ones."""
    marks = {name: [] if name in chosen else [pytest.mark.nightly] for name in names}
    return pytest.mark.parametrize("name", [pytest.param(n, marks=m) for n, m in marks.items()])


typical_by_day = partial(by_day, TYPICAL)
every_architecture = by_day(ARCHITECTURES.keys() - {FOURFOLD}, ARCHITECTURES)
"""Runs a test on all of them, at night also on the one with 4,140 terms."""
