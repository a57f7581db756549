"""Tables of the adaptation study, from the run that `study.py` left.

    python studies/adaptation/tables.py runs/adaptation
    python studies/adaptation/tables.py runs/cotta/adaptation cotta
    python studies/adaptation/tables.py runs/adaptation-trainings trainings
    python studies/adaptation/tables.py                # from the CSV files that lie here

Writes scores.csv beside this file (or cotta.csv, of CoTTA on fewer pictures, or trainings.json, of
several trainings) and puts the tables into README.md. The verdicts follow plan.md. The rows of the
first, shorter run stay in first.csv.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import again
import numpy as np
from numpy.typing import NDArray
from study import FEW, METHODS, STREAMS

from stockpot.files import write_atomic
from stockpot.results.contrast import Contrast, paired
from stockpot.results.schema import CellResult
from stockpot.results.store import load_results
from stockpot.results.tables import csv_text, fill, markdown, percent, read_csv, score_row

HERE = Path(__file__).parent
ATTACKS = tuple(
    f"{who}{what}_accuracy" for who in ("static", "adapted") for what in ("", "_robust")
)
TRAININGS = HERE / "trainings.json"
FILES = ("scores", "first", "cotta")
Row = Mapping[str, Any]


def rows_of(results: Sequence[CellResult]) -> list[dict[str, Any]]:
    """One row for each method and stream, with paired differences to `source` and `single`."""
    cells = {_place(cell): cell for cell in results}
    rows = []
    for place, cell in cells.items():
        if place.stream is None:
            continue  # measured for the comparison with small batches alone
        row = {"data": place.data, "method": place.method, "stream": place.stream}
        scores = score_row(cell, ("stream_accuracy", "nll", "ece", *ATTACKS))
        row |= {key: _rounded(value) for key, value in scores.items()}
        alone = place._replace(stream=None if place.few else "single")
        whole = place._replace(stream="single", few=False)
        if alone not in cells and whole in cells and _same_pictures(cell, cells[whole]):
            alone = whole
        for other, name in ((place._replace(method="source"), "gain"), (alone, "change")):
            if other in cells and other != place:
                found = paired(_by_picture(cell), _by_picture(cells[other]))
                ends = (found.value, found.low, found.high)
                names = (name, f"{name}_low", f"{name}_high")
                row |= {key: _rounded(end) for key, end in zip(names, ends, strict=True)}
        rows.append(row)
    at = {(row["data"], row["method"], row["stream"]): row for row in rows}
    for (data, method, stream), row in at.items():
        source, single = at.get((data, "source", stream)), at.get((data, method, "single"))
        if method != "source" and source is not None:
            row["by the rules"] = judged(row, source, single)
    order = list(STREAMS.values())
    rows.sort(
        key=lambda row: (row["data"], METHODS.index(row["method"]), order.index(row["stream"]))
    )
    return rows


def _same_pictures(one: CellResult, other: CellResult) -> bool:
    return one.key.data_fingerprint == other.key.data_fingerprint


class _Place(NamedTuple):
    data: str
    method: str
    stream: str | None
    """None: few pictures, each corruption alone."""
    few: bool


def _place(cell: CellResult) -> _Place:
    asked, few = cell.key.params, cell.key.data.endswith(FEW)
    stream = STREAMS.get((asked["stream"], asked["order"], few))
    method = cell.key.model.removeprefix("icons-")
    return _Place(cell.key.data.removesuffix(FEW), method, stream, few)


def _by_picture(cell: CellResult) -> NDArray[np.float64]:
    """The share of its corruptions under which each picture was right."""
    found: NDArray[np.float64] = np.mean([cell.outcome(name) for name in cell.outcomes], axis=0)
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def from_data(rows: Sequence[Row], first: Sequence[Row], cotta: Sequence[Row]) -> dict[str, str]:
    """The places of README.md that follow from the CSV files and trainings.json."""
    found = {
        "accuracy-cotta": _crossed(cotta, _accuracy),
        "gains-cotta": _crossed(cotta, _gain, METHODS[1:]),
        "accuracy-first": _crossed(first, _accuracy),
        "gains-first": _crossed(first, _gain, METHODS[1:]),
        "verdicts-first": verdicts(first),
    }
    for data in ("cifar10", "icons"):
        own = [row for row in rows if row["data"] == data]
        found[f"accuracy-{data}"] = _crossed(own, _accuracy)
        found[f"gains-{data}"] = _crossed(own, _gain, METHODS[1:])
        found[f"calibration-{data}"] = _crossed(own, _calibration)
        found[f"attacks-{data}"] = attacks(own)
    found["verdicts"] = verdicts(rows)
    found["trainings"] = again.trainings_table(json.loads(TRAININGS.read_text(encoding="utf-8")))
    return found


def _crossed(rows: Sequence[Row], text: Any, methods: Sequence[str] = METHODS) -> str:
    """Methods down, streams across."""
    at = {(row["method"], row["stream"]): row for row in rows}
    streams = [name for name in STREAMS.values() if any(key[1] == name for key in at)]
    return markdown(
        ("method", *streams),
        [
            (f"`{method}`", *(text(at[method, s]) if (method, s) in at else "-" for s in streams))
            for method in methods
            if any(key[0] == method for key in at)
        ],
    )


def _ends(row: Row, name: str) -> tuple[float, float, float]:
    return row[name], row[f"{name}_low"], row[f"{name}_high"]


def _accuracy(row: Row) -> str:
    return percent(*_ends(row, "stream_accuracy"))


def _calibration(row: Row) -> str:
    return percent(*_ends(row, "ece"))


def _gain(row: Row) -> str:
    return "-" if row.get("gain") is None else str(Contrast(*_ends(row, "gain")))


def attacks(rows: Sequence[Row]) -> str:
    """Accuracy of the pictures that were attacked, before and after."""

    def cell(row: Row, name: str) -> str:
        return "-" if row.get(name) is None else percent(*_ends(row, name))

    return markdown(
        ("method", *(name.replace("_accuracy", "").replace("_", " ") for name in ATTACKS)),
        [
            (f"`{row['method']}`", *(cell(row, name) for name in ATTACKS))
            for row in rows
            if row.get("static_accuracy") is not None
        ],
    )


def verdicts(rows: Sequence[Row]) -> str:
    """What the plan's rules say of each method on each stream."""
    found = [
        (row["data"], f"`{row['method']}`", row["stream"], row["by the rules"])
        for row in rows
        if row.get("by the rules")
    ]
    return markdown(("data", "method", "stream", "by the rules"), found)


