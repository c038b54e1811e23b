"""Charts and their parts: laws that hold for any numbers."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lab.report.pages import Page
from unf.lab.report._charts import Axis, Chart
from unf.lab.report._marks import Line, Points, bars
from unf.lab.report._page import DARK, LIGHT
from unf.lab.report._scales import Scale, spread_out

NUMBERS = st.lists(st.floats(width=64), min_size=0, max_size=20)


@given(NUMBERS, st.booleans(), st.booleans())
def test_ticks_are_few_in_order_and_on_the_axis(values, log, whole):
    scale = Scale.around(np.array(values, float), log=log, whole=whole and not log)
    ticks = scale.ticks()
    assert len(ticks) <= 13 and ticks == sorted(set(ticks))
    assert all(-1e-6 <= scale.place(tick) <= 1 + 1e-6 for tick in ticks)
    assert len(scale.labels()) == len(ticks)


@given(st.floats(1e-6, 1e6), st.floats(0.01, 1e4))
def test_ticks_tell_numbers_apart(low, ratio):
    scale = Scale(low, low * (1 + ratio))
    assert len(scale.ticks()) >= 2
    assert len(set(scale.labels())) == len(scale.ticks())
    for tick in scale.ticks():
        assert float(f"{tick:.6g}") == tick, "a round number"


@given(st.lists(st.floats(0, 100), min_size=1, max_size=9))
def test_labels_moved_apart_keep_their_order(wanted):
    places = spread_out(wanted, 10.0, 0.0, 100.0)
    order = np.argsort(wanted, kind="stable")
    assert np.all(np.diff(np.array(places)[order]) >= 10 - 1e-6)
    assert min(places) >= -1e-6 and max(places) <= 100 + 1e-6


@settings(max_examples=60, deadline=None)
@given(NUMBERS, NUMBERS, st.booleans(), st.booleans())
def test_any_numbers_can_be_drawn(x, y, log_x, log_y):
    size = min(len(x), len(y))
    one, other = np.array(x[:size], float), np.array(y[:size], float)
    chart = Chart("t", Axis("x", log=log_x), Axis("y", log=log_y))
    chart.add(Line("line", one, other, low=other, high=other, dots=True), Points("p", one, other))
    page = Page(chart.html())
    for name in ("d", "x", "y", "cx", "cy", "x1", "y1"):
        assert not re.search("nan|inf", " ".join(page.values(name)))


def test_what_is_not_finite_is_counted():
    chart = Chart("t", Axis("x"), Axis("y", log=True))
    chart.add(Points("", np.arange(5), np.array([1, np.nan, np.inf, 0, -1])))
    assert "4 values left out: not finite or not positive." in Page(chart.html()).words


def test_bars_count_every_number():
    values = np.array([0.1, 0.1, 0.2, np.nan, 0.9])
    assert bars(values).y.sum() == 4
    assert bars(np.array([])).y.sum() == 0
    assert bars(np.full(3, 7.0)).y.sum() == 3


def test_gaps_in_a_line_stay_gaps():
    chart = Chart("t", Axis("x"), Axis("y"))
    chart.add(Line("", np.arange(5), np.array([1, 2, np.nan, 3, 4])))
    (path,) = (d for _, name, d in Page(chart.html()).attributes if name == "d")
    assert path.count("M") == 2


@pytest.mark.parametrize("mark", [Line, Points])
def test_many_numbers_are_thinned_and_it_is_said(mark):
    y = np.random.default_rng(0).random(100_000)
    y[777] = 5.0
    chart = Chart("t", Axis("x"), Axis("y"))
    chart.add(mark("", np.arange(100_000), y))
    html = chart.html()
    assert len(html) < 60_000 and "100,000" in html
    if mark is Line:
        heights = [float(h) for h in re.findall(r"[ML][\d.]+ ([\d.]+)", html)]
        assert min(heights) < 60, "the greatest number is kept"


def test_colours_can_be_read_in_light_and_dark():
    """Contrast of at least 4.5 with the page and with panels (WCAG 2.2, AA)."""
    for mode in (LIGHT, DARK):
        for name in ("text", "quiet", *(f"c{i}" for i in range(6))):
            for ground in ("page", "panel"):
                assert contrast(mode[name], mode[ground]) >= 4.5, (name, ground)


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))
