"""The viewer in a real browser: it finds what one model gets wrong and another right."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch import nn

from browsing import no_overflow, violations
from commands import invoke
from pico import ReadsLabel, make_classifier, make_dataset
from stockpot.measure.run import measure
from stockpot.results.samples_file import samples_path
from stockpot.results.store import result_files

EVIL = '<img src=x onerror="window.hacked=1">'
CLASSES = ("ant", "bee", EVIL, '"><svg onload=window.hacked=1>')
OTHER = f"reads {EVIL}"


class Blinks(nn.Module):
    """Right about all images but those that are dark at a corner: it takes them for the next."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = ReadsLabel(4)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        found = self.reads(pixels) / 50
        dark = pixels[:, 0, -1, -1] < 0.5
        return torch.where(dark[:, None], found.roll(1, dims=1), found)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models on 120 files, with names and classes that would like to be markup."""
    root = tmp_path_factory.mktemp("viewer")
    data = make_dataset(120, classes=CLASSES)
    for row, label in enumerate(data.labels.tolist()):
        folder = root / "images" / CLASSES[label]
        folder.mkdir(parents=True, exist_ok=True)
        picture = data.images.pixels[row].permute(1, 2, 0).numpy()  # type: ignore[attr-defined]
        Image.fromarray(picture).save(folder / f"{row:03d}<b onclick=hacked=1>.png")
    models = {"blinks": make_classifier(Blinks(), CLASSES)}
    models[OTHER] = make_classifier(ReadsLabel(4), CLASSES)
    few = {"corruptions": ("contrast", "jpeg_compression"), "severities": (1, 5)}
    asked = {"clean": {}, "corruption": {**few, "baseline": "none"}}
    measure(models, asked, data=str(root / "images"), out=root / "run", log_samples=True)
    return root / "run"


@pytest.fixture(scope="module")
def site(run: Path) -> Path:
    done = invoke("view", run, "--pictures", 30)
    assert done.exit_code == 0, done.output
    return run / "view" / "index.html"


@pytest.fixture(scope="module")
def rows(run: Path) -> dict[tuple[str, str, int], dict[str, Any]]:
    """What the records say, by model, record and image."""
    table = [
        row
        for file in result_files(run)
        if "--corruption--" in file.name
        for row in pq.read_table(samples_path(file)).to_pylist()
    ]
    return {(row["model"], row["record"], row["image"]): row for row in table}


def asked(**state: object) -> str:
    return f"#?{urlencode(state)}"


def tiles(page: Any) -> list[int]:
    page.wait_for_selector("#found[aria-busy=false]", state="attached")
    return [int(n) for n in page.locator(".tile").evaluate_all("ts => ts.map(t => t.dataset.row)")]


def test_it_finds_what_the_records_hold(visit, site: Path, rows) -> None:
    """Filters, classes, search, pages: against the parquet files read by pyarrow."""
    images = range(120)

    def right(model: str, record: str, image: int) -> bool:
        return bool(rows[model, record, image]["correct"])

    page = visit(site)
    split = [n for n in images if not right("blinks", "correct", n) and right(OTHER, "correct", n)]
    assert len(split) > 48
    assert tiles(page) == split[:48]
    assert page.locator("#count").inner_text().startswith(f"{len(split)} of 120 images")
    # Both answers stand below the picture.
    told = page.locator(f'.tile[data-row="{split[0]}"]').inner_text()
    one, other = rows["blinks", "correct", split[0]], rows[OTHER, "correct", split[0]]
    assert one["label"] in told
    assert f"✗ {one['prediction']} {round(100 * one['confidence'])}\xa0%" in told
    assert f"✓ {other['prediction']}" in told
    page.keyboard.press("n")
    assert tiles(page) == split[48:96]
    page.keyboard.press("s")  # A and B change places, and with them the question
    assert tiles(page) == []
    assert page.locator("#nothing").is_visible()
    page.keyboard.press("s")
    # Another condition by its button, another question, a class, and words.
    page.get_by_role("button", name="contrast 5").click()
    page.get_by_role("button", name="both wrong").click()
    models = ("blinks", OTHER)
    both = [n for n in images if not any(right(model, "contrast:5", n) for model in models)]
    assert both
    assert tiles(page) == both[:48]
    page.select_option("#class", "bee")
    bees = [n for n in both if rows["blinks", "contrast:5", n]["label"] == "bee"]
    assert tiles(page) == bees[:48]
    page.select_option("#class", "")
    page.get_by_role("button", name="all images").click()
    page.keyboard.press("/")
    page.keyboard.type("017")
    page.wait_for_selector(".tile:only-child")
    (found,) = tiles(page)
    assert "017<b" in rows["blinks", "correct", found]["name"]


def test_a_link_keeps_what_was_seen(visit, site: Path, rows) -> None:
    state = {"a": OTHER, "b": "blinks", "on": "jpeg_compression:1", "show": "ba", "q": "ant"}
    page = visit(site, hash=asked(**state))
    expected = [
        n
        for n in range(120)
        if rows[OTHER, "jpeg_compression:1", n]["correct"]
        and not rows["blinks", "jpeg_compression:1", n]["correct"]
        and any(
            "ant" in str(rows[model, "jpeg_compression:1", n][key])
            for model in (OTHER, "blinks")
            for key in ("label", "prediction", "name")
        )
    ]
    assert 0 < len(expected) < 48
    assert tiles(page) == expected
    assert page.locator("#a").input_value() == OTHER
    assert page.locator("#q").input_value() == "ant"
    # Open an image, go on, and give the address away.
    page.locator(".tile").first.click()
    page.keyboard.press("ArrowRight")
    name = rows[OTHER, "jpeg_compression:1", expected[1]]["name"]
    page.get_by_role("heading", name=name).wait_for()
    assert f"image={expected[1]}" in page.url
    again = visit(site, hash="#" + page.url.partition("#")[2])
    again.wait_for_selector("dialog[open]")
    assert again.locator("#called").inner_text() == name
    again.keyboard.press("Escape")
    again.wait_for_selector("dialog", state="hidden")
    assert tiles(again) == expected
    assert "image=" not in again.url


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_it_fits_is_readable_and_runs_no_name(visit, site: Path, scheme: str, width: int) -> None:
    few = asked(on="contrast:5", show="all", q="01")
    page = visit(site, hash=few, scheme=scheme, width=width)
    assert len(tiles(page)) > 9
    assert no_overflow(page)
    if width < 800:
        page.locator("#where summary").click()
        assert violations(page) == []
    page.locator(".tile").first.click()
    page.wait_for_selector("dialog[open]")
    assert no_overflow(page)
    if width > 800:
        assert violations(page) == []
    assert page.evaluate("window.hacked") is None
    # A sheet is shown and not merely named: the file is there and is a picture.
    sheet = page.evaluate("getComputedStyle(document.querySelector('.tile .pic')).backgroundImage")
    with Image.open(sheet.removeprefix('url("file://').removesuffix('")')) as picture:
        assert picture.width == 8 * 16


def test_results_without_records_tell_right_from_wrong(visit, run: Path, tmp_path: Path) -> None:
    """Files of before: no labels and no answers unless the data is at hand."""
    old = tmp_path / "results"
    old.mkdir()
    for file in result_files(run):
        text = file.read_text()
        start = text.index('"samples": "') + len('"samples": "')
        (old / file.name).write_text(text[:start] + text[start + 64 :])
    done = invoke("view", tmp_path)
    assert done.exit_code == 0, done.output
    page = visit(tmp_path / "view" / "index.html")
    assert len(tiles(page)) == 48
    assert "✗ wrong" in page.locator(".tile").first.inner_text()
    assert "give --data" in page.locator("#about").inner_text()
    assert invoke("view", tmp_path, "--data", run.parent / "images").exit_code == 0
    page = visit(tmp_path / "view" / "index.html", hash=asked(q="017", show="all"))
    assert len(tiles(page)) == 1
    assert page.locator("#class option").count() == 1 + len(CLASSES)
