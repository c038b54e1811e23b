"""Specifications and their descriptions: a weight space, or a `SpecError`; never forever."""

import json

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.lab.faults.level import EXAMPLES
from unf import SpecError, WeightSpace, count_terms

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


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
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


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(JSON, st.one_of(st.just({}), JSON))
def test_any_description(tree, sizes):
    """Refused, or a weight space that is written and read as itself."""
    try:
        space = WeightSpace.from_json(json.dumps({"format": 1, "tree": tree, "sizes": sizes}))
    except SpecError:
        return
    assert WeightSpace.from_json(space.to_json()) == space


@pytest.mark.parametrize(
    ("spec", "shape", "sizes", "match"),
    [
        ("(" * 10_000, (2,), {}, "nested more than 32 deep"),
        ("[(" * 10_000, (2,), {}, "nested more than 32 deep"),
        ("9" * 10_000, (2,), {}, "cannot be that long"),
        ("a" + ".a" * 10_000, (2,), {}, "unexpected"),
        (f"({'a ' * 65})", (1,), {}, "65 axes, counting the factors of products"),
        ("(a + b) " * 40, (2,) * 40, {"a": 1}, "too many blocks"),
        (f"({'(a + b) ' * 40})", (2**40,), {"a": 1}, "too many blocks"),
        ("[layer] layer.m", (10**12, 2), {}, "too many blocks"),
        ("a", (2**63,), {}, "no array can have this shape"),
        ("a b", (2**40, 2**40), {}, "no array can have this shape"),
        ("a", (-2,), {}, "no array can have this shape"),
        ("a", (2,), {"a": 10**5000}, "that cannot be printed"),
        ((10**5000,), (2,), {}, "not the name of an axis"),
        ((np.arange(2),), (2,), {}, "not the name of an axis"),
    ],
    ids=lambda x: str(x)[:20] if isinstance(x, str) else "",
)
def test_what_no_network_has_is_refused_at_once(spec, shape, sizes, match):
    with pytest.raises(SpecError, match=match):
        WeightSpace.from_spec(spec, jax.ShapeDtypeStruct(shape, "float32"), sizes=sizes)


def test_many_leaves_that_need_each_other_are_solved_in_one_pass():
    leaves = 200
    spec = [f"(a{i} a{i + 1})" for i in reversed(range(leaves))]
    shapes = [jax.ShapeDtypeStruct((6,), "float32")] * leaves
    sizes = WeightSpace.from_spec(spec, shapes, sizes={"a0": 2}).sizes
    assert sizes[f"a{leaves}"] == 2 and sizes["a1"] == 3


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"format": 1, "tree": ' + '{"list": [' * 5000,
        '{"format": 1, "sizes": {}, "tree": {"spec": "a", "shape": [1e999]}}',
        '{"format": 1, "sizes": {"a": Infinity}, "tree": {"spec": "a", "shape": [2]}}',
        f'{{"format": 1, "sizes": {{}}, "tree": {{"spec": "a", "shape": [{"9" * 5000}]}}}}',
        '{"format": 1, "sizes": {}, "tree": {"dict": [[[], 1]]}}',
        '{"format": 1, "sizes": {}, "tree": {"dict": [["a", {"none": 1}]]}}',
        "null",
        "",
    ],
    ids=lambda text: text[:60],
)
def test_what_is_no_description_is_refused(text):
    with pytest.raises(SpecError, match=r"not a description|no arrays|the size inf"):
        WeightSpace.from_json(text)


@pytest.mark.parametrize(
    ("spec", "minimal", "match"),
    [
        ("n " * 7, False, r"n n n n n n n has about 1.4e\+04 views"),
        ("n " * 60, False, r"has about .* views"),
        ("a b c d e f g h i j k l m", False, r"8.2e\+03 views"),
        ("n n n n", True, r"minimal would compare [\d,]+ terms of the core"),
    ],
)
def test_layers_without_end_are_refused(spec, minimal, match, monkeypatch):
    monkeypatch.setattr("unf.basis._plan.MOST_COMPARED", 100)
    shape = jax.ShapeDtypeStruct((2,) * len(spec.split()), "float32")
    with pytest.raises(SpecError, match=match):
        count_terms(WeightSpace.from_spec(spec, shape), minimal=minimal)