def judged(row: Row, source: Row, single: Row | None) -> str:
    """One method on one stream by the rules of plan.md."""
    words = {"held": "helps", "did not hold": "harms"}
    said = [words.get(Contrast(*_ends(row, "gain")).verdict, "not told apart")]
    helped = single is not None and Contrast(*_ends(single, "gain")).verdict == "held"
    if helped and "change" in row and Contrast(*_ends(row, "change")).verdict == "did not hold":
        said.append("the stream takes help away")
    if row["ece_low"] > source["ece_high"]:
        said.append("less calibrated")
    return "; ".join(said)


def main(run: str | None = None, name: str = "scores") -> None:
    """Write a file of data, where there is a run, and fill README.md."""
    if run is not None and name == TRAININGS.stem:
        # A training that this run does not have keeps what was found before.
        known = json.loads(TRAININGS.read_text(encoding="utf-8")) | again.packed(Path(run))
        write_atomic(TRAININGS, json.dumps(known, indent=1) + "\n")
    elif run is not None:
        write_atomic(HERE / f"{name}.csv", csv_text(rows_of(load_results(run))))
    fill(HERE / "README.md", from_data(*(read_csv(HERE / f"{each}.csv") for each in FILES)))


if __name__ == "__main__":
    main(*sys.argv[1:])
