"""The page of a comparison in a real browser: verdicts, changes, pictures, and nothing loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import stockpot
from browsing import no_overflow, violations
from commands import invoke
from hand_made import clean_cell
from pico import make_dataset
from stockpot.cli import compared_pictures
from stockpot.results.packed import pack_bits, pack_labels
from stockpot.results.schema import CellResult, DataFacts
from stockpot.results.store import ResultStore

HOSTILE = '"><img src=x onerror=alert(1)></script><script>alert(2)</script>'


def cell(model: str, rate: float, data, measure: str) -> CellResult:
    n = len(data)
    hard = np.random.default_rng(1).random(n)
    labels, _ = pack_labels(data.labels.numpy(), data.classes)
    names = [HOSTILE, *data.classes[1:]]
    made = clean_cell(model, "toy", hard < rate)
    outcomes = made.outcomes if measure == "clean" else {
        f"{name}:{level}": pack_bits(hard < rate - cost)
        for name, cost in (("contrast", 0.1), ("gaussian_noise", 0.4 * (1 - rate)))
        for level in (1, 3)
    }  # fmt: skip
    facts = DataFacts(name="toy", split="test", n=n, classes=4, fingerprint=data.fingerprint)
    key = made.key.model_copy(update={"measure": measure})
    return made.model_copy(update={"key": key, "data": facts, "labels": labels,
                                   "label_names": names, "outcomes": outcomes})  # fmt: skip


def test_the_page_says_who_is_better_where_and_shows_it(visit, tmp_path: Path, monkeypatch) -> None:
    data = make_dataset(200)
    store = ResultStore(tmp_path / "run" / "results")
    for model, rate in ((HOSTILE, 0.9), ("old", 0.6)):
        for measure in ("clean", "corruption"):
            store.save(cell(model, rate, data, measure))
    store.save(clean_cell("old", "only here", np.ones(9, bool)))
    monkeypatch.setattr(compared_pictures, "_data", lambda source, facts: data)
    run, out = tmp_path / "run", tmp_path / "compared.html"
    done = invoke("compare", run, run, "--model", HOSTILE, "--against", "old", "-o", out,
                  "--pictures", "toy")  # fmt: skip
    assert done.exit_code == 0, done.output
    page = visit(out)
    assert page.locator("h1").inner_text() == f"{HOSTILE} against old"
    rows = page.locator("#scores tbody tr")
    assert rows.count() == 2
    assert page.locator("#scores td.good").all_inner_texts() == ["better", "better"]
    page.locator("#scores thead button", has_text="A - B").click()
    found = stockpot.compare(run, run, model=HOSTILE, against="old").rows
    least = min(found, key=lambda row: row.difference)
    assert rows.first.locator("th").inner_text() == least.metric
    assert page.locator("#changes h3").count() == 3
    assert HOSTILE in page.locator("#changes-0 tbody th").all_inner_texts()
    # Pictures are there as such, also the corrupted ones.
    shots = page.locator(".shots img")
    assert shots.count() >= 8
    assert page.locator(".shots figcaption", has_text="gaussian_noise 1").count() >= 1
    assert shots.first.evaluate("image => image.decode().then(() => image.naturalWidth)") == 16
    assert "only here: not measured by the first" in page.locator("#left-out").inner_text()
    assert not violations(page)
    phone = visit(out, width=390, scheme="dark")
    assert no_overflow(phone)
    assert not violations(phone)
