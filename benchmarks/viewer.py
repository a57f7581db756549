"""The viewer at full size: how long records and site take to write, and the page to open.

    python benchmarks/viewer.py                      # 50,000 images x 75 cells x 2 models
    python benchmarks/viewer.py --images 5000

Answers are drawn, as many as ImageNet-C has. Chromium opens the site from its folder; it counts as
open when the images that A gets wrong and B right stand there with both answers.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from stockpot.report.viewer.site import write_site
from stockpot.results.packed import pack_bits
from stockpot.results.provenance import provenance
from stockpot.results.samples import Answered, Coded, digest_of, encode_samples
from stockpot.results.schema import CellKey, CellResult, Cost, DataFacts, ModelFacts
from stockpot.results.store import ResultStore, result_files

CORRUPTIONS = 15
SEVERITIES = 5


def drawn(model: str, images: int, classes: list[str], store: ResultStore, seed: int) -> int:
    """One cell of a model that is right less often the more severe a corruption is."""
    random = np.random.default_rng(seed)
    labels = np.arange(images) % len(classes)
    names = Coded(np.arange(images), [f"val/n{n:08d}/picture_{n:08d}.JPEG" for n in range(images)])
    records = {"correct": 0.8}
    for kind in range(CORRUPTIONS):
        for severity in range(1, SEVERITIES + 1):
            records[f"corruption_{kind}:{severity}"] = 0.8 - 0.1 * severity
    outcomes, answered = {}, {}
    for record, share in records.items():
        right = random.random(images) < share
        said = np.where(right, labels, random.integers(0, len(classes), images))
        outcomes[record] = pack_bits(said == labels)
        sure = random.random(images).astype(np.float32)
        answered[record] = Answered(
            names, None, Coded(labels, classes), Coded(said, classes), sure
        )  # fmt: skip
    result = CellResult(
        key=CellKey(model=model, measure="corruption", data="drawn"),
        scores=[],
        data=DataFacts(name="drawn", split="val", n=images, classes=len(classes), fingerprint="0"),
        model=ModelFacts(name=model, source=model, fingerprint=model),
        provenance=provenance("cpu"),
        cost=Cost(wall_seconds=0, device="cpu"),
        outcomes=outcomes,
    )
    content = encode_samples(result, answered)
    store.save(result.model_copy(update={"samples": digest_of(content)}), content)
    return len(content)


def opened(page: Path) -> dict[str, float]:
    from playwright.sync_api import sync_playwright

    browser = os.environ.get("STOCKPOT_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        view = chromium.new_page()
        session = view.context.new_cdp_session(view)
        session.send("Performance.enable")

        def timed(act) -> float:
            start = time.perf_counter()
            act()
            return time.perf_counter() - start

        def ask(changes: str) -> float:
            return view.evaluate(
                f"(async () => {{ const start = performance.now(); await viewer.ask({changes});"
                " return performance.now() - start; })()"
            ) / 1000  # fmt: skip

        first = timed(lambda: (view.goto(page.as_uri()), view.wait_for_selector(".tile")))
        view.wait_for_selector("#found[aria-busy=false]")
        spent = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
        found = {
            "open, until tiles stand there": first,
            "work of the page meanwhile": spent["TaskDuration"],
            "another condition": ask("{on: 'corruption_7:3'}"),
            "another question": ask("{show: 'none'}"),
            "search by file name": ask("{q: '00012'}"),
            "any of 76 conditions, by how many": ask("{q: '', on: 'any', sort: 'many'}"),
        }
        chromium.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run, classes = Path(folder), [f"class {n}" for n in range(options.classes)]
        store, taken = ResultStore(run / "results"), {}
        start = time.perf_counter()
        size = sum(
            drawn(model, options.images, classes, store, seed)
            for seed, model in enumerate(("first", "second"))
        )
        taken[f"records of two models, {size / 1e6:.0f} MB of parquet"] = (
            time.perf_counter() - start
        )
        start = time.perf_counter()
        page = write_site(result_files(run), run / "view")
        whole = sum(file.stat().st_size for file in page.parent.rglob("*") if file.is_file())
        taken[f"site, {whole / 1e6:.0f} MB"] = time.perf_counter() - start
        taken |= opened(page)
    for what, seconds in taken.items():
        print(f"{what:45} {seconds:7.2f} s")


if __name__ == "__main__":
    main()
