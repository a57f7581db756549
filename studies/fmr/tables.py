"""Tables and verdicts of the FMR study, from the run that `study.py` left.

    python studies/fmr/tables.py runs/fmr

Gathers outcomes.json beside this file and fills README.md from it; the verdicts follow plan.md.
Without a folder it fills README.md from the outcomes.json that is there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from claims import ALIKE, FALLEN, IMMUNE, Answers, findings
from figures import draw
from searches import PAIR, SEEDS, cell_name, pixels_of
from shown import (
    NAMES,
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
from study import DATA, IMAGES, KINDS, LEARNED, searched_images
from verdicts import DRAWN, Quantity, correlation

from stockpot.datasets.load import load_dataset
from stockpot.files import write_atomic
from stockpot.results.tables import fill, markdown

HERE = Path(__file__).parent
WHAT = {
    ("G3", 0): f"accuracy on images of `plain` less {100 * IMMUNE:.0f} % of SA",
    ("G3", 1): f"{100 * FALLEN:.0f} % of SA less PA",
    ("G4", 0): "VR, own step less ten times it",
    ("G4", 1): "spread over classes, ten times the step less own",
    ("G5", 0): f"{ALIKE} less correlation with corruptions, `vqgan`",
    ("G5", 1): f"{ALIKE} less correlation with corruptions, `kl`",
    ("G6", 0): f"correlation of `vqgan` and `kl` less {ALIKE}",
}
"""The differences of claims that have few."""


def gathered(run: Path) -> dict[str, Any]:
    """All cells of a run, and what was chosen and trained, as they are committed."""
    made = {name: json.loads((run / "autoencoders" / name / "fit.json").read_text())["quality"]
            for name in LEARNED}  # fmt: skip
    found: dict[str, Any] = {"images": IMAGES, "autoencoders": made, "data": {}}
    for data in DATA:
        cells = cells_of(run / data)
        if not cells:
            continue
        test = load_dataset(data, split="test")
        found["data"][data] = {
            "tested": len(test),
            "labels": "".join(str(int(label)) for label in searched_images(test).labels),
            "steps": json.loads((run / data / "steps.json").read_text(encoding="utf-8")),
            "cells": cells,
        }
    return found


def main_table(known: Answers) -> str:
    """Every kind: as it is, reconstructed, and under every generator."""
    warped = known.has(*(cell_name(kind, seed, "warp") for kind in KINDS for seed in SEEDS))
    rows = []
    for kind in KINDS:
        row = [f"`{kind}`", interval(known.clean(kind))]
        for generator in LEARNED:
            again = known.accuracy(kind, generator, "reconstruction")
            row += [f"{100 * again[0]:.1f}", interval(known.fmr(kind, generator))]
        row.append(interval(known.fmr(kind, "warp")) if warped else "-")
        rows.append([*row, interval(known.static(kind))])
    columns = ("kind", "accuracy", "`vqgan`: on reconstructions", "FMR", "`kl`: on reconstructions",
               "FMR", "`warp`: FMR", "under corruptions, of SA")  # fmt: skip
    return markdown(columns, rows)


def readings_table(known: Answers) -> str:
    """Both readings of the first candidate."""
    rows = []
    for generator in LEARNED:
        for kind in KINDS:
            cells = [known.cells[cell_name(kind, seed, generator)] for seed in SEEDS]
            both = [known.flags(cell_name(kind, seed, generator), "perturbed") for seed in SEEDS]
            pair = [known.mean([known.flags(cell_name(kind, seed, generator), key) * kept
                                for seed, kept in zip(SEEDS, both, strict=True)])
                    for key in ("withstood", "correct")]  # fmt: skip
            row = [generator, f"`{kind}`", interval(known.fmr(kind, generator)),
                   interval(pair[0] / pair[1])]  # fmt: skip
            if kind in PAIR and known.has(*(cell_name(kind, s, generator, "first") for s in SEEDS)):
                row += [interval(known.rate(kind, generator, step)) for step in ("own", "larger")]
            else:
                row += ["", ""]
            far = float(np.mean([cell["moved"] for cell in cells]))
            rows.append([*row, f"{far:.3f}"])
    columns = ("generator", "kind", "FMR, reconstruction first", "FMR, perturbation first",
               "VR, own step", "VR, ten times it", "moved")  # fmt: skip
    return markdown(columns, rows)


def agreed_table(known: Answers) -> str:
    """Added after the results: images in which the second oracle sees the class too."""

    def kept(maker: str, viewer: str, generator: str, other: int) -> list[Quantity]:
        """Accuracy on the images made and on the same as they were; `other` seeds further on."""
        pairs = []
        for seed in SEEDS:
            cell, later = cell_name(maker, seed, generator), (seed + other) % len(SEEDS)
            both = known.flags(cell, "validated") * known.flags(cell, "seen oracle-second")
            after = (known.flags("crossed", f"{generator} {maker}-{seed} {viewer}-{later}")
                     if other else known.flags(cell, f"seen {viewer}-{seed}"))  # fmt: skip
            before = known.flags(cell_name(viewer, later, generator), "correct")
            pairs.append((after * both, before * both))
        return [known.mean([pair[place] for pair in pairs]) for place in (0, 1)]

    def fmr(maker: str, viewer: str, other: int = 0) -> str:
        sides = [kept(maker, viewer, generator, other) for generator in LEARNED]
        return interval(np.mean([after / before for after, before in sides], axis=0))

    def of_all(kind: str) -> str:
        return interval(np.mean([known.fmr(kind, generator) for generator in LEARNED], axis=0))

    rows = [(f"`{kind}`", fmr(kind, kind), of_all(kind), fmr("plain", kind), fmr("plain", kind, 1),
             fmr(kind, kind, 1)) for kind in KINDS]  # fmt: skip
    columns = ("kind", "own images", "own images, all accepted", "images of `plain`",
               "images of `plain` of another seed", "of its own kind, another seed")  # fmt: skip
    return markdown(columns, rows)


def oracles_table(known: Answers) -> str:
    """How strong the oracles are, and what they say of each other's images."""
    first = {generator: [cell_name(kind, 0, generator) for kind in KINDS] for generator in LEARNED}
    rows = [["first", interval(known.clean("oracle-first"))],
            ["second", interval(known.clean("oracle-second"))]]  # fmt: skip
    rows[0] += ["", "", ""]
    judged = [share(known, names, "seen oracle-second") for names in first.values()]
    searched = [cell_name(kind, 0, "vqgan", "second") for kind in KINDS]
    if known.has(*searched):
        rows[0][2] = share(known, searched, "seen oracle-first") + " (of the second)"
    rows[1] += [*judged, ""]
    asked = [share(known, names, "seen expert") for names in first.values()]
    rows.append(["the zoo's dual encoder", "", *asked, ""])
    if known.has(*searched):
        pairs = [[ratio(known, cell_name(kind, 0, "vqgan", part)) for kind in KINDS]
                 for part in ("main", "second")]  # fmt: skip
        orders = correlation(*([np.array([x]) for x in side] for side in pairs))
        rows[1][-1] = f"{orders[0]:.2f}"
    columns = ("oracle", "right on images as they are", "on accepted images, `vqgan`", "`kl`",
               "order of six kinds, correlation with the first")  # fmt: skip
    return markdown(columns, rows)


