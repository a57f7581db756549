"""The pictures of choosing: what the best soups are made of, and how many labels that needs."""

from __future__ import annotations

from pathlib import Path

from study import SOUPED
from tables import Shifted

from stockpot.files import write_atomic
from stockpot.season.plots.composition import composition
from stockpot.season.plots.labels_needed import labels_needed


def figures_of_shift(shifted: Shifted, out: Path) -> None:
    """What the best soups are made of, and how many labels their choice needs."""
    clean = shifted.soups.matrices["clean"]
    text = composition(
        {"clean": clean, **shifted.cells}, SOUPED,
        title=f"the five best of {len(clean.weights)} soups",
    )  # fmt: skip
    write_atomic(Path(f"{out}-composition.svg"), text)
    strongest = {name: m for name, m in shifted.cells.items() if name.endswith(":5")}
    text = labels_needed(
        strongest or shifted.cells, held_out=shifted.n // 2, title="held-out accuracy",
        shots=shifted.numbers_of_labels(),
    )  # fmt: skip
    write_atomic(Path(f"{out}-labels-needed.svg"), text)
