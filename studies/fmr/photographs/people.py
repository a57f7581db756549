"""What people say of the photographs that oracles and networks were asked about (plan.md, P1-P3).

    python studies/fmr/photographs/people.py cifar-10h/data/cifar10h-counts.npy

The file is that of the repository jcpeterson/cifar-10h on GitHub. Keeps the statistics alone in
people.json: the labels are CIFAR-10H's (Peterson et al., arXiv:1908.07086), under CC BY-NC-SA 4.0.
`tables.py` shows them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from study import DATA, KINDS, Size

from stockpot.datasets.dataset import limited_rows
from stockpot.datasets.load import load_dataset
from stockpot.files import write_atomic
from stockpot.results.contrast import Contrast, verdict
from stockpot.results.packed import unpack_bits
from stockpot.results.resamples import RESAMPLES, image_counts
from stockpot.results.tables import markdown

sys.path.append(str(Path(__file__).parents[1]))
from searches import AUTOENCODERS, SEEDS, cell_name

HERE = Path(__file__).parent
CLAIMS = {
    "P1": "oracles disagree on photographs that are unclear to people",
    "P2": "so does the second about what was made of them",
    "P3": "searches succeed on photographs that are unclear to people",
}
WHAT = {"P1": "nats", "P2": "correlation", "P3": "correlation"}
SAME_ORDER = 0.98
"""So often the label of most people must be the dataset's, or the order is not the same."""
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Statistic = Callable[[Floats], float]
"""A number from how often each image counts."""


class Shares(NamedTuple):
    """Of each searched image, the share of searches in which something happened."""

    rows: NDArray[np.int64]
    """Those that any search counts."""
    values: Floats


def entropy(counts: Floats) -> Floats:
    """In nats, of the labels that people gave."""
    share = counts / counts.sum(axis=1, keepdims=True)
    logs = np.log(np.where(share > 0, share, 1.0))
    found: Floats = -(share * logs).sum(axis=1)
    return found


def spearman(first: Floats, second: Floats, often: Floats) -> float:
    """Over images that count as often as they were drawn."""
    rows = np.repeat(np.arange(len(often)), often.astype(np.int64))
    ranks = [rankdata(values[rows]) for values in (first, second)]
    if min(np.ptp(ranks[0]), np.ptp(ranks[1])) == 0:
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def drawn(statistic: Statistic, n: int) -> Contrast:
    """A statistic with its interval over images."""
    counts = np.concatenate(list(image_counts(n, seed=0, resamples=RESAMPLES)))
    found = [statistic(row.astype(np.float64)) for row in counts]
    low, high = np.percentile(found, [2.5, 97.5])
    return Contrast(statistic(np.ones(n)), float(low), float(high))


def searched(cells: Mapping[str, Any], n: int, counts: str, happened: str) -> Shares:
    """Over searches that `counts` says something of: the share of them without `happened`."""
    asked, missed = np.zeros(n), np.zeros(n)
    for generator, kind, seed in product(AUTOENCODERS, KINDS, SEEDS):
        cell = cells[cell_name(kind, seed, generator)]
        flags = {key: unpack_bits(cell[key], n) for key in {"validated", counts, happened}}
        those = flags["validated"] & flags[counts]
        asked += those
        missed += those & ~flags[happened]
    rows = np.flatnonzero(asked)
    return Shares(rows, missed[rows] / asked[rows])


def found_by(unclear: Floats, outcomes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The statistics of the plan, from the entropy of all test images and the study's outcomes."""
    own, n = outcomes["data"][DATA], outcomes["images"]
    cells, tested = own["cells"], own["tested"]
    first, second = (
        unpack_bits(cells["clean"][f"oracle-{o}"], tested) for o in ("first", "second")
    )
    shown = unclear[limited_rows(len(unclear), tested, seed=1).numpy()]
    split, both = first != second, first & second

    def apart(often: Floats) -> float:
        one, other = (float(np.average(shown, weights=often * side)) for side in (split, both))
        return one - other

    told = {"P1": {"images": int((split | both).sum()), "of them": int(split.sum()),
                   **_rounded(drawn(apart, tested))}}  # fmt: skip
    around = unclear[limited_rows(len(unclear), n, seed=0).numpy()]
    asked = {"P2": ("validated", "seen oracle-second"), "P3": ("correct", "withstood")}
    for claim, names in asked.items():
        rows, values = searched(cells, n, *names)
        mine = around[rows]
        told[claim] = {"images": len(rows), **_rounded(
            drawn(lambda often, a=mine, b=values: spearman(a, b, often), len(rows)))}  # fmt: skip
    return told


def _rounded(found: Contrast) -> dict[str, float]:
    return {key: round(value, 4) for key, value in found._asdict().items()}


def people_table(told: Mapping[str, Mapping[str, Any]]) -> str:
    """A line for each claim."""
    lines = []
    for claim, words in CLAIMS.items():
        own = told[claim]
        apart = f", {own['of them']:,} of them apart" if "of them" in own else ""
        shown = f"{own['value']:+.2f} [{own['low']:+.2f}, {own['high']:+.2f}] {WHAT[claim]}"
        said = verdict(own["low"], own["high"])
        lines.append((f"{claim} {words}", shown, f"{own['images']:,}{apart}", f"**{said}**"))
    return markdown(("claim", "found [95 %]", "images", "verdict"), lines)


def main() -> None:
    counts = np.load(sys.argv[1]).astype(np.float64)
    labels = load_dataset(DATA, split="test").labels.numpy()
    if len(counts) != len(labels):
        raise SystemExit(f"expected labels of {len(labels)} images, got {len(counts)}")
    alike = float((counts.argmax(axis=1) == labels).mean())
    if alike < SAME_ORDER:
        raise SystemExit(f"most people agree with {alike:.1%} of the labels: not the same order")
    outcomes = json.loads((HERE / "outcomes.json").read_text(encoding="utf-8"))
    assert (outcomes["images"], outcomes["data"][DATA]["tested"]) == (Size().images, Size().asked)
    told = found_by(entropy(counts), outcomes)
    write_atomic(
        HERE / "people.json", json.dumps({"agree": round(alike, 4)} | told, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
