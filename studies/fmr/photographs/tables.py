"""Tables and verdicts of the photographs, from the run that `study.py` left.

    python studies/fmr/photographs/tables.py runs/photographs

Gathers outcomes.json beside this file and fills README.md from it; the verdicts follow plan.md.
Without a folder it fills README.md from the outcomes.json that is there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))
from claims import ALIKE, FALLEN, IMMUNE, VALIDATED, Answers, findings
from figures import draw
from people import people_table
from searches import AUTOENCODERS, SEEDS, cell_name, pixels_of
from shown import (
    cells_of,
    chosen_table,
    claims_table,
    interval,
    parts_table,
    plain,
    ratio,
    share,
    transfer_table,
)
from study import DATA, KINDS, Size, searched_images
from verdicts import DRAWN, Part, Quantity, correlation

from stockpot.datasets.load import load_dataset
from stockpot.files import write_atomic
from stockpot.results.tables import fill, markdown

HERE = Path(__file__).parent
READINGS = tuple(VALIDATED)
WHAT = {
    ("G3", 0): f"accuracy on images of `plain` less {100 * IMMUNE:.0f} % of SA",
    ("G3", 1): f"{100 * FALLEN:.0f} % of SA less PA",
    **{("G5", place): f"{ALIKE} less correlation with corruptions, `{generator}`, {reading} first"
       for place, (reading, generator) in enumerate(product(READINGS, AUTOENCODERS))},
    **{("G6", place): f"correlation of `vqgan` and `kl` less {ALIKE}, {reading} first"
       for place, reading in enumerate(READINGS)},
}  # fmt: skip
"""The differences of claims that have few."""


def gathered(run: Path, size: Size) -> dict[str, Any]:
    """All cells of a run, and what was chosen and trained, as they are committed."""
    made = {name: json.loads((run / "autoencoders" / name / "fit.json").read_text())["quality"]
            for name in AUTOENCODERS}  # fmt: skip
    labels = searched_images(load_dataset(DATA, split="test"), size.images).labels
    own = {
        "tested": size.asked,
        "labels": "".join(str(int(label)) for label in labels),
        "steps": json.loads((run / "steps.json").read_text(encoding="utf-8")),
        "cells": cells_of(run),
    }
    autoencoders = {name: {DATA: good} for name, good in made.items()}
    return {"images": size.images, "autoencoders": autoencoders, "data": {DATA: own}}


def main_table(known: Answers) -> str:
    """Every kind: as it is, reconstructed, and under both autoencoders."""
    rows = []
    for kind in known.kinds:
        row = [f"`{kind}`", interval(known.clean(kind))]
        for generator in AUTOENCODERS:
            again = known.accuracy(kind, generator, "reconstruction")
            row += [interval(known.accuracy(kind, generator)), f"{100 * again[0]:.1f}",
                    interval(known.fmr(kind, generator))]  # fmt: skip
        rows.append([*row, interval(known.static(kind))])
    columns = ("kind", "accuracy", "`vqgan`: SA", "on reconstructions", "FMR", "`kl`: SA",
               "on reconstructions", "FMR", "under corruptions, of SA")  # fmt: skip
    return markdown(columns, rows)


def readings_table(known: Answers) -> str:
    """Both readings of the first candidate."""
    rows = []
    for generator, kind in product(AUTOENCODERS, known.kinds):
        cells = [cell_name(kind, seed, generator) for seed in SEEDS]
        rates = [known.mean([known.flags(cell, key) for cell in cells])
                 for key in VALIDATED.values()]  # fmt: skip
        far = float(np.mean([known.cells[cell]["moved"] for cell in cells]))
        made = float(np.mean([known.cells[cell]["accepted"] for cell in cells]))
        rows.append((generator, f"`{kind}`", *(interval(known.fmr(kind, generator, reading))
                     for reading in READINGS), *map(interval, rates), f"{made:.1f}",
                     f"{far:.3f}"))  # fmt: skip
    columns = ("generator", "kind", *(f"FMR, {reading} first" for reading in READINGS),
               *(f"VR, {reading} first" for reading in READINGS), "accepted candidates",
               "moved")  # fmt: skip
    return markdown(columns, rows)


def agreed_table(known: Answers) -> str:
    """Images in which the second oracle sees the class too."""

    def kept(maker: str, viewer: str, generator: str, other: int) -> Quantity:
        """Matched FMR on them; the viewer is of a seed `other` further on."""
        after, before = [], []
        for seed in SEEDS:
            cell, later = cell_name(maker, seed, generator), (seed + other) % len(SEEDS)
            both = known.flags(cell, "validated") * known.flags(cell, "seen oracle-second")
            after.append(both * known.flags(cell, f"seen {viewer}-{later}"))
            before.append(both * known.flags(cell_name(viewer, later, generator), "correct"))
        return known.mean(after) / known.mean(before)

    def fmr(maker: str, viewer: str, other: int = 0) -> str:
        sides = [kept(maker, viewer, generator, other) for generator in AUTOENCODERS]
        return interval(np.mean(sides, axis=0))

    rows = [(f"`{kind}`", fmr(kind, kind), fmr("plain", kind), fmr(kind, kind, 1))
            for kind in known.kinds]  # fmt: skip
    return markdown(("kind", "own images", "images of `plain`", "of its own kind, another seed"),
                    rows)  # fmt: skip


def oracles_table(known: Answers) -> str:
    """How strong the oracles are, and what they say of each other's images."""
    rows = [["first", interval(known.clean("oracle-first"))],
            ["second", interval(known.clean("oracle-second"))]]  # fmt: skip
    for generator in AUTOENCODERS:
        cells = [cell_name(k, s, generator) for k in known.kinds for s in SEEDS]
        rows[0] += ["", ""]
        rows[1] += [again(known, generator), share(known, cells, "seen oracle-second")]
    searched = [cell_name(kind, 0, "vqgan", "second") for kind in known.kinds]
    order = ""
    if known.has(*searched):
        rows[0][3] = share(known, searched, "seen oracle-first") + " (of the second, seed 0)"
        pairs = [[np.array([ratio(known, cell_name(kind, 0, "vqgan", part))])
                  for kind in known.kinds] for part in ("main", "second")]  # fmt: skip
        order = f"{correlation(*pairs)[0]:.2f}"
    columns = ["oracle", "right on images as they are"]
    for generator in AUTOENCODERS:
        columns += [
            f"`{generator}`: on reconstructions (added)",
            f"`{generator}`: on what was made of them",
        ]
    columns.append("order of six kinds under `vqgan`, seed 0, correlation with the first")
    return markdown(columns, [[*rows[0], ""], [*rows[1], order]])


