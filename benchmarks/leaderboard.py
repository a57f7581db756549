"""`stockpot leaderboard` of 200 models x 100 measures, and sorting it in a browser.

    python benchmarks/leaderboard.py [--models 200] [--measures 100] [--keep FOLDER]

The results are made up, with the records of 1,000 images each, in ten folders as of ten machines.
The floor is a process that reads and parses the same files, in the same run. Where there is a
chromium (on the PATH, or in STOCKPOT_CHROMIUM), the time in it is that of a click on a head of the
widest table (all models, the score that ranks on every board), from the click until the rows stand
in their new places.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np

from parts.browser import chromium
from parts.stages import print_each, profiled_stages
from parts.watched import STOCKPOT, watch
from stockpot.results.packed import pack_bits
from stockpot.results.schema import (
    CellKey,
    CellResult,
    Cost,
    DataFacts,
    ModelFacts,
    Provenance,
    Score,
)
from stockpot.results.statistics import wilson
from stockpot.results.store import ResultStore

IMAGES = 1000
FLOOR = """
import json, pathlib, sys
for folder in sys.argv[1:]:
    for file in pathlib.Path(folder, "results").glob("*.json"):
        json.loads(file.read_bytes())
"""
KINDS = {
    "clean": ("accuracy", {}),
    "corruption": ("mean_corruption_accuracy", {}),
    "adversarial": ("robust_accuracy", {"norm": "linf", "eps": "8/255"}),
    "published": ("fmr", {"generator": "vqgan"}),
}


def cell(model: int, measure: int, draws: np.random.Generator) -> CellResult:
    kind = list(KINDS)[measure % len(KINDS)]
    data = f"data-{measure // len(KINDS)}"
    metric, condition = KINDS[kind]
    right = draws.random(IMAGES) < 0.2 + 0.6 * model / 1000 + 0.2 * draws.random()
    interval = wilson(int(right.sum()), IMAGES)
    name = f"model-{model:03d}"
    return CellResult(
        key=CellKey(model=name, measure=kind, data=data, model_fingerprint=f"{model:064d}"),
        scores=[
            Score(metric=metric, value=float(right.mean()), n=IMAGES,
                  ci_low=interval.low, ci_high=interval.high,
                  ci_method="wilson-95", condition=condition),
            Score(metric="accuracy", value=float(right.mean()), n=IMAGES),
            *(Score(metric="accuracy", value=0.5, n=20, condition={"class": str(c)})
              for c in range(10)),
        ],
        data=DataFacts(name=data, split="test", n=IMAGES, classes=10, fingerprint=data * 4),
        model=ModelFacts(name=name, source=name, fingerprint=f"{model:064d}",
                         architecture=f"Net{model % 7}", parameters=10**6 * (model + 1)),
        convention=f"{kind}:made-up",
        provenance=Provenance(stockpot="0.1.0", created="2026-01-01T00:00:00+00:00"),
        cost=Cost(wall_seconds=1.0, device="cpu"),
        outcomes={"correct": pack_bits(right)},
    )  # fmt: skip


def made_up(folder: Path, models: int, measures: int) -> list[Path]:
    draws = np.random.default_rng(0)
    places = [folder / f"machine-{number}" for number in range(10)]
    for place in places:
        (place / "results").mkdir(parents=True)
    for model in range(models):
        store = ResultStore(places[model % len(places)] / "results")
        for measure in range(measures):
            one = cell(model, measure, draws)
            store.path(one.key).write_text(one.model_dump_json(indent=1) + "\n")
    return places


def sorted_in_browser(browser_path: str, index: Path) -> tuple[float, float]:
    """Milliseconds: the middle and the longest of clicks on twenty heads."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(index.as_uri())
        times = page.evaluate(
            """() => {
                const row = document.querySelector("#models thead tr:last-child");
                const heads = [...row.querySelectorAll("button")].slice(0, 20);
                const box = document.querySelector("#models table");
                box.offsetHeight;
                return heads.map((head) => {
                    const start = performance.now();
                    head.click();
                    box.offsetHeight;
                    return performance.now() - start;
                });
            }"""
        )
        browser.close()
    return statistics.median(times), max(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--measures", type=int, default=100)
    parser.add_argument("--keep", type=Path, help="Leave results and site in this folder.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as spare:
        folder = given.keep or Path(spare)
        places = made_up(folder, given.models, given.measures)
        floor = watch([sys.executable, "-c", FLOOR, *map(str, places)])
        trace = folder / "trace.json"
        ours = watch([*STOCKPOT, "leaderboard", *map(str, places), "-o", str(folder / "site"),
                      "--profile", str(trace)])  # fmt: skip
        print(f"stockpot leaderboard, {given.models} models x {given.measures} boards: "
              f"{ours.seconds:.1f} s (wanted: at most 20), {ours.cpu:.1f} s of the processor; "
              f"reading and parsing its files {floor.cpu:.1f} s: {ours.cpu / floor.cpu:.2f} of the "
              "floor", flush=True)  # fmt: skip
        print_each(profiled_stages(trace), floor.seconds, "floor")
        if browser := chromium():
            middle, longest = sorted_in_browser(browser, folder / "site" / "index.html")
            print(f"sorted in {middle:.0f} ms, at most {longest:.0f} ms (wanted: at most 100)")


if __name__ == "__main__":
    main()
