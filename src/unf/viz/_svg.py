"""What all pictures share: colors, text, and a frame for light and dark themes.

Pictures are SVG in strings. They work as files and inside a page with others: their styles are
scoped to the class `unf`.
"""

from collections.abc import Iterable
from html import escape

COLORS = ("#d1495b", "#00798c", "#edae49", "#66a182", "#8d6a9f", "#e07a3f", "#4f86c6", "#b5838d")
GRAY = "#8c8c8c"
Number = int | float
CHARACTER = 7.3
"""The width of a letter."""
MARGIN = 12
_STYLE = """\
svg.unf{background:#fff;border-radius:8px}
svg.unf text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#1f2328}
svg.unf .box{fill:#f6f8fa;stroke:#8c959f}svg.unf .faint{fill:#656d76}
@media(prefers-color-scheme:dark){svg.unf{background:#0d1117}svg.unf text{fill:#e6edf3}
svg.unf .box{fill:#161b22;stroke:#6e7681}svg.unf .faint{fill:#9198a1}}"""


def document(width: Number, height: Number, title: str, parts: Iterable[str]) -> str:
    """An SVG document; screen readers read its title.

    >>> document(10, 10, "a dot", ['<circle r="2"/>']).count("<title>a dot</title>")
    1
    """
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="unf" {size} '
    head += f'role="img" aria-label="{escape(title)}">'
    return f"{head}<title>{escape(title)}</title><style>{_STYLE}</style>{''.join(parts)}</svg>"


def text(x: Number, y: Number, words: str, *, slanted: bool = False, **attributes: str) -> str:
    """A line of text, slanted by 45 degrees or straight.

    Underscores in the names of attributes become hyphens, and one at the end is dropped.
    """
    if slanted:
        attributes["transform"] = f"rotate(-45 {x:.1f} {y:.1f})"
    more = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{value}"' for name, value in attributes.items()
    )
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(words)}</text>'


def slanted_height(words: Iterable[str]) -> float:
    """How much height, and width beyond the last, slanted lines of text need."""
    return 0.75 * CHARACTER * max(map(len, words), default=0)


def circle(x: Number, y: Number, radius: Number, rest: str) -> str:
    """A circle; `rest` are its other attributes."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" {rest}/>'


def color_of(names: Iterable[str]) -> dict[str, str]:
    """A color for each name; colors repeat if there are many names."""
    return {name: COLORS[i % len(COLORS)] for i, name in enumerate(dict.fromkeys(names))}
