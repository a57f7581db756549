"""One Chromium for all pages, and what every page must keep to: no complaint and no request."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

BROWSER = os.environ.get("STOCKPOT_CHROMIUM") or shutil.which("chromium")
Visit = Callable[..., Any]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A started browser; who asks for it is skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api")
    if BROWSER is None:
        pytest.skip("no chromium on the PATH (or in STOCKPOT_CHROMIUM)")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(
            executable_path=BROWSER,
            args=["--no-sandbox", "--disable-background-networking", "--disable-component-update"],
        )
        yield found
        found.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Visit]:
    """Open a page; in the end it has complained about nothing and asked for nothing but files
    that lie beside it."""
    visited: list[tuple[Any, Path, list[str], list[str]]] = []

    def open_page(
        file: Path, *, hash: str = "", scheme: str = "light", width: int = 1440, height: int = 900
    ) -> Any:
        page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": height})
        complaints: list[str] = []
        requests: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(file.as_uri() + hash)
        visited.append((page, file, complaints, requests))
        return page

    yield open_page
    for page, file, complaints, requests in visited:
        page.close()
        assert not complaints
        beside = file.parent.as_uri() + "/"
        outside = [url for url in requests if not url.startswith((beside, "data:", "blob:"))]
        assert not outside
