"""`stockpot results index` with many at once, and `stockpot results query`: right, and how fast.

    python benchmarks/results_index.py [--index FILE|URL] [--writers 4] [--cells 500]

Result files of made-up cells lie in a folder for each writer. As many commands as there are folders
bring them into one index at the same time; then every score is asked back, and nothing may be lost
or there twice. The index must be empty or not there; without --index it is a SQLite file. The floor
of an index is the same files in the same run, read, parsed, hashed and inserted into a bare SQLite
table by one process; that of a query is a process that asks that table. Seconds are of the
processor, starts included, which are most of a query; those of the clock stand beside them. A
server of PostgreSQL works besides, and is not counted.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from parts.stages import print_each, profiled_stages
from parts.watched import STOCKPOT, environment
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
FLOOR = """
import hashlib, json, pathlib, sqlite3, sys
table = sqlite3.connect(sys.argv[1])
table.execute("CREATE TABLE scores (model, measure, data, severity, metric, value, n, file, hash)")
for folder in sys.argv[2:]:
    for file in sorted(pathlib.Path(folder, "results").glob("*.json")):
        content = file.read_bytes()
        told, digest = json.loads(content), hashlib.sha256(content).hexdigest()
        key = told["key"]
        table.executemany("INSERT INTO scores VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", [
            (key["model"], key["measure"], key["data"], score["condition"]["severity"],
             score["metric"], score["value"], score["n"], file.name, digest)
            for score in told["scores"]])
table.commit()
"""
ASKING = """
import sqlite3, sys
for row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2]):
    print(*row, sep=",")
"""
QUERIES = {  # what the command is asked, and the same of the bare table
    "one model": ("model=model-1-7", "SELECT * FROM scores WHERE model = 'model-1-7'"),
    "mean by model of a third": (
        "SELECT model, avg(value) FROM results WHERE severity = 1 GROUP BY model",
        "SELECT model, avg(value) FROM scores WHERE severity = 1 GROUP BY model",
    ),
    "count of all": ("SELECT count(*) FROM results", "SELECT count(*) FROM scores"),
}


class Took(NamedTuple):
    clock: float
    processor: float
    said: list[str]

    def of(self, floor: Took) -> str:
        return (
            f"{self.clock:6.2f} s, {self.processor:6.2f} s of the processor; floor "
            f"{floor.processor:.2f} s: {self.processor / floor.processor:.2f} of it"
        )


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


def took(*commands: list[str]) -> Took:
    """What commands take that run at the same time, and what each printed."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
        for command in commands
    ]
    said = [process.communicate()[0] for process in running]
    clock, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    for process in running:
        if process.returncode:
            raise SystemExit(f"{process.args} ended with {process.returncode}")
    work = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(clock, work, said)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--index")
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--cells", type=int, default=500, help="of each writer")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        index = ["--index", asked.index or str(place / "index.db")]
        folders = [str(place / f"run-{writer}") for writer in range(asked.writers)]
        for writer, folder in enumerate(folders):
            store = ResultStore(Path(folder) / "results")
            for number in range(asked.cells):
                store.save(cell(writer, number))
        python, bare = sys.executable, str(place / "bare.db")
        floor = took([python, "-c", FLOOR, bare, *folders])
        writing = [[*STOCKPOT, "results", "index", folder, *index] for folder in folders]
        traces = [place / f"trace-{writer}.json" for writer in range(asked.writers)]
        made = took(
            *([*one, "--profile", str(trace)] for one, trace in zip(writing, traces, strict=True))
        )
        total = asked.writers * asked.cells
        print(f"stockpot results index, {total:,} cells of {SCORES} scores")
        print(f"  {asked.writers} at once, a folder each  {made.of(floor)}")
        together = sum((Counter(profiled_stages(trace)) for trace in traces), Counter())
        print_each(together, floor.clock, "floor, all writers together")
        query = [*STOCKPOT, "results", "query", *index]
        words = "SELECT model, severity, value FROM results"
        rows = json.loads(took([*query, words, "--format", "json"]).said[0])
        found = sorted((row["model"], row["severity"], row["value"]) for row in rows)
        wanted = sorted(
            (f"model-{writer}-{number}", float(at), number / 65536)
            for writer in range(asked.writers)
            for number in range(asked.cells)
            for at in range(SCORES)
        )
        if found != wanted:
            raise SystemExit(f"lost or twice: {len(found):,} scores, {len(wanted):,} are there")
        print("  nothing lost, nothing twice")
        for label, more in {"nothing is new": [], "--check": ["--check"]}.items():
            again = took([*STOCKPOT, "results", "index", *folders, *index, *more])
            print(f"  {label:24} {again.of(floor)}")
        anew = took([*STOCKPOT, "results", "index", *folders, *index, "--rebuild"])
        print(f"  {'--rebuild':24} {anew.of(floor)}")
        print(f"stockpot results query, {total * SCORES:,} scores")
        for label, (ours, theirs) in QUERIES.items():
            floor = took([python, "-c", ASKING, bare, theirs])
            print(f"  {label:24} {took([*query, ours, '--profile', str(traces[0])]).of(floor)}")
            print_each(profiled_stages(traces[0]), floor.clock, "floor")


if __name__ == "__main__":
    main()
