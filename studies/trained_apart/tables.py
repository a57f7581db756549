"""Tables and verdicts of networks trained apart, from the run that `study.py` left.

    python studies/trained_apart/tables.py runs/trained_apart

Copies outcomes.json beside this file and fills README.md from it. The verdicts follow plan.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stockpot.files import write_atomic
from stockpot.results.contrast import paired, verdict
from stockpot.results.packed import unpack_bits
from stockpot.results.statistics import share_interval
from stockpot.results.tables import fill, markdown, percent

HERE = Path(__file__).parent
MEMBERS = ("a", "b")
ORDER = (*MEMBERS, "ensemble", "average as it is", "average", "permuted", "zipit", "zipit chosen",
         "pleas", "pleas chosen")  # fmt: skip
CLAIMS = (
    ("1 a permutation mends the average", "permuted", "average", 0.0),
    ("2 joining units beats a permutation", "zipit chosen", "permuted", 0.0),
    ("3 least squares beats a permutation", "pleas chosen", "permuted", 0.0),
    ("4 defaults do as well as chosen settings", "pleas", "pleas chosen", -0.01),
)
Outcomes = Mapping[str, Any]


def right(outcomes: Outcomes, model: str) -> NDArray[np.float64]:
    """On which images a model was right."""
    return unpack_bits(outcomes["right"][model], outcomes["n"]).astype(np.float64)


def claims(outcomes: Outcomes) -> list[tuple[str, str, str]]:
    """Every claim with its statistic and verdict."""
    on_val = outcomes["validation"]["merges"]
    best = max(on_val, key=lambda name: on_val[name])
    worse = min(MEMBERS, key=lambda name: right(outcomes, name).mean())
    last = (f"5 the best merge is as good as the worse member (`{best}`, `{worse}`)",
            best, worse, -0.01)  # fmt: skip
    rows = []
    for claim, first, second, margin in (*CLAIMS, last):
        found = paired(right(outcomes, first), right(outcomes, second))
        rows.append((claim, str(found), verdict(found.low, found.high, margin)))
    return rows


def from_data(outcomes: Outcomes) -> dict[str, str]:
    """The places of README.md that follow from outcomes.json."""
    rows = []
    for name in ORDER:
        flags = right(outcomes, name)
        interval = share_interval(flags)
        settings = outcomes["chosen"].get(name, {})
        told = ", ".join(f"{key} {value}" for key, value in settings.items() if value != 1e9)
        shown = percent(float(flags.mean()), interval.low, interval.high)
        less = "" if name == "permuted" else str(paired(flags, right(outcomes, "permuted")))
        rows.append((f"`{name}`", told, shown, less))
    columns = ("model", "chosen", "accuracy", "less `permuted`")
    return {
        "accuracy": markdown(columns, rows),
        "claims": markdown(("claim", "statistic [95 %]", "verdict"), claims(outcomes)),
    }


def main(run: str) -> None:
    """Copy outcomes.json and fill README.md."""
    text = (Path(run) / "outcomes.json").read_text(encoding="utf-8")
    write_atomic(HERE / "outcomes.json", text)
    fill(HERE / "README.md", from_data(json.loads(text)))


if __name__ == "__main__":
    main(sys.argv[1])
