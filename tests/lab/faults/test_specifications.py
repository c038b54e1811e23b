"""Any specification or description is a weight space or raises a `SpecError`, and quickly."""

import json

import jax
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unf import SpecError, WeightSpace

NAMES = st.sampled_from(["a", "b", "h", "h.k", "#0", "[a]", "[c]", "2", "0", ""])
AXES = st.recursive(
    NAMES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda parts: f"({' '.join(parts)})"),
        st.lists(inner, max_size=4).map(lambda parts: f"({' + '.join(parts)})"),
        inner.map(lambda part: f"[{part}]"),
    ),
    max_leaves=12,
)
TEXT = st.text("ab.# 03()[]+-\t", max_size=9)
STRINGS = st.one_of(st.lists(AXES, max_size=4).map(" ".join), TEXT)
ENTRIES = st.one_of(AXES, st.integers(), st.none(), st.booleans(), st.text(max_size=3))
LEAVES = st.one_of(STRINGS, st.lists(ENTRIES, max_size=4).map(tuple), st.none(), st.integers())
SIZES = st.one_of(st.integers(1, 12), st.integers())
SHAPES = st.lists(SIZES, max_size=4).map(tuple)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from("uvw"), st.tuples(LEAVES, SHAPES), min_size=1), st.data())
def test_any_specification(leaves, data):
    spec = {name: leaf for name, (leaf, _) in leaves.items()}
    shapes = {name: jax.ShapeDtypeStruct(shape, "int8") for name, (_, shape) in leaves.items()}
    sizes = data.draw(st.dictionaries(st.sampled_from(["a", "b", "h", 0, "?"]), SIZES, max_size=2))
    try:
        space = WeightSpace.from_spec(spec, shapes, sizes=sizes)
    except SpecError:
        return
    assert WeightSpace.from_spec(space.to_spec(), shapes, sizes=space.axis_sizes) == space
    assert WeightSpace.from_json(space.to_json()) == space


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["dict", "list", "tuple", "none", "x"]), inner, max_size=2),
        st.fixed_dictionaries({"spec": STRINGS, "shape": st.lists(SIZES, max_size=3)}),
        st.lists(st.tuples(st.text(max_size=2), inner), max_size=3).map(lambda x: {"dict": x}),
    ),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(JSON, st.one_of(st.just({}), JSON))
def test_any_description(tree, sizes):
    try:
        space = WeightSpace.from_json(json.dumps({"format": 1, "tree": tree, "sizes": sizes}))
    except SpecError:
        return
    assert WeightSpace.from_json(space.to_json()) == space


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        ("(" * 10_000, (2,)),
        ("9" * 10_000, (2,)),
        (f"({'a ' * 65})", (1,)),
        (f"({'(a + b) ' * 40})", (2**40,)),
        ("[layer] layer.m", (10**12, 2)),
        ("a b", (2**40, 2**40)),
    ],
    ids=["nested", "long", "many factors", "many blocks", "many layers", "large"],
)
def test_unreasonable_specifications_are_refused_at_once(spec, shape):
    with pytest.raises(SpecError, match=r"brackets|long|axes|blocks|shape|not determined"):
        WeightSpace.from_spec(spec, jax.ShapeDtypeStruct(shape, "float32"), sizes={})
