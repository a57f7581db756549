"""Tables and verdicts of the study, from the result files of recipes/surface.yaml.

    python studies/surface/tables.py runs/surface

Writes scores.csv and fills the tables of README.md. Everything on the page follows from scores.csv.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from stockpot.files import write_atomic
from stockpot.results.contrast import Contrast, Verdict, mean_contrast
from stockpot.results.statistics import wilson
from stockpot.results.store import load_results
from stockpot.results.tables import csv_text, fill, markdown

HERE = Path(__file__).parent
KINDS = ("style", "subtype", "version")
REDRAWN, CUT = "noto", "fluent"
SHAKEN, PLAIN = "shake", "unshaken"
Row = dict[str, Any]


def rows_of(run: Path) -> list[Row]:
    """One row for each network and hold-out: how many of how many test pictures were right."""
    found = []
    for cell in load_results(run):
        kind, _, held = cell.key.data.partition("-")
        score = cell.score("accuracy")
        found.append(
            {
                "network": cell.key.model.removesuffix(f"-{cell.key.data}"),
                "protocol": kind,
                "held out": held,
                "right": round(score.value * score.n),
                "n": score.n,
            }
        )
    return sorted(found, key=lambda row: (row["network"], KINDS.index(row["protocol"])))


def share(row: Row) -> Contrast:
    """An accuracy with its interval."""
    right, n = round(row["right"]), int(row["n"])
    interval = wilson(right, n)
    return Contrast(right / n, interval.low, interval.high)


def mean_of(rows: Sequence[Row], network: str, kind: str, held: str | None = None) -> Contrast:
    """The mean accuracy over hold-outs; different pictures are tested, and half-widths add so."""
    own = [row for row in rows if (row["network"], row["protocol"]) == (network, kind)]
    return mean_contrast([share(row) for row in own if held in (None, row["held out"])])


def less(first: Contrast, second: Contrast) -> Contrast:
    """A difference of accuracies of models that were trained apart."""
    value = first.value - second.value
    down = math.hypot(first.value - first.low, second.high - second.value)
    up = math.hypot(first.high - first.value, second.value - second.low)
    return Contrast(value, value - down, value + up)


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """Held when it held for every network; did not hold when it did not for any."""
    if all(verdict == "held" for verdict in verdicts):
        return "held"
    return "did not hold" if "did not hold" in verdicts else "not told apart"


def reordered(rows: Sequence[Row], networks: Sequence[str]) -> tuple[Verdict, str]:
    """Whether some pair of networks is told apart in both protocols, and in opposite order."""
    same = 0
    pairs = list(combinations(networks, 2))
    for one, two in pairs:
        style, subtype = (
            less(*(mean_of(rows, network, kind) for network in (one, two)))
            for kind in ("style", "subtype")
        )
        told = {style.verdict, subtype.verdict}
        if told == {"held", "did not hold"}:
            return "held", f"{one} and {two}"
        same += len(told) == 1 and "not told apart" not in told
    return ("did not hold", "") if same == len(pairs) else ("not told apart", "")


def from_data(rows: Sequence[Row]) -> dict[str, str]:
    """The tables of the page by name; networks that lack a hold-out are left out."""
    counts = Counter(row["network"] for row in rows)
    networks = [name for name, count in counts.items() if count == max(counts.values())]
    families = list(dict.fromkeys(r["held out"] for r in rows if r["protocol"] == "style"))
    accuracy = []
    for network in networks:
        held = [share(r).value for r in rows if (r["network"], r["protocol"]) == (network, "style")]
        spread = f"{100 * float(np.std(held, ddof=1)):.1f}" if len(held) > 1 else "-"
        style, subtype = (mean_of(rows, network, kind) for kind in ("style", "subtype"))
        editions = [mean_of(rows, network, "version", held) for held in (REDRAWN, CUT)]
        others = map(_percent, (subtype, *editions))
        accuracy.append([network, _percent(style), spread, *others])
    by_family = [
        [network, *(_percent(mean_of(rows, network, "style", held)) for held in families)]
        for network in networks
    ]
    headings = ["style, mean of all", "spread", "subtype", "edition redrawn", "flat cut"]
    findings = _findings(rows, networks)
    return {
        "accuracy": markdown(["network", *headings], accuracy),
        "families": markdown(["network", *families], by_family),
        "findings": markdown(["finding", "difference in points", "verdict"], findings),
    }


def _findings(rows: Sequence[Row], networks: Sequence[str]) -> list[list[str]]:
    style = {name: mean_of(rows, name, "style") for name in networks}
    subtype = {name: mean_of(rows, name, "subtype") for name in networks}
    redrawn = {name: mean_of(rows, name, "version", REDRAWN) for name in networks}
    cut = {name: mean_of(rows, name, "version", CUT) for name in networks}
    found = []
    for text, first, second in (
        ("1 a new edition is easier than a new style", redrawn, style),
        ("2 a new edition is easier than a new subtype", redrawn, subtype),
        ("3 a cut of known drawings is easier than a redrawn edition", cut, redrawn),
    ):
        gaps = {name: less(first[name], second[name]) for name in networks}
        said = "; ".join(f"{name} {gap}" for name, gap in gaps.items())
        found.append([text, said, together([gap.verdict for gap in gaps.values()])])
    verdict, pair = reordered(rows, networks)
    found.append(["4 networks rank otherwise by style than by subtype", pair, verdict])
    if {SHAKEN, PLAIN} <= set(networks):
        for number, name, values in ((5, "styles", style), (6, "subtypes", subtype)):
            gap = less(values[SHAKEN], values[PLAIN])
            found.append([f"{number} shaking helps with new {name}", str(gap), gap.verdict])
    return found


def _percent(share: Contrast) -> str:
    return f"{100 * share.value:.1f} [{100 * share.low:.1f}, {100 * share.high:.1f}]"


def main() -> None:
    rows = rows_of(Path(sys.argv[1]))
    write_atomic(HERE / "scores.csv", csv_text(rows))
    fill(HERE / "README.md", from_data(rows))


if __name__ == "__main__":
    main()
