"""Reading and printing leaf specifications."""

import numpy as np
import pytest

from unf import SpecError
from unf.spec._grammar import ByIndex, Concat, Name, Number, Product, format_axes, parse_leaf


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("a b", (Name("a"), Name("b"))),
        ("", ()),
        ("(a b)", (Product((Name("a"), Name("b"))),)),
        ("(a (b c))", (Product((Name("a"), Name("b"), Name("c"))),)),
        ("(a)", (Name("a"),)),
        ("(a + b) c", (Concat((Name("a"), Name("b"))), Name("c"))),
        ("(a + (b + c))", (Concat((Name("a"), Name("b"), Name("c"))),)),
        ("(a b + c)", (Concat((Product((Name("a"), Name("b"))), Name("c"))),)),
        ("[kh kw] c", (Name("kh", True), Name("kw", True), Name("c"))),
        ("[3 kw] 2", (Number(3), Name("kw", True), Number(2))),
        ("[(h w)] c", (Product((Name("h", True), Name("w", True))), Name("c"))),
        ("d (h h.k)", (Name("d"), Product((Name("h"), Name("h.k"))))),
        ("(h (k + k + v))", (Product((Name("h"), Concat((Name("k"), Name("k"), Name("v"))))),)),
        ("[l] l{a | [b]}", (Name("l", True), ByIndex("l", (Name("a"), Name("b", True))))),
        (
            "[l] (h l{4 | a b | (a + b)})",
            (
                Name("l", True),
                Product(
                    (
                        Name("h"),
                        ByIndex(
                            "l",
                            (
                                Number(4),
                                Product((Name("a"), Name("b"))),
                                Concat((Name("a"), Name("b"))),
                            ),
                        ),
                    )
                ),
            ),
        ),
        (("a", 0, -1), (Name("a"), Name("#0"), Name("#-1"))),
        (
            (np.int64(3), "(a b)", "[f]"),
            (Name("#3"), Product((Name("a"), Name("b"))), Name("f", True)),
        ),
    ],
)
def test_parse(text, axes):
    assert parse_leaf(text) == axes
    assert parse_leaf(format_axes(axes)) == axes


def test_minus_zero_is_zero():
    assert parse_leaf((0, -0)) == (Name("#0"), Name("#0"))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a (b", r"'\)' is missing"),
        ("a )", r"unexpected '\)'"),
        ("[a", r"'\]' is missing"),
        ("(a ]", r"'\)' is missing"),
        ("a + b", r"unexpected '\+'"),
        ("()", "nothing between the brackets"),
        ("[] a", "nothing between the brackets"),
        ("(a + )", "part of the concatenation is empty"),
        ("a ?", r"unexpected '\?'"),
        ("a | b", r"unexpected '\|'"),
        ("[l] {a | b}", "no name before the braces"),
        ("[l] l{a | b", r"'}' is missing"),
        ("[l] l{a | }", "axis between the braces is empty"),
        ("[l] l{}", "nothing between the brackets"),
        ("[l] l{a | (b l{c | d})}", "braces inside braces"),
        ("a..b", "unexpected 'a'"),
        (".a", r"unexpected '\.'"),
        ("2a", "unexpected '2'"),
        ("0 a", "at least one element"),
        (("a b", "c"), "describes one stored axis, but 'a b' describes 2"),
        (("a", None), "not the name of an axis"),
        (("a", True), "not the name of an axis"),
        (3, "a string or a tuple of names"),
        (None, "a string or a tuple of names"),
    ],
)
def test_mistakes(text, match):
    with pytest.raises(SpecError, match=match) as caught:
        parse_leaf(text, "layer/kernel")
    assert caught.value.path == "layer/kernel"
    assert caught.value.got is not None


def test_error_points_at_the_mistake():
    with pytest.raises(SpecError, match="cannot parse") as caught:
        parse_leaf("head ? dim")
    text, pointer = str(caught.value).split("got: ")[1].split("\n")[:2]
    assert text[pointer.index("^") - len("  got: ")] == "?"
