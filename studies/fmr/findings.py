"""The paper's claims G1 to G6 in numbers, from the results that `study.py` left.

python studies/fmr/findings.py runs/fmr [ANOTHER RUN, to compare cells with]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from ranking import STATIC, comparisons
from reading import DATA, cells, difference, find, percent, rungs
from scipy.stats import spearmanr
from settings import GENERATORS

from stockpot.datasets.load import load_dataset
from stockpot.results.agreement import Agreement
from stockpot.results.schema import CellResult

Rows = NDArray[np.int64]


def main(folder: Path, earlier: Path | None) -> None:
    """Print a paragraph for every claim and dataset."""
    for data in DATA:
        if (folder / data).is_dir():
            print(f"== {data}")
            lower(folder / data)
            transfer(folder / data)
            spread(folder / data, data)
            ranks(folder / data)
            trainings(folder / data)
    if earlier is not None:
        again(folder, earlier)


def lower(folder: Path) -> None:
    """G1: is every model worse on the images made against it?"""
    for generator in GENERATORS:
        found = cells(folder / f"main-{generator}")
        if not found:
            continue
        scores = [
            (find(c, "accuracy"), find(c, "perturbed_accuracy"), find(c, "matched_fmr"))
            for c in found
        ]
        kept = [(a, p, m) for a, p, m in scores if a and p and m]
        below = sum(p.value < a.value for a, p, _ in kept)
        apart = sum((p.ci_high or 1) < (a.ci_low or 0) for a, p, _ in kept)
        matched = sum((m.ci_high or 1) < 1 for _, _, m in kept)
        over = sum(p.value > a.value for a, p, _ in kept)
        shown = ", ".join(
            f"{c.key.model} {100 * a.value:.1f}>{100 * p.value:.1f} (m {100 * m.value:.1f})"
            for c, (a, p, m) in zip(found, kept, strict=False)
        )
        print(
            f"G1 {generator}: PA < SA in {below} of {len(found)}, intervals apart in {apart}, "
            f"matched FMR below 1 with its interval in {matched}, "
            f"FMR above 1 in {over}: {shown}"
        )


def transfer(folder: Path) -> None:
    """G2 and G3: own images against others', and the PGD-trained model on the plain one's."""
    file = folder / "transfer.json"
    if not file.is_file():
        return
    table = json.loads(file.read_text())
    value, low, high = (np.array(table[key]) for key in ("fmr", "low", "high"))
    makers, viewers = table["makers"], table["viewers"]
    least = apart = 0
    for column, name in enumerate(viewers):
        if name not in makers:
            continue
        own = makers.index(name)
        others = [row for row in range(len(makers)) if row != own]
        least += bool(value[own, column] <= value[others, column].min())
        apart += bool(high[own, column] < low[others, column].min())
        spread_of = f"{100 * value[others, column].min():.1f} to {value[others, column].max():.1%}"
        print(
            f"G2 {name}: own {100 * value[own, column]:.1f} "
            f"[{100 * low[own, column]:.1f}, {100 * high[own, column]:.1f}], others' {spread_of}"
        )
    print(f"G2: own images the hardest in {least} of {len(viewers)} columns, apart in {apart}")
    for column, name in enumerate(viewers):
        if any(mark in name for mark in ("pgd", "linf", "l2")):
            row = makers.index(viewers[0]) if viewers[0] in makers else 0
            print(
                f"G3 {name} on {makers[row]}'s images: {100 * value[row, column]:.1f} "
                f"[{100 * low[row, column]:.1f}, {100 * high[row, column]:.1f}]"
            )


def spread(folder: Path, data: str) -> None:
    """G4: the validation rate and the spread of the classes' FMR by step size."""
    found = rungs(folder, "step")
    for step, cell in found:
        rate = find(cell, "validation_rate")
        value, low, high = interval([cell], data)
        print(
            f"G4 step {step:g} {cell.key.model}: VR {100 * (rate.value if rate else 0):.1f}, "
            f"spread of class FMR {100 * value:.1f} [{100 * low:.1f}, {100 * high:.1f}] points"
        )
    for name in dict.fromkeys(cell.key.model for _, cell in found):
        own = [cell for _, cell in found if cell.key.model == name]
        value, low, high = interval([own[0], own[-1]], data)
        print(
            f"G4 {name}: spread at {found[0][0]:g} less that at {found[-1][0]:g}: "
            f"{100 * value:.1f} [{100 * low:.1f}, {100 * high:.1f}] points"
        )


