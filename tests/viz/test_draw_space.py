"""Pictures of weight spaces."""

import xml.etree.ElementTree as ET

import jax

from unf import WeightSpace
from unf.spec._grammar import names_in
from unf.testing import spaces
from unf.viz import draw_space


def tags(svg, name):
    return [x for x in ET.fromstring(svg).iter() if x.tag.endswith(name)]


def test_every_axis_has_a_dot_and_every_tensor_a_box():
    for space in (spaces.mlp(4, 3, 2), spaces.transformer(), spaces.gru_seq2seq()):
        svg = draw_space(space)
        occurrences = [
            name for leaf in space.leaves for axis in leaf.axes for name in names_in(axis)
        ]
        assert len(tags(svg, "circle")) == len(occurrences)
        assert len(tags(svg, "rect")) == len(space.leaves)
        said = {text.text for text in tags(svg, "text")}
        assert {leaf.path for leaf in space.leaves} < said
        assert {f"{name} {size}" for name, size in space.sizes.items()} < said


def test_boxes_and_dots_tell_roles():
    shape = jax.ShapeDtypeStruct((3, 3, 4, 6), "float32")
    space = WeightSpace.from_spec("[h] [w] c d", shape, roles="window window in out")
    svg = draw_space(space)
    assert "2 window in out, 3×3×4×6" in [text.text for text in tags(svg, "text")]
    assert ". axis 3, out: d" in [title.text for title in tags(svg, "title")]


def test_the_residual_stream_is_one_line():
    space = spaces.transformer()
    of_the_stream = sum("d" in str(leaf).split() for leaf in space.leaves)
    columns = [dot.get("cx") for dot in tags(draw_space(space), "circle")]
    assert max(map(columns.count, columns)) == of_the_stream


def test_names_from_anywhere_are_text():
    one = jax.ShapeDtypeStruct((2,), "float32")
    space = WeightSpace.from_spec(
        {"<script>": "a", "&": "3"}, {"<script>": one, "&": jax.ShapeDtypeStruct((3,), "float32")}
    )
    assert "<script>" not in draw_space(space)
    assert "<svg" in space._repr_html_()
