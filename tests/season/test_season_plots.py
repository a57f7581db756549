"""Pictures say what the matrix says, and are well-formed SVG."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from stockpot.charts import shade
from stockpot.season.grids import affine_grid
from stockpot.season.matrix import Matrix
from stockpot.season.plots.composition import composition
from stockpot.season.plots.draw import draw_matrix, on_span
from stockpot.season.plots.labels_needed import curve, labels_needed
from stockpot.season.plots.lines import along_line, trade_off
from stockpot.season.plots.triangle import triangle

SVG = "{http://www.w3.org/2000/svg}"


def made(members: int, images: int = 80, low: float = 0.0, high: float = 1.0) -> Matrix:
    """Soups whose accuracy is the first member's weight, clipped to [0, 1]."""
    weights = affine_grid(members, low=low, high=high, step=0.2).numpy()
    share = np.clip(weights[:, 0], 0, 1)
    correct = np.arange(images)[None, :] < np.round(share * images)[:, None]
    return Matrix(weights, correct, (~correct).astype(np.float32))


def notes(text: str) -> list[str]:
    root = ElementTree.fromstring(text)
    return [e.text or "" for e in root.iter(f"{SVG}title")][1:]


def test_a_line_holds_every_soup_with_its_score() -> None:
    matrix = made(2, low=-0.4, high=1.4)
    text = along_line({"all": matrix}, range(10), 0, title="accuracy", across="weight")
    found = [re.match(r"weight (\S+): (\S+) %", note) for note in notes(text)]
    pairs = [(float(m[1]), float(m[2])) for m in found if m]
    assert len(pairs) == 10
    assert pairs == sorted(pairs)
    assert all(score == pytest.approx(100 * min(max(w, 0), 1), abs=0.1) for w, score in pairs)


def test_a_trade_off_puts_models_that_are_no_soups_beside_the_line() -> None:
    matrix = made(2)
    other = Matrix(matrix.weights, ~matrix.correct, matrix.loss)
    text = trade_off(
        matrix, other, {"pair": range(6)}, names=("a", "b"), title="t", others={"MAX": (0.5, 0.9)}
    )
    assert "MAX" in text
    shown = [note.rpartition(": ")[2] for note in notes(text)]
    assert "100.0, 0.0 %" in shown
    assert "50.0, 90.0 %" in shown


def test_a_triangle_has_a_panel_for_each_condition_and_all_points() -> None:
    matrix = made(3)
    text = triangle(
        {"linf": matrix, "union": matrix}, range(21), (0, 1, 2), ["A", "B", "C"], title="t"
    )
    # A ring around the best one of each panel adds a disc.
    assert len(notes(text)) == 2 * 22
    assert text.count("100.0 % at best") == 2
    assert "A 1, B 0, C 0: 100.0 %" in notes(text)


def test_composition_shades_what_the_best_hold() -> None:
    matrix = made(3)
    text = composition({"set": matrix}, ["A", "B", "C"], title="t", count=1, levels=[0.2, 1.0])
    boxes = [e.get("fill") for e in ElementTree.fromstring(text).iter(f"{SVG}rect")][1:]
    full, none = shade(1, 0, 1), shade(0, 0, 1)
    assert boxes == [full, full, none, none, none, none]


def test_more_labels_vary_less() -> None:
    generator = np.random.default_rng(0)
    weights = affine_grid(3, low=0, high=1, step=0.2).numpy()
    correct = generator.random((21, 1000)) < np.linspace(0.5, 0.7, 21)[:, None]
    matrix = Matrix(weights, correct, (~correct).astype(np.float32))
    means, spread = curve(matrix, 500, (10, 100, 500), 30)
    assert means[0] < means[-1]
    assert spread[0] > spread[-1]
    text = labels_needed({"a": matrix}, held_out=500, title="t", draws=5)
    assert len(notes(text)) == 5


def test_a_matrix_gives_all_its_pictures(tmp_path: Path) -> None:
    names = ["A", "B", "C & co"]
    paths = draw_matrix(made(3), names, tmp_path, data="toy")
    assert [path.name for path in paths] == [
        "line-A-B.svg", "line-A-C & co.svg", "line-B-C & co.svg", "triangle-A-B-C & co.svg",
        "composition.svg", "labels-needed.svg",
    ]  # fmt: skip
    for path in paths:
        ElementTree.parse(path)
    assert len(on_span(made(3), (0, 1))) == 6
