"""Roles of axes: given, by position, kept by every change of a space, and in files."""

import jax
import pytest

from unf import SpecError, WeightSpace

SHAPES = {
    "b": jax.ShapeDtypeStruct((6,), "float32"),
    "k": jax.ShapeDtypeStruct((3, 3, 4, 6), "float32"),
    "w": jax.ShapeDtypeStruct((6, 4), "float32"),
}
SPEC = {"b": "c", "k": "[h] [w] d c", "w": "c d"}
GIVEN = {"b": "scale", "k": "window window in out", "w": ("out", "in")}


def test_roles_by_position_are_those_of_jax():
    space = WeightSpace.from_spec(SPEC, SHAPES)
    assert space.roles == {
        "b": ("shift",),
        "k": ("window", "window", "in", "out"),
        "w": ("in", "out"),
    }


def test_given_roles_stay_with_their_leaves():
    space = WeightSpace.from_spec(SPEC, SHAPES, roles=GIVEN)
    assert space.roles["w"] == ("out", "in") and space.roles["b"] == ("scale",)
    for changed in (space.relax(), space.fix("c"), space.rename({"c": "channel"})):
        assert changed.roles == space.roles
    assert space.drop("k").roles == {path: space.roles[path] for path in ("b", "w")}
    assert WeightSpace.from_json(space.to_json()).roles == space.roles


def test_other_roles_make_another_space():
    by_position, given = (WeightSpace.from_spec(SPEC, SHAPES, roles=r) for r in (None, GIVEN))
    assert by_position != given
    same = WeightSpace.from_spec(SPEC, SHAPES, roles=by_position.roles)
    assert same == by_position and hash(same) == hash(by_position)


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({**GIVEN, "w": "out inside"}, "unknown roles"),
        ({**GIVEN, "w": "out"}, "1 roles for 2 axes"),
        ({**GIVEN, "w": None}, "unknown roles"),
        ({"b": "scale"}, "no entry for this part"),
    ],
)
def test_wrong_roles_are_named(roles, message):
    with pytest.raises(SpecError, match=message):
        WeightSpace.from_spec(SPEC, SHAPES, roles=roles)


def test_factors_and_parts_belong_to_stored_axes():
    shapes = {"q": jax.ShapeDtypeStruct((8, 3 * 6), "float32")}
    spec = {"q": "d ((h h.k) + (h h.k) + (h h.v))"}
    space = WeightSpace.from_spec(spec, shapes, sizes={"h": 2, "h.k": 3})
    assert [[atom.axis for atom in block.atoms] for block in space.blocks] == [[0, 1, 1]] * 3
