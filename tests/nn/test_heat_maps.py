"""Heat maps of coefficients show what flows from where to where."""

from xml.etree import ElementTree

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unf
from tests.laws.architectures import ARCHITECTURES, space_of
from unf.basis import core_terms
from unf.nn import UNFLinear, flow, picture, term_strengths

SPACE = space_of({"w": ("a b", (4, 3)), "b": ("b", (3,)), "o": ("b [out]", (3, 2))})
KEY = jax.random.key(0)


def only(layer, chosen):
    """The layer with ones as coefficients of some terms, and zeros else."""
    coefficients = {name: jnp.zeros_like(x) for name, x in layer.coefficients.items()}
    for core in layer.plan.cores:
        for term in core_terms(layer.plan, core):
            if chosen(term):
                at = term.slices(layer.in_channels, layer.out_channels)
                coefficients[core.name] = coefficients[core.name].at[at].set(1.0)
    return eqx.tree_at(lambda layer: layer.coefficients, layer, coefficients)


def test_flow_is_between_the_leaves_of_a_term():
    layer = only(UNFLinear(SPACE, 2, 3, key=KEY), lambda t: (t.target, t.source) == ("b", "w"))
    paths = [leaf.path for leaf in SPACE.leaves]
    expected = np.zeros((3, 3))
    expected[paths.index("b"), paths.index("w")] = 1
    np.testing.assert_allclose(flow(layer), expected)
    y = layer(jax.tree.map(jnp.ones_like, SPACE.unflatten([jnp.zeros((*leaf.shape, 2))
                                                           for leaf in SPACE.leaves])))  # fmt: skip
    assert float(jnp.abs(y["w"]).max()) == 0 < float(jnp.abs(y["b"]).max())


def test_the_strongest_term_is_first():
    layer = only(UNFLinear(SPACE, 1, 1, key=KEY), lambda t: t.is_identity and t.target == "o")
    (first, strength), (_, next_one), *_ = term_strengths(layer)
    assert first.is_identity and (strength, next_one) == (1.0, 0.0)
    assert len(term_strengths(layer)) == layer.plan.num_terms
    assert "1.000  o &lt;- o" in picture(layer)


@pytest.mark.parametrize("name", ["mlp", "attention, nested"])
def test_a_cell_for_each_pair_of_leaves(name):
    space = ARCHITECTURES[name]
    tree = ElementTree.fromstring(picture(UNFLinear(space, 1, 1, key=KEY)))
    cells = list(tree.iter("{http://www.w3.org/2000/svg}rect"))
    assert len(cells) == len(space.leaves) ** 2
    assert all(len(cell.get("fill")) == 7 for cell in cells)


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
