"""The paper's claims G1 to G6 in numbers, from the results that `study.py` left.

python studies/fmr/findings.py runs/fmr
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from settings import GENERATORS
from tables import agreements, cells, find, rungs

from stockpot.datasets.load import load_dataset
from stockpot.results.schema import CellResult

DATA = ("mnist", "cifar10", "icons")


def main(folder: Path) -> None:
    """Print a paragraph for every claim and dataset."""
    for data in DATA:
        if (folder / data).is_dir():
            print(f"== {data}")
            lower(folder / data)
            transfer(folder / data)
            spread(folder / data, data)
            ranks(folder / data)


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
        shown = ", ".join(
            f"{c.key.model} {100 * a.value:.1f}>{100 * p.value:.1f} (m {100 * m.value:.1f})"
            for c, (a, p, m) in zip(found, kept, strict=False)
        )
        print(
            f"G1 {generator}: PA < SA in {below} of {len(found)}, intervals apart in {apart}, "
            f"matched FMR below 1 with its interval in {matched}: {shown}"
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
    for step, cell in rungs(folder, "step"):
        rate = find(cell, "validation_rate")
        value, low, high = class_spread(cell, data)
        print(
            f"G4 step {step:g} {cell.key.model}: VR {100 * (rate.value if rate else 0):.1f}, "
            f"spread of class FMR {100 * value:.1f} [{100 * low:.1f}, {100 * high:.1f}] points"
        )


def class_spread(cell: CellResult, data: str, draws: int = 500) -> tuple[float, float, float]:
    """The standard deviation over classes of FMR, with an interval over resampled images."""
    labels = load_dataset(data, split="test", limit=cell.data.n).labels.numpy()
    kept, right, correct = (cell.outcome(n) for n in ("validated", "withstood", "correct"))

    def value(rows: NDArray[np.int64]) -> float:
        found = []
        for label in np.unique(labels):
            own = rows[labels[rows] == label]
            if len(own) and kept[own].any() and correct[own].any():
                found.append(right[own][kept[own]].mean() / correct[own].mean())
        return float(np.std(found))

    everyone = np.arange(len(labels))
    generator = np.random.default_rng(0)
    sample = [value(generator.integers(0, len(labels), len(labels))) for _ in range(draws)]
    low, high = np.percentile(sample, [2.5, 97.5])
    return value(everyone), float(low), float(high)


def ranks(folder: Path) -> None:
    """G5 and G6: do static corruptions, generators and oracles rank the models alike?"""
    for pair in agreements(folder):
        mark = "G5" if "corruptions" in (pair.first, pair.second) else "G6"
        print(
            f"{mark} {pair.first} / {pair.second}: {pair.correlation:.2f} "
            f"[{pair.low:.2f}, {pair.high:.2f}], {pair.models} models"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/fmr"))
