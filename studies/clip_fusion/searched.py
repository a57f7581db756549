"""Tables of the methods that `tuned.py` searched, each with the same budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuned import LABELLED, LARGER, PER_TASK

from stockpot.results.contrast import verdict
from stockpot.results.tables import markdown, percent

VERDICTS = {"held": "holds", "did not hold": "the other way round",
            "not told apart": "not told apart"}  # fmt: skip
Row = dict[str, Any]


def tuned_tables(rows: Sequence[Row], best: Sequence[Row]) -> dict[str, str]:
    """Every method tuned on the same budget, and the best of all beside the best default."""
    apart = dict.fromkeys(LARGER, " (larger)") | dict.fromkeys(PER_TASK, " (a model per task)")
    apart |= dict.fromkeys(LABELLED, " (learns from labels)")
    body = []
    for row in sorted(rows, key=lambda row: row["test"]):
        searched = round(row["trials"]) > 1
        body.append([
            row["method"] + apart.get(row["method"], ""),
            f"{row['trials']:.0f}, {row['given up']:.0f}" if searched else "nothing to tune",
            percent(row["validation"]),
            _range(row, "choice") if row["choice"] is not None else "",
            _range(row, "test"),
            percent(row["default"]) if row["default"] is not None else "",
            _range(row, "gain", "+") if searched and row["gain"] is not None else "",
            f"`{row['parameters']}`" if row["parameters"] else "",
        ])  # fmt: skip
    head = ["method", "trials, given up", "validation", "worth of the choice [95 %]",
            "test [95 %]", "test, defaults", "gain [95 %]", "chosen"]  # fmt: skip
    margin = [
        [f"{row['tuned']} over {row['default']}", f"{row['images']:,.0f}", percent(row["first"]),
         percent(row["second"]), _range(row, "margin", "+"),
         VERDICTS[verdict(row["margin_low"], row["margin_high"])]]
        for row in best
    ]  # fmt: skip
    columns = ["best tuned over best default", "test images", "tuned", "default",
               "margin, points [95 %]", "tuning pays"]  # fmt: skip
    missing = "Not measured yet: it follows when all searches have ended."
    looks = sum(round(row["looks"]) for row in rows)
    met = f"{len(rows)} methods met the 1,000 test images of each task {looks} times, "
    met += "each with its choice and its defaults at once; "
    met += f"the whole test split was met by {2 * len(best)} models."
    return {
        "looks": met,
        "tuned": markdown(head, body),
        "margin": markdown(columns, margin) if margin else missing,
    }


def _range(row: Row, name: str, sign: str = "") -> str:
    value, low, high = (100 * row[key] for key in (name, f"{name}_low", f"{name}_high"))
    return f"{value:{sign}.1f} [{low:{sign}.1f}, {high:{sign}.1f}]"
