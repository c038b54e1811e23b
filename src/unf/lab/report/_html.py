"""Markup in which text is always escaped: only what `tag` has made is taken as it is."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

_NUMBER = re.compile(r"[-\d.,e+]+( ± [-\d.,e+]+)?")
_EMPTY = {"meta", "br", "circle", "line", "path", "rect"}
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]|[\ud800-\udfff]")


class Html(str):
    """Markup, as opposed to text."""


def text(value: Any) -> Html:
    """Any value as text of a page.

    >>> text("<b>"), text(tag("b", "&"))
    ('&lt;b&gt;', '<b>&amp;</b>')
    """
    if isinstance(value, Html):
        return value
    return Html(escape(_UNPRINTABLE.sub("\ufffd", str(value))))


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """An element. Underscores in names of attributes are hyphens, one at the end is nothing.

    >>> tag("p", "a < b", class_="note", aria_label='"')
    '<p class="note" aria-label="&quot;">a &lt; b</p>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _EMPTY and not children:
        return Html(f"<{name}{given}/>")
    return Html(f"<{name}{given}>{join(children)}</{name}>")


def join(parts: Iterable[Any]) -> Html:
    """Pieces of a page, one after the other."""
    return Html("".join(map(text, parts)))


def table(head: Sequence[Any], rows: Iterable[Sequence[Any]], caption: str = "") -> Html:
    """A table; the first cell of a row is its head, and cells with numbers do not break."""
    lines = [
        tag("tr", tag("th", row[0], scope="row"), *(_cell(value) for value in row[1:]))
        for row in rows
    ]
    top = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in head)))
    above = [tag("caption", caption)] if caption else []
    body = tag("table", *above, *([top] if any(head) else []), tag("tbody", *lines))
    return tag("div", body, class_="scroll")


def folded(summary: str, *children: Any) -> Html:
    """What is shown when asked for."""
    return tag("details", tag("summary", summary), *children)


def _cell(value: Any) -> Html:
    return tag("td", value, class_="number" if _NUMBER.fullmatch(str(value)) else None)


def _attribute(value: Any) -> str:
    if isinstance(value, float):
        value = f"{value:.1f}".removesuffix(".0")
    return text(str(value))
