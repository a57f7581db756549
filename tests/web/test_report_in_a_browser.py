"""The report in a real browser: it renders, sorts, says more when pointed at, drags, prints."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from browsing import no_overflow, violations
from pico import ReadsLabel, make_classifier, make_dataset
from stockpot.measure.run import measure
from stockpot.report.page import write_page
from stockpot.report.pictures import Pictures, Sheet
from stockpot.season.matrix import Matrix

HOSTILE = "</script><img src=x onerror=alert(1)>\"'"
PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
SOUPS = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]])


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    models = {
        "perfect": make_classifier(ReadsLabel(4)),
        HOSTILE: make_classifier(nn.Sequential(nn.Flatten(), nn.Linear(768, 4))),
    }
    few = {"corruptions": ("contrast", "fog"), "severities": (1, 3, 5), "baseline": "none"}
    wanted = {
        "clean": {},
        "cost": {},
        "corruption": few,
        "adversarial": {"steps": 1, "norms": "linf", "eps": "1/255"},
    }
    results = measure(models, wanted, data={"toy": make_dataset()})
    run = tmp_path_factory.mktemp("web")
    soup = run / "models" / "soup"
    soup.mkdir(parents=True)
    # Six mixtures of three; the one between the first two is right about most images.
    right = np.arange(50)[None] < np.array([10, 20, 30, 45, 25, 15])[:, None]
    Matrix(SOUPS, right, np.zeros((6, 50), np.float32)).save(soup / "season_matrix.npz")
    record = {"verb": "season", "method": "grid", "parameters": {"low": 0.0}, "inputs": [],
              "details": {"members": {"a": 0.5, HOSTILE: 0.5, "c": 0.0}}}  # fmt: skip
    (soup / "stockpot.json").write_text(json.dumps(record))
    shown = Sheet(PIXEL, 16, 2, {"": 0, "fog:3": 1})
    return write_page(
        results, run / "report.html", title=HOSTILE, folders=[run],
        pictures=Pictures({"toy": shown}, {"toy": {"ant": [PIXEL]}}),
    )  # fmt: skip


def test_a_reader_finds_sorts_points_and_drags(visit, page_file: Path) -> None:
    page = visit(page_file, width=1440)
    assert page.locator("h1").inner_text() == HOSTILE
    assert page.locator("img[src=x]").count() == 0
    # Nothing is wider than its box, and no two heads of one table are the same.
    assert no_overflow(page)
    assert page.evaluate(
        "[...document.querySelectorAll('.scroll')].every(box => box.scrollWidth <= box.clientWidth)"
    )
    heads = page.evaluate(
        "[...document.querySelectorAll('.table')].map(box => [...box.querySelectorAll("
        "'thead tr:last-child th')].map(head => (head.dataset.group ?? '') + head.textContent))"
    )
    assert all(len(set(row)) == len(row) for row in heads)
    # The summary: better beyond noise is bold, and what was not measured is said.
    summary = page.locator("#summary-table")
    assert summary.locator("tbody tr").first.locator(".best").count() >= 1
    assert "Not measured: images made against the model" in page.locator("#summary").inner_text()
    head = summary.locator("thead button", has_text="clean").first
    head.click()
    assert summary.locator("tbody th").all_inner_texts() == [HOSTILE, "perfect"]
    assert "summary-table.sort=clean" in page.evaluate("location.hash")
    # Pointing at a cell of the heat map shows the picture under that corruption.
    cell = page.locator("[data-picture='fog:3']").first
    cell.hover()
    hint = page.locator("#hint")
    assert "fog 3: error" in hint.inner_text()
    assert hint.locator(".tile").count() == 2
    page.keyboard.press("Escape")
    assert not hint.is_visible()
    # The soup begins at its best mixture; dragging the ring to a corner tells that of the corner.
    told = page.locator("#soup-soup .told")
    assert "90.0 %" in told.inner_text()
    handle, corner = page.locator("#soup-soup .handle"), page.locator("#soup-soup circle").first
    handle.scroll_into_view_if_needed()
    start, end = handle.bounding_box(), corner.bounding_box()
    page.mouse.move(start["x"] + 5, start["y"] + 5)
    page.mouse.down()
    page.mouse.move(end["x"] + 8, end["y"] + 8, steps=3)
    page.mouse.up()
    assert "20.0 %" in told.inner_text()
    handle.focus()
    page.keyboard.press("ArrowRight")
    assert "90.0 %" in told.inner_text()
    assert HOSTILE in handle.get_attribute("aria-valuetext")
    assert not violations(page)
    first = page.locator("#details details").first
    first.locator("summary").click()
    assert "top1:all" in first.inner_text()


def test_it_reads_well_on_a_phone_in_the_dark_and_on_paper(visit, page_file: Path) -> None:
    page = visit(page_file, width=390, scheme="dark")
    assert no_overflow(page)
    assert not violations(page)
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(22, 25, 26)"
    # A sheet of A4 less its margins; dark screens print on white paper.
    page.set_viewport_size({"width": 703, "height": 1000})
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert no_overflow(page)
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    assert page.locator("#summary-table td", has_text="%").first.is_visible()
