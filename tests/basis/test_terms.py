"""Counting, listing and printing terms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.laws.architectures import ARCHITECTURES, every_architecture, space_of
from unf import SpecError, WeightSpace, count_terms
from unf.basis import cost_report, make_plan, terms
from unf.nn import coefficient_shapes
from unf.testing import spaces, valid_partitions


def square(n):
    return WeightSpace.from_spec("n n", jax.ShapeDtypeStruct((n, n), jnp.float32))


def test_square_matrices():
    assert [count_terms(square(n)) for n in (1, 2, 3, 4, 5)] == [15] * 5
    assert [count_terms(square(n), minimal=True) for n in (1, 2, 3, 4, 5)] == [1, 8, 14, 15, 15]


@pytest.mark.parametrize("rank", range(7))
def test_distinct_names(rank):
    """Two choices for each name: together or apart."""
    shape = tuple(range(2, 2 + rank))
    space = space_of({"w": (" ".join("abcdef"[:rank]), shape)})
    assert count_terms(space) == 2**rank


def test_bell_numbers():
    bell = {1: 2, 2: 15, 3: 203, 4: 4140}
    for rank, expected in bell.items():
        assert count_terms(space_of({"w": (" ".join("n" * rank), (2,) * rank)})) == expected


@every_architecture
def test_terms_are_the_valid_partitions(name):
    """Each pair of blocks has exactly the partitions of definition 1, each once."""
    space = ARCHITECTURES[name]
    listed = list(terms(space))
    assert len(listed) == count_terms(space)
    by_pair = {}
    for term in listed:
        by_pair.setdefault((term.source_block, term.target_block), []).append(term.partition)
    for (s, t), partitions in by_pair.items():
        assert len(set(partitions)) == len(partitions)
        assert set(partitions) == set(valid_partitions(space.blocks[s], space.blocks[t]))
    assert len(by_pair) == len(space.blocks) ** 2


@every_architecture
def test_terms_tile_the_coefficients(name):
    """Every coefficient belongs to exactly one term."""
    space = ARCHITECTURES[name]
    plan = make_plan(space)
    used = {core: np.zeros(shape, int) for core, shape in coefficient_shapes(plan, 2, 3).items()}
    for term in terms(space):
        used[term.core][term.slices(2, 3)] += 1
    assert all(np.all(count == 1) for count in used.values())


def test_formulas():
    formulas = {term.formula for term in terms(square(4))}
    assert len(formulas) == 15
    assert {
        "E[a,b] = X[a,b]",
        "E[a,b] = X[b,a]",
        "E[a,b] = mean_c X[a,c]",
        "E[a,a] = X[a,a]",
        "E[a,b] = mean_c X[c,c]",
        "E[a,a] = mean_b,c X[b,c]",
    } <= formulas
    assert repr(next(terms(square(4)))).startswith(". <- .: E[")


def test_plans_are_cached():
    assert make_plan(square(4)) is make_plan(square(4))
    assert make_plan(square(4)) != make_plan(square(4), minimal=True)
    assert repr(make_plan(square(4))) == "Plan(15 terms in 3 cores; 1 -> 1 leaves)"


def test_spaces_must_agree_on_names():
    a, b = space_of({"w": ("n", (3,))}), space_of({"w": ("n", (4,))})
    with pytest.raises(SpecError, match=r"'n' is not the same permutation[\s\S]*size 4"):
        count_terms(a, b)
    with pytest.raises(SpecError, match="'n' is not the same permutation"):
        count_terms(a, a.fix("n"))
    assert count_terms(a, space_of({"w": ("m", (4,))})) == 1


def test_cost_without_arrays():
    """GPT-2's cost is known in no time; totals are the sums of the rows."""
    space = spaces.gpt2()
    report = cost_report(space, 1, 2, batch=3)
    assert report.total.terms == count_terms(space) == sum(row.terms for row in report.rows)
    assert report.total.parameters == sum(
        r * c for r, c in coefficient_shapes(make_plan(space), 1, 2).values()
    )
    matrix = cost_report(space_of({"w": ("a b", (64, 32))}), 16, 8, batch=2)
    core = next(row for row in matrix.rows if row.part == "a,b")
    assert core.flops == 2 * 2 * 64 * 32 * 16 * 8
    assert core.bytes_read == 4 * (2 * 64 * 32 * 16 + 16 * 8)
    assert core.bytes_written == 4 * 2 * 64 * 32 * 8
    assert str(report).count("\n") == len(report.rows) + 2  # header, total, long fixed axes
