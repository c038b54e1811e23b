"""The authors' specification of a Transformer is no symmetry; what is found is."""

import jax
import jax.numpy as jnp
import pytest

import unf
from tests.graph.networks import fill
from tests.graph.networks._case import i32
from tests.graph.networks.attention import attend
from unf.testing import spaces

WIDTH, HEADS = 4, 4


def normalize(p, path, x):
    x = x - jnp.mean(x, -1, keepdims=True)
    x = x * jax.lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-6)
    return x * p[f"{path}/scale"][None] + p[f"{path}/bias"][None]


def dense(p, path, x):
    return x @ p[f"{path}/w"] + p[f"{path}/b"][None]


def transformer(p, tokens):
    """Two pre-norm blocks, four heads, untied output, no positions."""
    x = p["embed"][tokens]
    for i in range(2):
        y = normalize(p, f"{i}/norm1", x)
        q, k, v = (dense(p, f"{i}/{n}", y).reshape(-1, HEADS, WIDTH) for n in "qkv")
        x = x + dense(p, f"{i}/attention", attend(q, k, v).reshape(-1, HEADS * WIDTH))
        y = normalize(p, f"{i}/norm2", x)
        x = x + dense(p, f"{i}/down", jax.nn.gelu(dense(p, f"{i}/up", y)))
    return dense(p, "output", normalize(p, "norm", x))


@pytest.fixture(scope="module")
def authors():
    return spaces.paper_transformer(vocabulary=9, width=WIDTH)


def test_the_authors_specification_is_rejected(authors):
    params = fill(authors.to_shapes())
    with pytest.raises(unf.SymmetryError, match="not symmetries of this network") as error:
        unf.verify(transformer, params, authors, jnp.arange(5), key=jax.random.key(0))
    assert set(error.value.axes) == set(authors.sizes)


def test_what_is_found_is_accepted(authors):
    shapes = authors.to_shapes()
    space = unf.infer(transformer, shapes, i32(5))
    stream = {"0/q/w": 0, "1/q/w": 0, "0/down/w": 1, "1/down/w": 1, "embed": 1, "output/w": 0}
    axes = {leaf.path: leaf.axes for leaf in space.leaves}
    assert len({axes[path][i] for path, i in stream.items()}) == 1
    report = unf.verify(transformer, fill(shapes), space, jnp.arange(5), key=jax.random.key(0))
    assert report.dead == ("0/k/b", "1/k/b")
