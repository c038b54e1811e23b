"""What all pictures have in common: colours, and frames that suit light and dark readers.

Pictures are SVG in strings. They stand alone, or in a page among others: their styles are scoped
to the class `unf`.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

COLORS = ("#d1495b", "#00798c", "#edae49", "#66a182", "#8d6a9f", "#e07a3f", "#4f86c6", "#b5838d")
GREY = "#8c8c8c"
Number = int | float
CHARACTER = 7.3
"""The width of a letter."""
_STYLE = """\
svg.unf{background:#fff;border-radius:8px}
svg.unf text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#1f2328}
svg.unf .box{fill:#f6f8fa;stroke:#8c959f}svg.unf .faint{fill:#656d76}
@media(prefers-color-scheme:dark){svg.unf{background:#0d1117}svg.unf text{fill:#e6edf3}
svg.unf .box{fill:#161b22;stroke:#6e7681}svg.unf .faint{fill:#9198a1}}"""
_CARD = "color-scheme:light dark;background:Canvas;color:CanvasText;overflow-x:auto;padding:4px"


def document(width: Number, height: Number, title: str, parts: Iterable[str]) -> str:
    """An SVG document; its title is what screen readers say.

    >>> document(10, 10, "a dot", ['<circle r="2"/>']).count("<title>a dot</title>")
    1
    """
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="unf" {size} '
    head += f'role="img" aria-label="{escape(title)}">'
    return f"{head}<title>{escape(title)}</title><style>{_STYLE}</style>{''.join(parts)}</svg>"


def text(x: Number, y: Number, words: str, **attributes: str) -> str:
    """A line of text; underscores in names of attributes are hyphens."""
    more = "".join(f' {name.replace("_", "-")}="{v}"' for name, v in attributes.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(words)}</text>'


def in_brief(x: object) -> Any:
    """The first line of an object's `repr`, for Equinox, which prints what a module holds."""
    from wadler_lindig import TextDoc

    return TextDoc(repr(x).partition("\n")[0])


def color_of(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name; they begin again where there are too many."""
    return {name: COLORS[i % len(COLORS)] for i, name in enumerate(dict.fromkeys(names))}


def card(*parts: str) -> str:
    """HTML for notebooks, legible whatever their theme."""
    return f'<div style="{_CARD}">{"".join(parts)}</div>'


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 1) -> str:
    """An HTML table; the first columns are texts, the others numbers, to the right."""
    cell = '<t{} style="text-align:{};padding:2px 8px">{}</t{}>'

    def line(kind: str, cells: Sequence[str]) -> str:
        sides = ["left"] * texts + ["right"] * (len(cells) - texts)
        made = [cell.format(kind, s, escape(c), kind) for s, c in zip(sides, cells, strict=True)]
        return f"<tr>{''.join(made)}</tr>"

    return f"<table>{line('h', header)}{''.join(line('d', row) for row in rows)}</table>"
