"""A leaderboard in a real browser: it sorts, filters, searches, links, fits and lets nobody in."""

from __future__ import annotations

import numpy as np
import pytest

from browsing import no_overflow, violations
from hand_made import clean_cell
from stockpot.board.site import Site, leaderboard
from stockpot.results.store import ResultStore

HOSTILE = "<img src=x onerror=alert(1)>\"'&"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    place = tmp_path_factory.mktemp("board")
    store = ResultStore(place / "run" / "results")
    names = [HOSTILE, *(f"model-{number}" for number in range(9))]
    for number, name in enumerate(names):
        for data in ("cats", "dogs"):
            right = np.arange(100) < (10 * number if data == "cats" else 95 - 10 * number)
            one = clean_cell(name, data, right)
            facts = one.model.model_copy(update={"architecture": f"Net{number % 2}"})
            store.save(one.model_copy(update={"model": facts, "convention": HOSTILE}))
    return leaderboard([place / "run"], place / "site", title=f"Pets {HOSTILE}")


def names(page, table: str) -> list[str]:
    shown = page.locator(f"#{table} tbody tr:visible th")
    return [text.splitlines()[0] for text in shown.all_inner_texts()]


def test_the_index_sorts_filters_and_keeps_its_state(visit, site: Site) -> None:
    page = visit(site.folder / "index.html")
    assert not violations(page)
    assert names(page, "boards") == ["cats (test): clean", "dogs (test): clean"]
    heads = page.locator("#models thead tr:last-child th", has_text="accuracy")
    heads.nth(0).get_by_role("button").click()  # the accuracy on cats, rising
    assert names(page, "models")[:2] == [HOSTILE, "model-0"]
    heads.nth(0).get_by_role("button").click()
    assert names(page, "models")[:2] == ["model-8", "model-7"]
    page.locator("#models input[type=search]").fill("model-3")
    assert names(page, "models") == ["model-3"]
    # Who is sent the address sees the same.
    state = page.evaluate("location.hash")
    again = visit(site.folder / "index.html", hash=state)
    assert names(again, "models") == ["model-3"]
    again.locator("#models input[type=search]").fill("")
    assert names(again, "models")[:2] == ["model-8", "model-7"]


def test_a_board_filters_and_leads_to_its_models(visit, site: Site) -> None:
    board = next(one for one in site.boards if one.data.name == "cats")
    page = visit(site.folder / "boards" / f"{board.slug}.html", scheme="dark")
    assert not violations(page)
    assert names(page, "board")[0] == "model-8"
    page.locator("#board select[data-key=architecture]").select_option("Net1")
    assert names(page, "board") == [f"model-{number}" for number in (8, 6, 4, 2, 0)]


def test_a_model_page_on_a_phone(visit, site: Site) -> None:
    one = next(model for model in site.models if model.name == HOSTILE)
    page = visit(site.folder / "models" / f"{one.slug}.html", width=390)
    assert page.locator("h1").inner_text() == HOSTILE  # words, and nothing that runs
    assert page.locator("img[src=x]").count() == 0
    assert no_overflow(page)
    assert not violations(page)
    assert page.locator(".badges img").first.evaluate("image => image.naturalWidth") > 50
    links = page.locator("a[href]").evaluate_all("all => all.map((a) => a.getAttribute('href'))")
    for link in links:
        if not link.startswith("#"):
            assert (site.folder / "models" / link).resolve().is_file(), link


def test_the_index_fits_a_phone(visit, site: Site) -> None:
    page = visit(site.folder / "index.html", width=390, scheme="dark")
    assert no_overflow(page)
    assert not violations(page)
