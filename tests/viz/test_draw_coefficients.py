"""Heat maps of coefficients, and what notebooks show of layers and models."""

from xml.etree import ElementTree

import equinox as eqx
import jax
import numpy as np
import pytest

import unf
from tests.laws.architectures import ARCHITECTURES, space_of
from unf.basis import terms
from unf.nn import UNFLinear
from unf.viz import draw_coefficients, to_html

SPACE = space_of({"w": ("a b", (4, 3)), "b": ("b", (3,)), "o": ("b [out]", (3, 2))})
KEY = jax.random.key(0)
SVG = "{http://www.w3.org/2000/svg}"
DARKEST, BRIGHTEST = "#440154", "#fde725"


def only(layer, chosen, value=1.0):
    """The layer with `value` as the coefficients of some terms, and zeros elsewhere."""
    coefficients = {name: np.zeros(x.shape, x.dtype) for name, x in layer.coefficients.items()}
    for term in filter(chosen, terms(layer.plan)):
        coefficients[term.core][term.slices(layer.in_channels, layer.out_channels)] = value
    return eqx.tree_at(lambda layer: layer.coefficients, layer, coefficients)


def cells(svg):
    """The color of each cell by its title."""
    tree = ElementTree.fromstring(svg)
    found = [x for x in tree.iter(f"{SVG}rect") if x.get("class") == "cell"]
    return {x.find(f"{SVG}title").text.rpartition(":")[0]: x.get("fill") for x in found}


def texts(svg):
    return [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_cell_is_bright_if_its_leaves_have_large_coefficients():
    layer = only(UNFLinear(SPACE, 2, 3, key=KEY), lambda t: (t.target, t.source) == ("b", "w"))
    found = cells(draw_coefficients(layer))
    assert found.pop("b from w") == BRIGHTEST and set(found.values()) == {DARKEST}


def test_the_strongest_term_is_listed_first_and_may_exceed_the_color_bar():
    """A cell averages over all terms between two leaves, so its value is below its largest term."""
    layer = only(
        UNFLinear(SPACE, 1, 1, key=KEY), lambda t: t.is_identity and t.target == "o", value=2.0
    )
    found = texts(draw_coefficients(layer, strongest=2))
    assert found[-2].startswith("2.000  o <- o: E[a] = X[a]") and found[-1].startswith("0.000")
    bar = [float(x) for x in found if x.replace(".", "").isdigit()]
    assert bar[0] == 0 and bar[1] == pytest.approx(bar[2] / 2, rel=0.1) and 0 < bar[2] < 2


@pytest.mark.parametrize("name", ["mlp", "attention, nested"])
def test_a_cell_for_each_pair_of_leaves(name):
    space = ARCHITECTURES[name]
    found = cells(draw_coefficients(UNFLinear(space, 1, 1, key=KEY)))
    assert len(found) == len(space.leaves) ** 2 and all(len(color) == 7 for color in found.values())


def test_coefficients_that_are_not_finite_are_gray():
    layer = only(UNFLinear(SPACE, 1, 1, key=KEY), lambda t: t.target == "b", value=np.nan)
    found = cells(draw_coefficients(layer))
    assert found["b from w"] == "#8c8c8c"


def test_other_objects_are_refused():
    with pytest.raises(TypeError, match="cannot draw a dict"):
        to_html({})


def test_modules_print_in_brief():
    """Also inside of other modules, where Equinox would print a plan's every index."""
    model = unf.models.UNF(SPACE, 1, 2, key=KEY)
    assert repr(model).count("UNFLinear(") == 3 and len(repr(model).splitlines()) < 25
    assert "WeightSpace(3 leaves, 21 weights; b=3, a=4; fixed out=2)" in repr(model)


@pytest.mark.parametrize("kind", ["UNF", "InvariantUNF", "InvariantDeepSet", "StatNN"])
def test_models_in_notebooks_count_their_parameters(kind):
    model = getattr(unf.models, kind)(SPACE, 1, 2, key=KEY)
    rows = [
        [cell.text or "" for cell in row]
        for row in ElementTree.fromstring(model._repr_html_()).iter("tr")
    ]
    counts = [int(row[-1].replace(",", "")) for row in rows[1:]]
    leaves = jax.tree.leaves(eqx.filter(model, eqx.is_array))
    title = "UNF" if kind == "UNF" else "Invariant"
    assert rows[0][0] == title and counts[-1] == sum(counts[:-1]) == sum(x.size for x in leaves)
