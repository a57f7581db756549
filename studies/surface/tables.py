"""Tables and verdicts of the study, from the result files of recipes/surface.yaml.

    python studies/surface/tables.py [runs/surface]

Writes scores.csv, where there is a run, and fills the tables of README.md, which follow from it and
from again.npz, which `again.py` writes.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import again
import numpy as np
from study import EQUAL_COMPUTE

from stockpot.files import write_atomic
from stockpot.results.contrast import Contrast, Verdict, mean_contrast
from stockpot.results.statistics import wilson
from stockpot.results.store import load_results
from stockpot.results.tables import csv_text, fill, markdown, read_csv

HERE = Path(__file__).parent
KINDS = ("style", "subtype", "version")
REDRAWN, CUT = "noto", "fluent"
SHAKEN, PLAIN = "shake", "unshaken"
SMALLEST = "resnet20"
MISSING = "Not run yet."
COMPUTE = EQUAL_COMPUTE.rstrip("-")
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


def shared(rows: Sequence[Row]) -> list[Row]:
    """Rows of hold-outs that every network has: means over others would not compare."""
    networks = {row["network"] for row in rows}
    had = Counter((row["protocol"], row["held out"]) for row in rows)
    return [row for row in rows if had[row["protocol"], row["held out"]] == len(networks)]


def from_data(rows: Sequence[Row]) -> dict[str, str]:
    """The tables of the page by name; each set of rows over the hold-outs that all of it have."""
    epochs = shared([row for row in rows if not row["network"].endswith(COMPUTE)])
    compute = shared([row for row in rows if row["network"].endswith(COMPUTE)])
    families = list(dict.fromkeys(r["held out"] for r in epochs if r["protocol"] == "style"))
    by_family = [
        [network, *(_percent(mean_of(epochs, network, "style", held)) for held in families)]
        for network in _networks(epochs)
    ]
    findings = [*_findings(epochs), *_at_equal_compute(compute)]
    return {
        "accuracy": _accuracy(epochs),
        "compute": _accuracy(compute),
        "families": markdown(["network", *families], by_family),
        "findings": markdown(["finding", "difference in points", "verdict"], findings),
    }


def _whole(rows: Sequence[Row]) -> bool:
    """Whether every kind of hold-out is there, of which tables and findings are made."""
    return {row["protocol"] for row in rows} == set(KINDS)


def _networks(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["network"] for row in rows))


def _accuracy(rows: Sequence[Row]) -> str:
    if not _whole(rows):
        return MISSING
    kinds = Counter(row["protocol"] for row in rows if row["network"] == rows[0]["network"])
    found = []
    for network in _networks(rows):
        held = [share(r).value for r in rows if (r["network"], r["protocol"]) == (network, "style")]
        spread = f"{100 * float(np.std(held, ddof=1)):.1f}" if len(held) > 1 else "-"
        style, subtype = (mean_of(rows, network, kind) for kind in ("style", "subtype"))
        editions = [
            _percent(mean_of(rows, network, "version", row["held out"]))
            for row in rows
            if (row["network"], row["protocol"]) == (network, "version")
        ]
        name = network.removesuffix(COMPUTE)
        found.append([name, _percent(style), spread, _percent(subtype), *editions])
    named = {REDRAWN: "edition redrawn", CUT: "flat cut"}
    headings = [
        f"style, mean of {kinds['style']}",
        "spread",
        f"subtype, mean of {kinds['subtype']}",
    ]
    headings += [
        named[h] for h in dict.fromkeys(r["held out"] for r in rows if r["protocol"] == "version")
    ]
    return markdown(["network", *headings], found)


def _findings(rows: Sequence[Row]) -> list[list[str]]:
    networks = _networks(rows)
    style = {name: mean_of(rows, name, "style") for name in networks}
    subtype = {name: mean_of(rows, name, "subtype") for name in networks}
    redrawn = {name: mean_of(rows, name, "version", REDRAWN) for name in networks}
    asked = [
        ("1 a new edition is easier than a new style", redrawn, style),
        ("2 a new edition is easier than a new subtype", redrawn, subtype),
    ]
    if any((row["protocol"], row["held out"]) == ("version", CUT) for row in rows):
        cut = {name: mean_of(rows, name, "version", CUT) for name in networks}
        asked.append(("3 a cut of known drawings is easier than a redrawn edition", cut, redrawn))
    found = [_by_network(text, first, second) for text, first, second in asked]
    verdict, pair = reordered(rows, networks)
    found.append(["4 networks rank otherwise by style than by subtype", pair, verdict])
    for number, name, values in ((5, "styles", style), (6, "subtypes", subtype)):
        gap = less(values[SHAKEN], values[PLAIN])
        found.append([f"{number} shaking helps with new {name}", str(gap), gap.verdict])
    return found


def _at_equal_compute(rows: Sequence[Row]) -> list[list[str]]:
    """Findings 7 and 8: each larger network less the smallest, for the same computation."""
    found: list[list[str]] = []
    for number, kind in ((7, "style"), (8, "subtype")) if _whole(rows) else ():
        own = {name.removesuffix(COMPUTE): mean_of(rows, name, kind) for name in _networks(rows)}
        smallest = own.pop(SMALLEST)
        text = f"{number} for equal computation larger networks know a new {kind} better"
        found.append(_by_network(text, own, dict.fromkeys(own, smallest)))
    return found


def _by_network(
    text: str, first: Mapping[str, Contrast], second: Mapping[str, Contrast]
) -> list[str]:
    gaps = {name: less(first[name], second[name]) for name in first}
    said = "; ".join(f"{name} {gap}" for name, gap in gaps.items())
    return [text, said, together([gap.verdict for gap in gaps.values()])]


def _percent(share: Contrast) -> str:
    return f"{100 * share.value:.1f} [{100 * share.low:.1f}, {100 * share.high:.1f}]"


def main() -> None:
    if sys.argv[1:]:
        write_atomic(HERE / "scores.csv", csv_text(rows_of(Path(sys.argv[1]))))
    rows = read_csv(HERE / "scores.csv")
    fill(HERE / "README.md", from_data(rows) | again.from_data(rows))


if __name__ == "__main__":
    main()
