"""Tables and verdicts of the enhancements, from the run that `study.py` left.

    python studies/enhancements/tables.py [runs/enhancements]

Writes scores.csv beside this file, where there is a run, and puts the tables into README.md. The
verdicts follow plan.md.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import again
from claims import BASELINE, CLAIMS, NEXT_TO, ORDER, contributions

from stockpot.files import write_atomic
from stockpot.results.contrast import Contrast, Verdict, paired
from stockpot.results.schema import CellResult
from stockpot.results.store import load_results
from stockpot.results.tables import csv_text, fill, markdown, percent, read_csv, score_row

HERE = Path(__file__).parent
LITTLE = 0.01
Row = Mapping[str, Any]


def rows_of(results: Sequence[CellResult]) -> list[dict[str, Any]]:
    """One row for each model: accuracy, mCE and relative mCE, and the paired differences."""
    cells = {cell.key.model: cell for cell in results if cell.key.measure == "corruption"}
    baseline = cells[BASELINE]
    shares = {name: contributions(cell, baseline) for name, cell in cells.items()}
    rows = []
    for name in (name for name in ORDER if name in cells):
        row: dict[str, Any] = {"model": name, "next to": NEXT_TO.get(name)}
        row |= score_row(cells[name], ("accuracy", "mce", "relative_mce"))
        if NEXT_TO.get(name) in cells:
            for metric, own, other in zip(
                ("mce", "relative_mce"), shares[name], shares[NEXT_TO[name]], strict=True
            ):
                gap = paired(own, other)
                row |= {f"{metric}_gap{end}": value
                        for end, value in zip(("", "_low", "_high"), gap, strict=True)}  # fmt: skip
        rows.append({key: round(v, 4) if isinstance(v, float) else v for key, v in row.items()})
    return rows


def from_data(rows: Sequence[Row]) -> dict[str, str]:
    """The places of README.md that follow from scores.csv."""
    at = {row["model"]: row for row in rows}
    shown = [
        (f"`{row['model']}`",
         *(percent(*_ends(row, metric)) for metric in ("accuracy", "mce", "relative_mce")),
         f"`{row['next to']}`" if row.get("mce_gap") is not None else "-",
         _gap(row, "mce"), _gap(row, "relative_mce"))
        for row in rows
    ]  # fmt: skip
    columns = ("accuracy", "mCE", "relative mCE", "next to", "mCE less", "relative mCE less")
    claims = [_judged(claim, [at[n] for n in names if n in at], side, len(names))
              for claim, (names, side) in CLAIMS.items()]  # fmt: skip
    return {
        "scores": markdown(("model", *columns), shown),
        "claims": markdown(("claim", "difference of mCE", "verdict"), claims),
    }


def _judged(claim: str, rows: Sequence[Row], side: int, wanted: int) -> tuple[str, str, str]:
    gaps = {row["model"]: Contrast(*_ends(row, "mce_gap")) for row in rows
            if row.get("mce_gap") is not None}  # fmt: skip
    said = "; ".join(f"{name} {gap}" for name, gap in gaps.items()) or "-"
    if len(gaps) < wanted:
        return claim, said, "not run"
    found = [verdict(gap, side) for gap in gaps.values()]
    if all(one == "held" for one in found):
        return claim, said, "held"
    return claim, said, "did not hold" if "did not hold" in found else "not told apart"


def verdict(gap: Contrast, side: int) -> Verdict:
    """Where the interval lies: above zero (1), below (-1), or near it (0)."""
    if side == 0:
        if gap.low > -LITTLE and gap.high < LITTLE:
            return "held"
        return "did not hold" if gap.low > LITTLE or gap.high < -LITTLE else "not told apart"
    return gap.verdict if side > 0 else Contrast(-gap.value, -gap.high, -gap.low).verdict


def _ends(row: Row, name: str) -> tuple[float, float, float]:
    return row[name], row[f"{name}_low"], row[f"{name}_high"]


def _gap(row: Row, metric: str) -> str:
    name = f"{metric}_gap"
    return "-" if row.get(name) is None else str(Contrast(*_ends(row, name)))


def main(run: str | None = None) -> None:
    """Write scores.csv, where there is a run, and fill README.md."""
    if run is not None:
        write_atomic(HERE / "scores.csv", csv_text(rows_of(load_results(run))))
    fill(HERE / "README.md", from_data(read_csv(HERE / "scores.csv")) | again.from_data())


if __name__ == "__main__":
    main(*sys.argv[1:2])
