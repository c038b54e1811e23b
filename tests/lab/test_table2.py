"""The paper's parameter table, cell by cell (table 2 of the appendix)."""

import equinox as eqx
import jax
import pytest

from unf import count_terms
from unf.nn import NFNLinear, UNFLinear
from unf.testing import spaces

KEY = jax.random.key(0)
SCALARS = 3  # α, β and γ₀, which the paper's numbers include


def size(layer) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(layer))


TRUNK = sum(size(eqx.nn.Linear(i, o, key=KEY)) for i, o in [(19, 32), (32, 32), (32, 32)])


@pytest.mark.parametrize(
    ("space", "terms", "parameters"),
    [
        (spaces.paper_mlp(), 32, 3_783),
        (spaces.paper_cnn(), 144, 7_369),
        (spaces.paper_cnn(corrected=True), 86, 5_513),
        (spaces.paper_rnn(), 165, 8_043),
        (spaces.paper_transformer(), 1_918, 64_168),
    ],
    ids=["mlp", "cnn", "cnn corrected", "rnn", "transformer"],
)
def test_unf(space, terms, parameters):
    head = UNFLinear(space, 32, 1, key=KEY)
    assert count_terms(space) == terms
    assert TRUNK + size(head) + SCALARS == parameters
    assert head.num_parameters == size(head)


def test_deep_set():
    assert TRUNK + size(eqx.nn.Linear(32, 1, key=KEY)) + SCALARS == 2_788


@pytest.mark.parametrize(
    ("space", "spatial", "bias", "parameters"),
    [
        (spaces.paper_mlp(), (), True, 3_783),
        (spaces.paper_cnn(corrected=True), (-1, -2, -3, -4), False, 41_603),
    ],
    ids=["mlp", "cnn"],
)
def test_nfn(space, spatial, bias, parameters):
    head = NFNLinear(space, 32, 1, key=KEY, spatial=spatial, bias=bias)
    assert TRUNK + size(head) + SCALARS == parameters


def test_real_networks():
    assert count_terms(spaces.gru_seq2seq().relax()) == 2_058
    for space, leaves, weights in [
        (spaces.gru_seq2seq(), 22, 110_989),
        (spaces.resnet50(), 161, 25_557_032),
        (spaces.gpt2(), 148, 124_439_808),
        (spaces.paper_transformer(), 37, None),
        (spaces.transformer(), 37, None),
    ]:
        assert len(space.leaves) == leaves
        assert weights is None or space.num_weights == weights
