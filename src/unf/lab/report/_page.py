"""The frame of a page: its head, its style in light, dark and print, its foot."""

from ..._version import __version__
from ._html import Html, join, tag

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Browsers shall load nothing and run nothing, whatever a file has smuggled in."""
LIGHT = {
    "page": "#ffffff", "panel": "#f6f7f9", "text": "#1c2128", "quiet": "#57606a",
    "edge": "#d5dae0", "grid": "#e6e9ed",
    "c0": "#0067a5", "c1": "#b84a00", "c2": "#00724f", "c3": "#9c3375", "c4": "#775f00",
    "c5": "#57606a",
}  # fmt: skip
DARK = {
    "page": "#12161c", "panel": "#1a2028", "text": "#e4e9ef", "quiet": "#9aa5b1",
    "edge": "#39424d", "grid": "#29313a",
    "c0": "#62b3ee", "c1": "#f59a5b", "c2": "#4cc89a", "c3": "#e58fc2", "c4": "#dcc14f",
    "c5": "#9aa5b1",
}  # fmt: skip
COLOURS = 6
_STYLE = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--text);
  font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1020px;margin:0 auto;padding:40px 24px 56px}
h1{font-size:1.75rem;line-height:1.2;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:1.3rem;line-height:1.25;margin:0;overflow-wrap:anywhere}
h3{font-size:1rem;margin:32px 0 8px}
p{margin-block:8px}a{color:var(--c0)}
section{margin-top:56px;padding-top:28px;border-top:1px solid var(--edge)}
.kind{color:var(--quiet);font-size:.875rem;margin:0 0 10px;overflow-wrap:anywhere}
.statement{font-size:1.125rem;max-width:46em;overflow-wrap:anywhere}
.warning{border-left:3px solid var(--c1);padding:2px 0 2px 12px;max-width:60em;
  overflow-wrap:anywhere}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));
  gap:28px 32px;margin:24px 0}
figure{margin:0;max-width:560px}figcaption{font-weight:600;line-height:1.4;margin-bottom:6px}
figure .note{margin:6px 0 0;line-height:1.4}
.note,caption,footer{color:var(--quiet);font-size:.8125rem}
figure svg{display:block;width:100%;height:auto;overflow:visible}
figure text{font:11.5px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;
  font-variant-numeric:tabular-nums;fill:var(--quiet)}
figure .end{text-anchor:end}figure .middle{text-anchor:middle}figure .axis{fill:var(--text)}
figure .label{fill:var(--c)}
figure .grid{stroke:var(--grid)}figure .base{stroke:var(--edge)}
figure .line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
figure .faint{opacity:.35;stroke-width:1}figure .band{fill:var(--c);opacity:.16}
figure .dot{fill:var(--c);fill-opacity:.75}figure .bar{fill:var(--c);fill-opacity:.85}
figure .cloud{fill:none;stroke:var(--c);stroke-width:4.5;stroke-linecap:round;opacity:.5}
figure .rule{fill:none;stroke:var(--c);stroke-width:1.5;stroke-dasharray:5 4}
figure .leader{fill:none;stroke:var(--c);opacity:.45}
.scroll{overflow-x:auto;margin-block:12px}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
caption{text-align:left;padding-bottom:6px}
th,td{text-align:left;padding:5px 20px 5px 0;border-bottom:1px solid var(--grid);
  vertical-align:top}
thead th{color:var(--quiet);font-weight:600;border-color:var(--edge)}
tbody th{font-weight:500;overflow-wrap:break-word;max-width:24em}
td{overflow-wrap:break-word}.number{white-space:nowrap}
details{margin:10px 0;border:1px solid var(--edge);border-radius:8px;background:var(--panel)}
summary{cursor:pointer;padding:9px 14px;font-size:.9375rem}
details>:not(summary){margin-left:14px;margin-right:14px}
pre{font:.8125rem/1.5 ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre-wrap;
  overflow-wrap:anywhere;background:var(--panel);border-radius:8px;padding:10px 14px;
  margin-block:8px}
details pre{padding:0}code{font:inherit}
footer{margin-top:56px;padding-top:14px;border-top:1px solid var(--edge)}
@media(max-width:560px){main{padding:24px 16px 40px}h1{font-size:1.4rem}section{margin-top:40px}
  .statement{font-size:1.05rem}th,td{padding-right:14px}
  .stack thead{display:none}.stack :is(th,td){display:block;border:0;padding:0 0 2px}
  .stack tr{display:block;padding:8px 0;border-bottom:1px solid var(--grid)}
  .stack td:nth-child(2){color:var(--quiet)}}
@media print{body{font-size:10.5pt}main{max-width:none;padding:0}
  figure,table,.statement{break-inside:avoid}h2,h3{break-after:avoid}section{margin-top:28px}
  .charts{grid-template-columns:1fr 1fr}.scroll{overflow:visible}
  details::details-content{content-visibility:visible;block-size:auto}}
"""


def page(title: str, *body: Html) -> Html:
    """A whole document."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width,initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Html(_style())),
    )
    foot = tag("footer", f"Made by unf {__version__} from the files of the run.")
    content = tag("body", tag("main", *body, foot))
    return join([Html("<!doctype html>\n"), tag("html", head, content, lang="en"), "\n"])


def _style() -> str:
    light, dark = (
        "".join(f"--{name}:{value};" for name, value in colours.items())
        for colours in (LIGHT, DARK)
    )
    series = "".join(f".c{i}{{--c:var(--c{i})}}" for i in range(COLOURS))
    return (
        f":root{{color-scheme:light dark;{light}}}"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
        f"{series}{_STYLE}"
    )
