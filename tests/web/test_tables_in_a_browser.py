"""Tables of the shared look: they sort, search, filter, fold, print, and come out as CSV."""

from __future__ import annotations

from pathlib import Path

import pytest

from browsing import no_overflow, violations
from stockpot.report.design import Cell, Column, environment, json_script, render_page, table

HOSTILE = '"><img src=x onerror=alert(1)></script><script>alert(2)</script>'
NAMES = ["resnet", "vit", "convnext", HOSTILE, "soup, of three"]
VALUES = [0.61, 0.5, None, 0.07, 0.56]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    columns = [
        Column("model", number=False),
        Column("kind", number=False, filter=True),
        *(Column("accuracy", group=f"measure {n}", fold=n) for n in range(20)),
    ]
    rows = [
        [
            Cell(name),
            Cell("net" if at % 2 else "soup"),
            *(
                Cell() if value is None else
                Cell(f"{100 * value:.1f} %", value, value - 0.02, value + 0.02,
                     f"{100 * value - 2:.1f} to {100 * value + 2:.1f}")
                for _ in range(20)
            ),
        ]
        for at, (name, value) in enumerate(zip(NAMES, VALUES, strict=True))
    ]  # fmt: skip
    made = environment().from_string(
        '{% extends "base.html.j2" %}{% block nav %}<a href="#board">Board</a>{% endblock %}'
        "{% block main %}<h2>Board</h2>{{ board }}{{ data }}{% endblock %}"
    )
    board = table("board", columns, rows, search=True)
    page = render_page(made, title=HOSTILE, board=board, data=json_script("data", {HOSTILE: 1}))
    path = tmp_path_factory.mktemp("web") / "tables.html"
    path.write_text(page, encoding="utf-8")
    return path


def shown(page) -> list[str]:
    return page.locator("#board tbody tr:visible th").all_inner_texts()


def test_a_table_is_sorted_searched_filtered_and_taken_along(visit, page_file: Path) -> None:
    page = visit(page_file)
    assert page.title() == HOSTILE  # as text; the visit fails when anything of it runs or loads
    assert page.evaluate("JSON.parse(document.getElementById('data').textContent)") == {HOSTILE: 1}
    head = page.locator("#board thead button", has_text="accuracy").first
    head.click()
    # Numbers by value, and what was not measured comes last whichever way.
    assert shown(page) == [HOSTILE, "vit", "soup, of three", "resnet", "convnext"]
    head.press("Enter")
    assert shown(page) == ["resnet", "soup, of three", "vit", HOSTILE, "convnext"]
    assert page.locator("#board th[aria-sort]").get_attribute("aria-sort") == "descending"
    page.locator("#board input").fill("OF")
    page.locator("#board select[data-key=kind]").select_option("soup")
    assert shown(page) == ["soup, of three"]
    with page.expect_download() as coming:
        page.locator("#board .csv").click()
    lines = Path(coming.value.path()).read_text().splitlines()
    assert coming.value.suggested_filename == "board.csv"
    assert lines[0].startswith("model,kind,measure 0 accuracy,measure 0 accuracy low,")
    assert lines[1].startswith('"soup, of three",soup,0.56,0.54,0.58')
    # A link keeps all of it.
    link = page.evaluate("location.hash")
    again = visit(page_file, hash=link)
    assert shown(again) == shown(page)
    assert again.locator("#board input").input_value() == "OF"


def test_a_wide_table_fits_every_screen_and_paper(visit, page_file: Path) -> None:
    wide = visit(page_file, width=1440)
    frame = "document.querySelector('.scroll')"
    assert wide.evaluate(f"{frame}.scrollWidth <= {frame}.clientWidth")
    button = wide.locator("#board .columns")
    assert "more columns" in button.inner_text()
    folded = wide.locator("#board thead th[data-key]:visible").count()
    assert folded > 8  # no more than there is need for
    button.click()
    assert wide.locator("#board thead th[data-key]:visible").count() == 22 > folded
    phone = visit(page_file, width=390, scheme="dark")
    assert no_overflow(phone)
    # Each row is a card: what a head says stands beside the number.
    assert phone.locator("#board tbody td").nth(1).evaluate(
        "cell => getComputedStyle(cell, '::before').content"
    ) == '"accuracy, measure 0"'  # fmt: skip
    phone.locator("#board .sorter select").select_option("measure-0-accuracy")
    assert shown(phone)[0] == "resnet"
    phone.locator("#look").click()
    assert not violations(phone)
    assert phone.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(251, 250, 247)"
