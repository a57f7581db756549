"""The report in a real browser: it renders, sorts, loads nothing, and complains about nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import nn

from pico import ReadsLabel, make_classifier, make_dataset
from stockpot.measure.run import measure
from stockpot.report.page import report

BROWSER = os.environ.get("STOCKPOT_CHROMIUM") or shutil.which("chromium")
playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no chromium on the PATH (or in STOCKPOT_CHROMIUM)"
)


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    models = {
        "perfect": make_classifier(ReadsLabel(4)),
        "guess": make_classifier(nn.Sequential(nn.Flatten(), nn.Linear(768, 4))),
    }
    few = {"corruptions": ("contrast", "fog"), "severities": (1, 5), "baseline": "none"}
    results = measure(models, {"clean": {}, "cost": {}, "corruption": few}, data=make_dataset())
    return report(results, out=tmp_path_factory.mktemp("web") / "report.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(
            executable_path=BROWSER,
            args=["--no-sandbox", "--disable-background-networking", "--disable-component-update"],
        )
        yield found
        found.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 420])
def test_it_renders_quietly(browser, page_file: Path, scheme: str, width: int) -> None:
    page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
    complaints, requests = [], []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(page_file.as_uri())
    assert page.locator("h1").inner_text() == "Stockpot report"
    assert page.locator("#corruptions table").count() == 2
    assert not complaints
    assert requests == [page_file.as_uri()]
    # Wide tables scroll in their own frame; the page itself never does.
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_columns_sort_by_mouse_and_keyboard(browser, page_file: Path) -> None:
    page = browser.new_page()
    page.goto(page_file.as_uri())
    table = page.locator("#leaderboard table").first

    def models() -> list[str]:
        return table.locator("tbody th").all_inner_texts()

    head = table.locator("thead th", has_text="accuracy").first
    assert models() == ["perfect", "guess"]
    head.click()
    assert models() == ["guess", "perfect"]
    assert head.get_attribute("aria-sort") == "ascending"
    head.press("Enter")
    assert models() == ["perfect", "guess"]
    assert head.get_attribute("aria-sort") == "descending"
    page.close()


def test_details_open(browser, page_file: Path) -> None:
    page = browser.new_page()
    page.goto(page_file.as_uri())
    first = page.locator("#details details").first
    first.locator("summary").click()
    assert "top1:all" in first.inner_text()
    page.close()
