"""Several processes that write into one index at once: `index_writers.py URL FOLDER WRITERS CELLS`.

Each writes its own cells, one by one, and all of them write those of `shared` too.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from hand_made import clean_cell
from stockpot.results.index.open import open_index
from stockpot.results.index.place import place_of
from stockpot.results.schema import CellResult, Score
from stockpot.results.store import ResultStore

SCORES = 3


def numbered(writer: str, number: int) -> CellResult:
    cell = clean_cell(f"{writer}-{number}", "toy", np.arange(8) < 4)
    scores = [
        Score(metric="accuracy", value=number / 1024, n=8, condition={"severity": at})
        for at in range(SCORES)
    ]
    return cell.model_copy(update={"scores": scores})


def write(url: str, folder: Path, writer: str, cells: int) -> None:
    store = ResultStore(folder / "results")
    for number in range(cells):
        for name in (writer, "shared") if number < 5 else (writer,):
            path = store.save(numbered(name, number))
            with open_index(url, write=True) as index:
                index.add(path)


def main(url: str, folder: Path, writers: int, cells: int) -> int:
    # Once for all: what is imported, and what is compiled of SQL.
    write(str(folder / "other.db"), folder / "other", "w", 1)
    place_of(url).engine(write=True)
    children = []
    for writer in range(writers):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                write(url, folder, f"w{writer}", cells)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
