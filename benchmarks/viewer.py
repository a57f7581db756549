"""`stockpot view` at full size: how long the site takes to write, and its page to open.

    python benchmarks/viewer.py                      # 50,000 images x 75 cells x 2 models
    python benchmarks/viewer.py --images 5000

Answers are drawn, as many as ImageNet-C has. The floor is a process that reads the records (parquet
and results) and does nothing with them, in the same run. Where there is a chromium (on the PATH, or
in STOCKPOT_CHROMIUM), it opens the site from its folder; it counts as open when the images that A
gets wrong and B right stand there with both answers.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from parts.browser import chromium
from parts.stages import print_each, profiled_stages
from parts.watched import STOCKPOT, watch
from stockpot.results.packed import pack_bits
from stockpot.results.provenance import provenance
from stockpot.results.samples import Answered, Coded, digest_of, encode_samples
from stockpot.results.schema import CellKey, CellResult, Cost, DataFacts, ModelFacts
from stockpot.results.store import ResultStore

CORRUPTIONS = 15
SEVERITIES = 5
FLOOR = """
import json, pathlib, sys
from pyarrow import parquet
for file in pathlib.Path(sys.argv[1]).rglob("*"):
    if file.suffix == ".parquet":
        parquet.read_table(file)
    elif file.suffix == ".json":
        json.loads(file.read_bytes())
"""


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


def opened(browser: str, page: Path) -> dict[str, float]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        opener = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        view = opener.new_page()
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
        opener.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run, classes = Path(folder), [f"class {n}" for n in range(options.classes)]
        store = ResultStore(run / "results")
        size = sum(
            drawn(model, options.images, classes, store, seed)
            for seed, model in enumerate(("first", "second"))
        )
        floor = watch([sys.executable, "-c", FLOOR, str(run)])
        trace = run / "trace.json"
        ours = watch([*STOCKPOT, "view", str(run), "-o", str(run / "view"),
                      "--profile", str(trace)])  # fmt: skip
        page = run / "view" / "index.html"
        whole = sum(file.stat().st_size for file in page.parent.rglob("*") if file.is_file())
        print(f"stockpot view, {options.images:,} images, two models, {size / 1e6:.0f} MB of "
              f"records into a site of {whole / 1e6:.0f} MB: {ours.seconds:.1f} s, "
              f"{ours.cpu:.1f} s of the processor; reading the records {floor.cpu:.1f} s: "
              f"{ours.cpu / floor.cpu:.2f} of the floor", flush=True)  # fmt: skip
        print_each(profiled_stages(trace), floor.seconds, "floor")
        if browser := chromium():
            for what, seconds in opened(browser, page).items():
                print(f"{what:45} {seconds:7.2f} s")


if __name__ == "__main__":
    main()
