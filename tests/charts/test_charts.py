"""Pictures are well-formed, keep their words inside, and have one palette in two looks."""

from __future__ import annotations

import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stockpot import charts
from stockpot.charts import Axes, Canvas, Mark, Pair, Share, Spot, log_ticks, ticks
from stockpot.charts.canvas import fitted, width_of
from stockpot.charts.palette import DARK, LIGHT, ink_on, page_colours, shade, stylesheet, two_sided

SVG = "{http://www.w3.org/2000/svg}"
LONG = "a-fused-model-with-a-name-that-goes-on-and-on-until-nobody-reads-it-<&>-scale=0.3"
ROWS = [Mark("one", 0.5, 0.45, 0.55, "50.0 % [45.0, 55.0]"), Mark(LONG, 0.9, 0.8, 1.0, "90 %")]
PICTURES = {
    "whiskers": lambda: charts.whiskers(ROWS),
    "lines": lambda: charts.lines(
        {"a": [Spot(1, 0.2, 0.1, 0.3), Spot(100, 0.4, 0.2, 0.5)], LONG: [Spot(10, 0.9)]},
        across="images", up="accuracy", logarithmic=True,
    ),
    "curve": lambda: charts.curve(ROWS, across=LONG, up=LONG),
    "scatter": lambda: charts.scatter([Pair(r, r, [(0.5, 0.5)]) for r in ROWS], LONG, "up"),
    "heat map": lambda: charts.heat_map([[1, math.nan]], [LONG], ["x", LONG], title=LONG),
    "triangle": lambda: charts.triangle(
        {LONG: [Share((1, 0, 0), 0.5), Share((0, 0.5, 0.5), 0.7)]}, ["A", "B", LONG], LONG
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_words_stay_inside_and_cut_ones_say_the_whole(name: str) -> None:
    canvas = PICTURES[name]()
    root = ElementTree.fromstring(canvas.svg())
    seen = 0
    for element in root.iter(f"{SVG}text"):
        words = "".join(element.itertext()).removeprefix(element.findtext(f"{SVG}title") or "")
        size, anchor = float(element.get("font-size", "12")), element.get("text-anchor")
        wide = width_of(words, size)
        if turned := element.get("transform"):
            x, y = map(float, re.findall(r"[\d.]+", turned)[:2])
            assert 0 <= x <= canvas.width
            assert wide <= y <= canvas.height
            continue
        x, y = float(element.get("x", "")), float(element.get("y", ""))
        left = x - {"start": 0, "middle": wide / 2, "end": wide}[str(anchor)]
        assert left >= -1
        assert left + wide <= canvas.width + 1, words
        assert 0 < y <= canvas.height
        seen += 1
    assert seen
    assert LONG in "".join(root.itertext())  # in full somewhere, where it was cut: as a note


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_has_one_palette_in_two_looks(name: str) -> None:
    canvas = PICTURES[name]()
    light, dark = canvas.svg(), canvas.svg(dark=True)
    assert "@" not in light.replace("@media", "")
    assert f'fill="{LIGHT["paper"]}"' in light
    assert f'fill="{DARK["paper"]}"' in dark
    # Every colour that has a name can be changed by the style sheet of a page or of the file.
    for what, name_of, colour in re.findall(r'class="(fill|stroke)-([\w-]+)" \w+="(#\w+)"', light):
        assert colour == LIGHT[name_of]
        assert f".{what}-{name_of}{{{what}:{DARK[name_of]}}}" in stylesheet()
        assert f".chart .{what}-{name_of}{{{what}:var(--{name_of})}}" in page_colours()
    inline = ElementTree.fromstring(canvas.inline())
    assert inline.find(f"{SVG}style") is None
    assert inline.get("class") == "chart"


def luminance(colour: str) -> float:
    """Of WCAG 2."""
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
def test_words_can_be_read_on_their_ground(look: dict[str, str]) -> None:
    """WCAG 2: 4.5 for text, 3 for what is drawn."""
    for name in ("ink", "soft"):
        assert contrast(look[name], look["paper"]) >= 4.5, name
    for name in (f"series-{k}" for k in range(8)):
        assert contrast(look[name], look["paper"]) >= 3, name
    assert look.keys() == LIGHT.keys()


@given(st.floats(-1, 1))
def test_numbers_can_be_read_on_any_shade(value: float) -> None:
    for ground in (two_sided(value), shade(value, -1, 1)):
        assert contrast(ink_on(ground), ground) >= 3


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
@example(0.0, 1.4)  # seven steps of 0.2, or a hair less
def test_ticks_are_round_few_and_inside(low: float, wide: float) -> None:
    high = low + wide
    found = ticks(low, high)
    assert len(found) <= 7
    slack = 1e-9 * max(abs(low), abs(high), wide)
    assert all(low - slack <= value <= high + slack for value in found)
    if wide > 1e-3 * abs(low):  # wide enough for round numbers to be told apart
        assert len(found) >= 2


def test_ticks_known_by_hand() -> None:
    assert ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert ticks(0.33, 0.58) == [0.35, 0.4, 0.45, 0.5, 0.55]
    assert log_ticks(3, 120) == [5, 10, 20, 50, 100]


def test_axes_place_ends_at_the_frame() -> None:
    axes = Axes(Canvas(200, 100, "t"), (0, 1), (0.2, 0.4))
    assert axes.at(0, 0.2) == (axes.left, axes.bottom)
    assert axes.at(1, 0.4) == pytest.approx((axes.right, axes.top))
    axes = Axes(Canvas(200, 100, "t"), (1, 100), (0, 1), logarithmic=True)
    assert axes.at(10, 0)[0] == pytest.approx((axes.left + axes.right) / 2)


def test_names_are_cut_in_the_middle() -> None:
    assert fitted("short", 100, 12) == "short"
    cut = fitted("model-with-seed-17", 60, 12)
    assert cut.startswith("mod")
    assert cut.endswith("17")
    assert width_of(cut, 12) <= 60


def test_a_picture_is_saved_whole(tmp_path: Path) -> None:
    path = charts.save(PICTURES["curve"](), tmp_path / "deep" / "c.svg")
    assert ElementTree.parse(path).getroot().tag == f"{SVG}svg"
