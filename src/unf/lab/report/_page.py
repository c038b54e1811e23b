"""From a path to a page."""

import json
import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ..._persistence import write_whole
from ..._version import __version__
from ...spec import WeightSpace
from ...viz import draw_coefficients, draw_space
from .. import plots
from ._runs import DAMAGE, ReportError, Section, recognize, short

_EXPECTED = (
    "expected a zoo, a predictor's training, a meta-training or a comparison of optimizers; make "
    "one with unf zoo build or import, unf predict train, unf lopt train or unf lopt eval"
)
_MOST_RUNS, _MOST_FOLDERS, _MOST_TENSORS, _LONGEST = 40, 2000, 120, 100_000
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff\ud800-\udfff]")


def render(path: str | os.PathLike) -> str:
    """The page of a run, or of all runs below a folder, as HTML that needs no other file.

    Args:
        path: the folder of a zoo, of a predictor's training or of a meta-training, finished or
            not; a file that `unf lopt eval` wrote; or a folder with several of these below it.

    Raises:
        ReportError: if there is no run, or all of them are damaged.
    """
    where = Path(path)
    if not where.exists():
        raise ReportError(f"{where}: no such file or folder; {_EXPECTED}")
    damaged: list[str] = []
    names = [str(run.relative_to(where)) for run in _runs_at(where)]
    found = [_read(where / name, name, damaged) for name in names]
    runs = [run for run in found if run is not None]
    if not runs:
        raise ReportError(damaged[0] if damaged else f"{where}: nothing to report; {_EXPECTED}")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = environment.from_string(Path(__file__).with_name("report.html").read_text())
    single = names == ["."]
    page = template.render(
        title=runs[0]["section"].title if single else where.resolve().name, runs=runs,
        single=single, damaged=damaged, groups=_groups(runs), version=__version__,
        again=None if single else _again(where, finished=True),
    )  # fmt: skip
    return _UNPRINTABLE.sub("\ufffd", page)


def write(path: str | os.PathLike, out: str | os.PathLike | None = None) -> Path:
    """Write the page of a run, whole or not at all; returns where it is.

    Args:
        path: see `render`.
        out: the page's file; by default report.html in the folder, or beside a file with the
            same name and .html.

    Raises:
        ReportError: if there is no run, or all of them are damaged.
    """
    where = Path(path)
    page = render(where)
    beside = where / "report.html" if where.is_dir() else where.with_suffix(".html")
    file = beside if out is None else Path(out)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, page)
    return file


def _runs_at(where: Path) -> list[Path]:
    """The path itself if it is a run, or else what may be runs below; links are not followed."""
    if where.is_file() or recognize(where):
        return [where]
    found: list[Path] = []
    for count, (folder, folders, files) in enumerate(os.walk(where)):
        found += [Path(folder, name) for name in sorted(files) if name.endswith(".json")]
        inside = [Path(folder, name) for name in sorted(folders) if not name.startswith(".")]
        runs = [path for path in inside if not path.is_symlink() and recognize(path)]
        folders[:] = [path.name for path in inside if path not in runs]
        found += runs
        if len(found) > _MOST_RUNS or count > _MOST_FOLDERS:
            raise ReportError(
                f"{where}: more than {_MOST_RUNS} runs or {_MOST_FOLDERS} folders; report a part"
            )
    return found


def _read(path: Path, name: str, damaged: list[str]) -> dict[str, Any] | None:
    """A run as the template shows it; None if it is not one, or is damaged, which is noted."""
    try:
        reader = recognize(path)
        return None if reader is None else _drawn(reader(path), path, name)
    except ReportError as error:
        damaged.append(str(error))
    except DAMAGE as error:
        damaged.append(f"{path}: damaged ({error!r}); restore it, or run it again")
    return None


def _drawn(section: Section, path: Path, name: str) -> dict[str, Any]:
    layers = {k: x for k, x in section.layers.items() if _fits(x.plan.in_space)}
    made_with = ("unf", "jax", "device", "machine", "date")
    provenance = [f"{key} {short(x)}" for key, x in section.provenance.items() if key in made_with]
    return {
        "name": name,
        "section": section,
        "charts": [_chart(panel, f"{name} {i}") for i, panel in enumerate(section.panels)],
        "space": section.space and {
            "tensors": len(section.space.leaves),
            "weights": section.space.num_weights,
            "picture": Markup(draw_space(section.space)) if _fits(section.space) else "",
        },
        "layers": {k: Markup(draw_coefficients(layer)) for k, layer in layers.items()},
        "settings": json.dumps(section.settings, indent=1, ensure_ascii=False)[:_LONGEST],
        "provenance": "; ".join(provenance),
        "again": _again(path, section.finished),
    }  # fmt: skip


def _fits(space: WeightSpace) -> bool:
    return len(space.leaves) <= _MOST_TENSORS


def _chart(panel: plots.Panel, salt: str) -> dict[str, Any]:
    svg = plots.to_svg(plots.figure([panel._replace(title="")]), panel.title, salt=salt)
    return {"title": panel.title, "svg": Markup(svg), "note": panel.note}


def _groups(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Predictors of one score of the same test networks: only their τ can be compared."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        if (report := run["section"].scores) is not None:
            tests = [report.split, report.include_diverged, report.tested.tolist()]
            key = [report.zoo, report.score, *tests]
            groups.setdefault(json.dumps(key, sort_keys=True), []).append(run)
    found = []
    for i, members in enumerate(groups.values()):
        reports = [run["section"].scores for run in members]
        panel = plots.score_panel(reports, [Path(run["name"]).stem for run in members])
        known = {name: x for name, x in reports[0].zoo.items() if name != "config"}
        zoo = ", ".join(f"{name} {short(x, 40)}" for name, x in known.items())
        about = f"Zoo: {zoo}; {len(reports[0].true):,} test networks."
        found.append({"about": about, "chart": len(members) > 1 and _chart(panel, f"group {i}")})
    return found


def _again(path: Path, finished: bool) -> dict[str, str] | None:
    """How to make a run again, or go on with it, from the options written beside it."""
    beside = path / "config.toml" if path.is_dir() else path.with_name(f"{path.name}.config.toml")
    try:
        options = beside.read_text(encoding="utf-8")[:_LONGEST]
        words = str(tomllib.loads(options)["command"]).split()
    except (OSError, ValueError, KeyError):
        return None
    reproduced = words[:1] == ["reproduce"]  # which goes on by itself
    ending = [] if reproduced else ["--out", "ANOTHER"] if finished else ["--resume"]
    command = shlex.join(["unf", *words, "--config", str(beside), *ending])
    return {"command": command, "file": beside.name, "options": options}
