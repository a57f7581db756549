"""The page: self-contained, escaped, complete."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import PIL
from torch import nn

from pico import make_classifier, make_dataset
from stockpot.measure.run import measure
from stockpot.report.design.frame import told
from stockpot.report.page import render, report

VOID = ("meta", "link", "br", "line", "circle", "img", "input")


class Outline(HTMLParser):
    """Collects text and what a browser would load."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.text: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.loads += [v for k, v in values.items() if k == "src" and v]
        if tag == "link":
            self.loads.append(str(values.get("href")))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def results(perfect):
    guess = make_classifier(nn.Sequential(nn.Flatten(), nn.Linear(768, 4)))
    models = {"perfect": perfect, "<b>guess</b>": guess}
    return measure(models, "clean", data=make_dataset())


def test_the_page_is_whole_and_loads_nothing(perfect, tmp_path: Path) -> None:
    page = report(results(perfect), out=tmp_path / "report.html")
    outline = Outline()
    outline.feed(page.read_text())
    assert not outline.loads
    assert not outline.open
    # The name of SVG's language is an address that nobody asks.
    assert "://" not in page.read_text().replace("http://www.w3.org/2000/svg", "")
    text = " ".join(outline.text)
    assert "<b>guess</b>" in text  # escaped, so it appears as text
    pillow = f"Pillow {PIL.__version__}"
    for words in ("Summary", "100.0 %", "provenance", pillow, "ant", "paired", "top1:all"):
        assert words in text
    assert page.stat().st_size < 1_000_000


def test_the_same_results_give_the_same_page(perfect) -> None:
    cells = results(perfect)
    assert render(cells, title="t") == render(cells, title="t")


def test_the_best_model_comes_first(perfect) -> None:
    html = render(results(perfect), title="t")
    rows = re.findall(r'<th scope="row"[^>]*>(.*?)</th>', html)
    assert rows[:2] == ["perfect", "&lt;b&gt;guess&lt;/b&gt;"]


def test_commands_in_a_sentence_are_set_apart_and_nothing_else_is() -> None:
    assert told("`stockpot audit` tells <b>") == "<code>stockpot audit</code> tells &lt;b&gt;"