def orders_table(known: Sequence[Answers]) -> str:
    """Rank correlations of generators and corruptions."""
    rows = []
    for answers in known:
        orders = {name: answers.scores(name) for name in LEARNED}
        if answers.has(*(cell_name(kind, seed, "warp") for kind in KINDS for seed in SEEDS)):
            orders["warp"] = answers.scores("warp")
        orders["corruptions"] = [answers.static(kind) for kind in KINDS]
        names = list(orders)
        for place, first in enumerate(names):
            for second in names[place + 1 :]:
                found = correlation(orders[first], orders[second])
                each = ", ".join(f"{value:.2f}" for value in found[1:DRAWN])
                rows.append((NAMES[answers.data], first, second, plain(found), each))
    return markdown(("data", "", "", "Spearman [95 %]", "each seed"), rows)


def from_data(outcomes: Mapping[str, Any]) -> dict[str, str]:
    """The places of README.md that follow from outcomes.json."""
    known = [Answers(data, outcomes, tuple(KINDS)) for data in DATA if data in outcomes["data"]]
    found = findings(known)
    known = [answers for answers in known if answers.complete("G1")]
    tables = {"claims": claims_table(found), "parts": parts_table(found, WHAT),
              "orders": orders_table(known), "chosen": chosen_table(outcomes)}  # fmt: skip
    for answers in known:
        tables[f"main-{answers.data}"] = main_table(answers)
        tables[f"transfer-{answers.data}"] = transfer_table(answers)
        tables[f"readings-{answers.data}"] = readings_table(answers)
        tables[f"oracles-{answers.data}"] = oracles_table(answers)
        if answers.has("crossed"):
            tables[f"agreed-{answers.data}"] = agreed_table(answers)
    return tables


def main() -> None:
    place = HERE / "outcomes.json"
    if len(sys.argv) > 1:
        run = Path(sys.argv[1])
        write_atomic(place, json.dumps(gathered(run), separators=(",", ":")) + "\n")
        for data in (data for data in DATA if (run / data / "made").is_dir()):
            pixels = pixels_of(searched_images(load_dataset(data, split="test")))
            draw(run / data, pixels, HERE / f"pictures-{data}.png")
    fill(HERE / "README.md", from_data(json.loads(place.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