def interval(found: list[CellResult], data: str, draws: int = 500) -> tuple[float, float, float]:
    """The spread of a cell, or of the first less the second, with an interval over images."""
    labels = load_dataset(data, split="test", limit=found[0].data.n).labels.numpy()

    def value(rows: Rows) -> float:
        spreads = [class_spread(cell, labels, rows) for cell in found]
        return spreads[0] - (spreads[1] if len(spreads) > 1 else 0)

    count = len(labels)
    generator = np.random.default_rng(0)
    sample = [value(generator.integers(0, count, count)) for _ in range(draws)]
    low, high = np.percentile(sample, [2.5, 97.5])
    return value(np.arange(count)), float(low), float(high)


def class_spread(cell: CellResult, labels: Rows, rows: Rows) -> float:
    """The standard deviation over classes of FMR, on some images."""
    kept, right, correct = (cell.outcome(n) for n in ("validated", "withstood", "correct"))
    found = []
    for label in np.unique(labels):
        own = rows[labels[rows] == label]
        if len(own) and kept[own].any() and correct[own].any():
            found.append(right[own][kept[own]].mean() / correct[own].mean())
    return float(np.std(found))


def ranks(folder: Path) -> None:
    """G5 and G6: do static corruptions, generators and oracles rank the models alike?"""
    kinds: dict[str, list[Agreement]] = {"G5": [], "G6 generators": [], "G6 oracles": []}
    for found in comparisons(folder):
        names = (found.first, found.second)
        oracle = any("oracle" in name for name in names)
        kind = "G5" if STATIC in names else "G6 oracles" if oracle else "G6 generators"
        if not (oracle and STATIC in names):
            kinds[kind].append(found)
    for kind, group in kinds.items():
        for pair in group:
            print(
                f"{kind} {pair.first} / {pair.second}: {pair.correlation:.2f} "
                f"[{pair.low:.2f}, {pair.high:.2f}], {pair.models} models; of {pair.decided} pairs "
                f"decided in both {pair.opposite} opposite"
            )
        values = [found.correlation for found in group]
        print(
            f"{kind}: {len(group)} correlations from {min(values):.2f} to {max(values):.2f}, above "
            f"0 with the interval {sum(g.low > 0 for g in group)}, below 0 "
            f"{sum(g.high < 0 for g in group)}; opposite {sum(g.opposite for g in group)} of "
            f"{sum(g.decided for g in group)}"
        )


def trainings(folder: Path) -> None:
    """Other seeds, and training on generated images: differences on the same images."""
    for part in ("again-vqgan", "again-warp", "again-colour", "augment"):
        found = sorted(cells(folder / part), key=lambda c: c.key.model.endswith("-dynamic"))
        for cell in found[1:]:
            shown = [percent(*difference(found[0], cell, w)) for w in ("withstood", "correct")]
            pair = f"{cell.key.model} less {found[0].key.model}"
            print(f"{part} {pair}: PA {shown[0]}, SA {shown[1]} points")


def again(folder: Path, earlier: Path) -> None:
    """Cells of the same name in another run: do the intervals overlap, and is the order alike?"""
    for data in DATA:
        pairs = []
        for generator in GENERATORS:
            part = f"main-{generator}"
            old = {c.key.model: find(c, "matched_fmr") for c in cells(earlier / data / part)}
            new = {c.key.model: find(c, "matched_fmr") for c in cells(folder / data / part)}
            pairs += [(a, b) for name, a in new.items() if a and (b := old.get(name))]
        if pairs:
            over = sum(
                (a.ci_low or 0) <= (b.ci_high or 0) and (b.ci_low or 0) <= (a.ci_high or 0)
                for a, b in pairs
            )
            order = spearmanr([a.value for a, _ in pairs], [b.value for _, b in pairs]).statistic
            print(f"{data}: {over} of {len(pairs)} cells overlap, rank correlation {order:.2f}")


if __name__ == "__main__":
    main(
        Path(sys.argv[1] if len(sys.argv) > 1 else "runs/fmr"),
        Path(sys.argv[2]) if len(sys.argv) > 2 else None,
    )
