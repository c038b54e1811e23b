"""Charts: legible in any page, the same bytes again, and drawn of any numbers and names."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from unf.lab import plots
from unf.lab.lopt import Comparison, Curves
from unf.lab.predict import Report


def comparison(train, name="unf"):
    curves = Curves(train, train)
    return Comparison("mlp", "digits", train.shape[1], [0] * len(train), {name: curves}, {name: {}})


def contrast(one, other):
    """The ratio of luminances that accessibility guidelines define."""

    def luminance(color):
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        return np.dot(linear, (0.2126, 0.7152, 0.0722))

    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


@pytest.fixture(scope="module")
def svg():
    return plots.to_svg(plots.optimizer_curves([comparison(np.ones((2, 20)))]), "curves")


def test_colors_can_be_seen_on_light_and_dark_pages():
    for color in plots.PALETTE:
        assert min(contrast(color, "#ffffff"), contrast(color, "#12161c")) >= 3


def test_svg_takes_the_color_and_the_width_of_the_page(svg):
    root = ElementTree.fromstring(svg)
    assert root.get("viewBox") and root.get("width") is None and root.get("aria-label") == "curves"
    assert "#000000" not in svg and "#ffffff" not in svg and "currentColor" in svg
    assert "<metadata" not in svg and re.findall("http[^\"' ]*", svg) == [
        "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink",
    ]  # fmt: skip


def test_text_is_at_least_nine_pixels_at_page_width():
    four = [comparison(np.ones((2, 20)))] * 4
    svg = plots.to_svg(plots.optimizer_curves(four))
    width = float(ElementTree.fromstring(svg).get("viewBox").split()[2])
    sizes = [
        float(x) for x in re.findall(r"font-size: ([\d.]+)px|font: ([\d.]+)px", svg) for x in x if x
    ]
    assert min(sizes) * 700 / width >= 9


def test_the_same_figure_gives_the_same_bytes(svg, tmp_path):
    assert plots.to_svg(plots.optimizer_curves([comparison(np.ones((2, 20)))]), "curves") == svg
    for suffix, start in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        files = [tmp_path / f"{i}.{suffix}" for i in range(2)]
        for file in files:
            plots.save(plots.optimizer_curves([comparison(np.ones((2, 20)))]), file)
        assert files[0].read_bytes() == files[1].read_bytes()
        assert files[0].read_bytes().startswith(start)


@pytest.mark.parametrize(
    "values", [[np.nan], [np.inf, 1, -np.inf], [1e308, -1e308, 0], [0, 0], [1e-300, 1, 5e-324]]
)
def test_any_numbers_can_be_drawn(values):
    row = np.array(values, float)
    columns = {name: row for name in ("loss", "gradient_norm", "alpha", "beta", "gamma", "lost")}
    panels = plots.meta_panels({"step": np.arange(len(row)), **columns})
    panels += plots.optimizer_panels(comparison(np.stack([row, row])))
    panels += plots.score_panels(row, {"learning_rate": row, "batch_size": np.ones(len(row))})
    svg = plots.to_svg(plots.figure(panels))
    assert not re.search(r'd="[^"]*(nan|inf)', svg)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("$\\frac{$", "$\\frac{$"),
        ("<b>&\"'", "<b>&\"'"),
        ("\x00\x1b\ud800", "\ufffd\ufffd\ufffd"),
        ("漢字 🙂", "漢字 🙂"),
        ("w" * 500, f"{'w' * 39}…"),
    ],
)
def test_any_name_can_be_drawn(name, shown):
    svg = plots.to_svg(plots.optimizer_curves([comparison(np.ones((1, 5)), name)]))
    assert shown in ElementTree.fromstring(svg).itertext()


def test_predictors_are_drawn_beside_each_other(tmp_path):
    rng = np.random.default_rng(0)
    shared = {"zoo": {}, "training": {}, "split": {}, "include_diverged": False, "seeds": [0, 1]}
    numbers = {"retest": 0.9, "settings": float("nan"), "invariance": 0.0, "parameters": 1}
    reports = [
        Report(
            method=method, **shared, **numbers, seconds=1.0, tau=rng.random(2), r2=rng.random(2),
            valid_scores=rng.random((3, 2)), losses=rng.random((3, 2)), tested=np.arange(5),
            predicted=rng.random((2, 5)), true=rng.random(5),
        )
        for method in ("unf", "statnn", "another")
    ]  # fmt: skip
    for figure in (plots.predictions(reports), plots.training_curves(reports)):
        svg = plots.to_svg(figure)
        assert all(name in svg for name in ("UNF, as in the paper", "StatNN", "another"))
    assert "test–retest agreement" in plots.to_svg(plots.figure([plots.score_panel(reports)]))


def test_scores_are_drawn_above_the_number_of_parameters():
    rows = [
        {"method": name, "measure": "τ", "parameters": size, "scores": scores}
        for name, size, scores in (("unf", 3000, [0.5, 0.7]), ("statnn", 90_000, [0.4, np.nan]))
    ]
    axis = plots.scores_by_size({"CNNs": rows}).axes[0]
    for line, row in zip(axis.lines, rows, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), row["parameters"])
        np.testing.assert_array_equal(line.get_ydata(), row["scores"])
    assert (axis.get_title(), axis.get_ylabel()) == ("CNNs", "Kendall's τ")
