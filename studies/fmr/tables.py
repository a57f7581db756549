"""Tables and verdicts of the FMR study, from the run that `study.py` left.

    python studies/fmr/tables.py runs/fmr

Gathers outcomes.json beside this file and fills README.md from it; the verdicts follow plan.md.
Without a folder it fills README.md from the outcomes.json that is there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from claims import (
    ALIKE,
    DRAWN,
    FALLEN,
    IMMUNE,
    Answers,
    Finding,
    Part,
    Quantity,
    correlation,
    findings,
    over,
)
from study import DATA, IMAGES, KINDS, LEARNED, PAIR, SEEDS, cell_name, searched_images

from stockpot.datasets.load import load_dataset
from stockpot.files import write_atomic
from stockpot.results.tables import fill, markdown, percent

HERE = Path(__file__).parent
TITLES = {
    "G1": "PA < SA for every model on its own images",
    "G2": "own images are harder than those made against others",
    "G3": "a PGD-trained model is nearly immune to the plain model's images, not to its own",
    "G4": "a smaller step gives a higher VR and a smaller spread of the classes' FMR",
    "G5": "the dynamic ranking differs from the static one",
    "G6": "generators agree on the ranking",
    "O1": "oracles are stronger than what they judge, on images as they are",
    "O2": "and on the images made",
}
NAMES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
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
        files = sorted((run / data / "cells").glob("*.json"))
        if not files:
            continue
        test = load_dataset(data, split="test")
        cells = {}
        for file in files:
            cell = json.loads(file.read_text(encoding="utf-8"))
            cells[cell.pop("name")] = cell
        found["data"][data] = {
            "tested": len(test),
            "labels": "".join(str(int(label)) for label in searched_images(test).labels),
            "steps": json.loads((run / data / "steps.json").read_text(encoding="utf-8")),
            "cells": cells,
        }
    return found


def interval(values: Quantity) -> str:
    """A share in percent with its interval."""
    return percent(float(values[0]), *map(float, np.percentile(values[DRAWN:], [2.5, 97.5])))


def plain(values: Quantity) -> str:
    """A correlation with its interval."""
    low, high = np.percentile(values[DRAWN:], [2.5, 97.5])
    return f"{values[0]:.2f} [{low:.2f}, {high:.2f}]"


def claims_table(found: Sequence[Finding]) -> str:
    rows = []
    for each in found:
        told = [part.said() for part in each.parts]
        counts = ", ".join(f"{told.count(word)} {word}" for word in dict.fromkeys(told))
        data = " and ".join(NAMES[name] for name in each.data)
        lowest = f"{shown(each.claim, each.worst)} ({NAMES[each.worst.data]}, {each.worst.label})"
        title = f"{each.claim} {TITLES[each.claim]}"
        rows.append((title, data, counts, lowest, f"**{each.verdict}**"))
    columns = ("claim", "data", "differences, each at 95 %", "the lowest [95 %]", "verdict")
    return markdown(columns, rows)


def shown(claim: str, part: Part) -> str:
    """A difference: in points, or of correlations."""
    found = part.contrast()
    if claim not in ("G5", "G6"):
        return str(found)
    return f"{found.value:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"


def parts_table(found: Sequence[Finding]) -> str:
    """Every difference of the claims that have few, with each seed's own."""
    rows = []
    for each in found:
        count = len(each.parts) // len(each.data)
        for place, part in enumerate(each.parts):
            what = WHAT.get((each.claim, place % count))
            if what:
                scale = 1 if each.claim in ("G5", "G6") else 100
                seeds = ", ".join(
                    f"{scale * v:+.{2 if scale == 1 else 1}f}" for v in part.values[1:DRAWN]
                )
                rows.append((each.claim, NAMES[part.data], what, shown(each.claim, part), seeds,
                             part.said()))  # fmt: skip
    columns = ("claim", "data", "difference", "value [95 %]", "each seed", "at 95 %")
    return markdown(columns, rows)


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


def transfer_table(known: Answers) -> str:
    """Matched FMR of the column's kind on the row's images, mean over both autoencoders."""
    rows = []
    for maker in KINDS:
        row = [f"`{maker}`"]
        for viewer in KINDS:
            kept = over(
                lambda g, m=maker, v=viewer: known.seen(m, v, g) / known.seen_whole(m, v, g)
            )
            row.append(f"{'**' * (maker == viewer)}{100 * kept[0]:.1f}{'**' * (maker == viewer)}")
        rows.append([*row, interval(over(lambda g, m=maker: known.judge(m, g)))])
    again = [f"{100 * over(lambda g, k=kind: known.twins(k, g) / known.accuracy(k, g))[0]:.1f}"
             for kind in KINDS]  # fmt: skip
    rows.append(["its own kind, another seed", *again, ""])
    return markdown(["made against", *(f"`{kind}`" for kind in KINDS), "second oracle"], rows)


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

    rows = [(f"`{kind}`", fmr(kind, kind), fmr("plain", kind), fmr("plain", kind, 1),
             fmr(kind, kind, 1)) for kind in KINDS]  # fmt: skip
    columns = ("kind", "own images", "images of `plain`", "images of `plain` of another seed",
               "of its own kind, another seed")  # fmt: skip
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


def share(known: Answers, names: Iterable[str], key: str) -> str:
    """Of validated images of several cells."""
    pairs = [(known.flags(name, key), known.flags(name, "validated") > 0) for name in names]
    return f"{100 * float(np.concatenate([flags[kept] for flags, kept in pairs]).mean()):.1f}"


def ratio(known: Answers, name: str) -> float:
    kept = known.flags(name, "validated") > 0
    return float(
        known.flags(name, "withstood")[kept].sum() / known.flags(name, "correct")[kept].sum()
    )


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


def chosen_table(outcomes: Mapping[str, Any]) -> str:
    """Steps, how far images moved, and how well autoencoders give images back."""
    rows = []
    for data, own in outcomes["data"].items():
        for name in LEARNED:
            step = own["steps"]["own"][name]
            tried = own["steps"]["tried"][f"{name} {step:g}"]
            good = outcomes["autoencoders"][name][data]["psnr"]
            cells = [cell for key, cell in own["cells"].items() if key.startswith(f"main/{name}/")]
            far = float(np.mean([cell["moved"] for cell in cells]))
            rates = {cell["validated"] for cell in cells}
            known = Answers(data, outcomes)
            rate = known.flags(f"main/{name}/plain/0", "validated").mean()
            assert len(rates) == 1  # it does not depend on the network
            rows.append((NAMES[data], name, f"{good:.1f}", f"{step:g}",
                         f"{100 * tried['kept']:.0f}", f"{tried['moved']:.3f}", f"{far:.3f}",
                         f"{100 * rate:.1f}"))  # fmt: skip
    columns = ("data", "autoencoder", "PSNR (dB)", "own step", "FMR on validation", "moved there",
               "moved, all kinds", "VR by reconstruction")  # fmt: skip
    return markdown(columns, rows)


def from_data(outcomes: Mapping[str, Any]) -> dict[str, str]:
    """The places of README.md that follow from outcomes.json."""
    found = findings(outcomes)
    known = [Answers(data, outcomes) for data in DATA if data in outcomes["data"]]
    known = [answers for answers in known if answers.complete("G1")]
    tables = {"claims": claims_table(found), "parts": parts_table(found),
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
        from figures import draw

        write_atomic(place, json.dumps(gathered(Path(sys.argv[1])), separators=(",", ":")) + "\n")
        draw(Path(sys.argv[1]))
    fill(HERE / "README.md", from_data(json.loads(place.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
