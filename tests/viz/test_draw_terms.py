"""Terms as index diagrams: all of them, each as its formula says."""

from xml.etree import ElementTree

import jax
import pytest

from tests.laws.architectures import ARCHITECTURES, space_of
from unf import WeightSpace
from unf.basis import cost_report, make_plan, terms
from unf.viz import draw_terms

SVG = "{http://www.w3.org/2000/svg}"


def drawn(svg):
    tree = ElementTree.fromstring(svg)
    return tree, [text.text for text in tree.iter(f"{SVG}text")]


@pytest.mark.parametrize("name", ["mlp", "rnn", "attention, nested", "fused qkv"])
def test_every_term_is_drawn_once(name):
    plan = make_plan(ARCHITECTURES[name])
    _, texts = drawn(draw_terms(plan, most=10**6))
    expected = sorted(term.formula for term in terms(ARCHITECTURES[name]))
    assert sorted(text for text in texts if text.startswith("E") and "=" in text) == expected


def test_what_is_left_out_is_counted():
    plan = make_plan(ARCHITECTURES["rnn"])
    tree, texts = drawn(draw_terms(plan, most=5))
    assert len(list(tree.iter(f"{SVG}rect"))) == 5
    assert texts[-1] == f"and {plan.num_terms - 5:,} more terms"


def test_some_terms():
    space = space_of({"w": ("n n", (4, 4)), "b": ("n", (4,))})
    chosen = [t for t in terms(make_plan(space)) if (t.source, t.target) == ("w", "b")]
    tree, texts = drawn(draw_terms(chosen))
    assert len(list(tree.iter(f"{SVG}rect"))) == 5 and "b ← w" in texts


def test_rings_are_averaged_or_broadcast():
    """Dots for kept indices, rings for others, a line from each dot of a group to the next."""
    (term,) = [t for t in terms(space_of({"w": ("n n", (4, 4))})) if t.formula == "E[a,a] = X[a,a]"]
    tree, _ = drawn(draw_terms([term]))
    assert len(list(tree.iter(f"{SVG}circle"))) == 4 and len(list(tree.iter(f"{SVG}path"))) == 3
    assert "stroke-width:2.5" not in draw_terms([term])
    (mean,) = terms(space_of({"w": ("a", (4,))}), space_of({"v": ("b", (4,))}))
    assert draw_terms([mean]).count("stroke-width:2.5") == 2
    assert "<path" not in draw_terms([mean]) and "E[a] = mean_b X[b]" in mean._repr_html_()


def test_names_cannot_leave_the_picture():
    shapes = {"<script>alert(1)</script>": jax.ShapeDtypeStruct((2, 2), "float32")}
    space = WeightSpace.from_spec({"<script>alert(1)</script>": "n n"}, shapes)
    for html in (make_plan(space)._repr_html_(), space._repr_html_(),
                 next(terms(space))._repr_html_()):  # fmt: skip
        assert "<script" not in html and "&lt;script" in html


def test_reports_in_notebooks_have_the_figures_of_the_text():
    space = space_of({"w": ("a b", (8, 16)), "v": ("b", (16,))})
    for devices in (1, 8):
        report = cost_report(space, 2, 2, devices=devices)
        cells = ElementTree.fromstring(report._repr_html_()).iter("td")
        words = str(report).split()
        assert all(part in words for cell in cells for part in (cell.text or "").split())