def stronger_table(known: Answers) -> str:
    """O2: by how much the second oracle beats each kind on images made against another."""
    found = dict(zip(permutations(known.kinds, 2), known.o2(), strict=True))
    rows = []
    for maker in known.kinds:
        parts = [found.get((maker, viewer)) for viewer in known.kinds]
        rows.append([f"`{maker}`", *(mark(part) if part else "" for part in parts)])
    return markdown(["made against", *(f"less `{kind}`" for kind in known.kinds)], rows)


def mark(part: Part) -> str:
    """A difference, bold where it held."""
    bold = "**" * (part.said() == "held")
    return f"{bold}{part.contrast()}{bold}"


def again(known: Answers, generator: str) -> str:
    """The second oracle on the reconstructions that the first one accepts."""
    if not known.has("reconstructed"):
        return ""
    kept = known.flags(cell_name("plain", 0, generator), "validated") > 0
    right = known.flags("reconstructed", f"{generator} oracle-second")
    return f"{100 * float(right[kept].mean()):.1f}"


def orders_table(known: Answers) -> str:
    """Rank correlations of autoencoders and corruptions."""
    rows = []
    for reading in READINGS:
        orders = {name: known.scores(name, reading) for name in AUTOENCODERS}
        orders["corruptions"] = [known.static(kind) for kind in known.kinds]
        names = list(orders)
        for place, first in enumerate(names):
            for second in names[place + 1 :]:
                found = correlation(orders[first], orders[second])
                each = ", ".join(f"{value:.2f}" for value in found[1:DRAWN])
                rows.append((reading, first, second, plain(found), each))
    return markdown(("first candidate", "", "", "Spearman [95 %]", "each seed"), rows)


def from_data(outcomes: Mapping[str, Any]) -> dict[str, str]:
    """The places of README.md that follow from outcomes.json and people.json."""
    people = json.loads((HERE / "people.json").read_text(encoding="utf-8"))
    known = Answers(DATA, outcomes, tuple(KINDS), READINGS)
    found = findings([known])
    return {
        "claims": claims_table(found), "parts": parts_table(found, WHAT),
        "main": main_table(known), "transfer": transfer_table(known),
        "oracles": oracles_table(known), "stronger": stronger_table(known),
        "agreed": agreed_table(known), "orders": orders_table(known),
        "chosen": chosen_table(outcomes), "readings": readings_table(known),
        "people": people_table(people),
    }  # fmt: skip


def main() -> None:
    place = HERE / "outcomes.json"
    if len(sys.argv) > 1:
        run, size = Path(sys.argv[1]), Size()
        found = gathered(run, size)
        write_atomic(place, json.dumps(found, separators=(",", ":")) + "\n")
        images = searched_images(load_dataset(DATA, split="test"), size.images)
        known = Answers(DATA, found, tuple(KINDS), READINGS)
        kept = [known.flags(cell_name("plain", 0, name), "validated") for name in AUTOENCODERS]
        rows = np.flatnonzero(np.prod(kept, axis=0))
        draw(run, pixels_of(images), HERE / "pictures.png", rows)
    fill(HERE / "README.md", from_data(json.loads(place.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
