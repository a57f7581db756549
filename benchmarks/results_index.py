"""An index of results with many writers: nothing lost, nothing twice, and how long it takes.

    python benchmarks/results_index.py [--index FILE|URL] [--writers 8] [--cells 1250]

Every writer is a process that writes its cells one by one, file first and index after it, as
`stockpot measure` does. The index must be empty or not there; without --index it is a SQLite file.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from stockpot.results.index.index import rebuilt
from stockpot.results.index.open import open_index
from stockpot.results.schema import (
    CellKey,
    CellResult,
    Cost,
    DataFacts,
    ModelFacts,
    Provenance,
    Score,
)
from stockpot.results.store import ResultStore

SCORES = 3
LONGEST = 0.1
"""Seconds that a query may take."""


def cell(writer: int, number: int) -> CellResult:
    name = f"model-{writer}-{number}"
    return CellResult(
        key=CellKey(model=name, measure="clean", data="toy", model_fingerprint=name),
        scores=[
            Score(metric="accuracy", value=number / 65536, n=1000, condition={"severity": at})
            for at in range(SCORES)
        ],
        data=DataFacts(name="toy", split="test", n=1000, classes=10, fingerprint="toy"),
        model=ModelFacts(name=name, source=name, fingerprint=name),
        provenance=Provenance(stockpot="0", created="2026-01-01T00:00:00"),
        cost=Cost(wall_seconds=1.0, device="cpu"),
    )


def write(place: str, folder: Path, writer: int, cells: int) -> None:
    store = ResultStore(folder / "results")
    for number in range(cells):
        path = store.save(cell(writer, number))
        with open_index(place, write=True) as index:
            index.add(path)


def timed(what: Callable[[], object], times: int = 5) -> tuple[float, float]:
    """Seconds by the clock, and of this process's computing, which others do not lengthen."""
    taken = []
    for _ in range(times):
        start, computed = time.perf_counter(), time.process_time()
        what()
        taken.append((time.perf_counter() - start, time.process_time() - computed))
    clock, computing = zip(*taken, strict=True)
    return statistics.median(clock), statistics.median(computing)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--index")
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--cells", type=int, default=1250, help="of each writer")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder, url = Path(place) / "run", asked.index or str(Path(place) / "index.db")
        start = time.perf_counter()
        processes = [
            multiprocessing.Process(target=write, args=(url, folder, writer, asked.cells))
            for writer in range(asked.writers)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        seconds = time.perf_counter() - start
        assert not any(process.exitcode for process in processes)
        total = asked.writers * asked.cells
        print(
            f"{total} cells by {asked.writers} writers: {seconds:.1f} s ({total / seconds:.0f}/s)"
        )
        with open_index(url) as index:
            rows = index.query("SELECT model, severity, value FROM results").rows
            assert sorted(rows) == sorted(
                (f"model-{w}-{n}", float(at), n / 65536)
                for w in range(asked.writers)
                for n in range(asked.cells)
                for at in range(SCORES)
            ), "lost or twice"
            assert len(index.query("SELECT id FROM cells").rows) == total
            print("nothing lost, nothing twice")
            few = "SELECT model, avg(value) FROM results WHERE severity = 1 GROUP BY model"
            queries = {
                "filter for one model": timed(lambda: index.query("model=model-1-7")),
                "average by model of a third of the scores": timed(lambda: index.query(few)),
                "count of all scores": timed(lambda: index.query("SELECT count(*) FROM results")),
            }
            for what, taken in (queries | {"is it behind its files?": timed(index.behind)}).items():
                print(
                    "{}: {:.0f} ms, of computing {:.0f} ms".format(what, *(1e3 * s for s in taken))
                )
            slow = [what for what, (clock, _) in queries.items() if clock > LONGEST]
            print(f"slower than {1e3 * LONGEST:.0f} ms: {', '.join(slow) or 'none'}")
        start = time.perf_counter()
        rebuilt(url, [folder])
        print(f"made again from the files: {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
