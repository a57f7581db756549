"""Tables that both pages of the FMR study have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from claims import Answers, over
from searches import AUTOENCODERS
from verdicts import DRAWN, Finding, Part, Quantity

from stockpot.results.packed import unpack_bits
from stockpot.results.tables import markdown, percent

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
NAMES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}


def cells_of(run: Path) -> dict[str, Any]:
    """All cells of a run by name."""
    cells = {}
    for file in sorted((run / "cells").glob("*.json")):
        cell = json.loads(file.read_text(encoding="utf-8"))
        cells[cell.pop("name")] = cell
    return cells


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


def parts_table(found: Sequence[Finding], what: Mapping[tuple[str, int], str]) -> str:
    """Every difference of the claims that have few, with each seed's own; `what` names them."""
    rows = []
    for each in found:
        count = len(each.parts) // len(each.data)
        for place, part in enumerate(each.parts):
            named = what.get((each.claim, place % count))
            if named:
                scale = 1 if each.claim in ("G5", "G6") else 100
                seeds = ", ".join(
                    f"{scale * v:+.{2 if scale == 1 else 1}f}" for v in part.values[1:DRAWN]
                )
                rows.append((each.claim, NAMES[part.data], named, shown(each.claim, part), seeds,
                             part.said()))  # fmt: skip
    columns = ("claim", "data", "difference", "value [95 %]", "each seed", "at 95 %")
    return markdown(columns, rows)


def transfer_table(known: Answers) -> str:
    """Matched FMR of the column's kind on the row's images, mean over both autoencoders."""
    rows = []
    for maker in known.kinds:
        row = [f"`{maker}`"]
        for viewer in known.kinds:
            kept = over(
                lambda g, m=maker, v=viewer: known.seen(m, v, g) / known.seen_whole(m, v, g)
            )
            row.append(f"{'**' * (maker == viewer)}{100 * kept[0]:.1f}{'**' * (maker == viewer)}")
        rows.append([*row, interval(over(lambda g, m=maker: known.judge(m, g)))])
    again = [f"{100 * over(lambda g, k=kind: known.twins(k, g) / known.accuracy(k, g))[0]:.1f}"
             for kind in known.kinds]  # fmt: skip
    rows.append(["its own kind, another seed", *again, ""])
    return markdown(["made against", *(f"`{kind}`" for kind in known.kinds), "second oracle"], rows)


def share(known: Answers, names: Iterable[str], key: str) -> str:
    """Of validated images of several cells."""
    pairs = [(known.flags(name, key), known.flags(name, "validated") > 0) for name in names]
    return f"{100 * float(np.concatenate([flags[kept] for flags, kept in pairs]).mean()):.1f}"


def ratio(known: Answers, name: str) -> float:
    kept = known.flags(name, "validated") > 0
    return float(
        known.flags(name, "withstood")[kept].sum() / known.flags(name, "correct")[kept].sum()
    )


def chosen_table(outcomes: Mapping[str, Any]) -> str:
    """Steps, how far images moved, and how well autoencoders give images back."""
    rows = []
    for data, own in outcomes["data"].items():
        for name in AUTOENCODERS:
            step = own["steps"]["own"][name]
            tried = own["steps"]["tried"][f"{name} {step:g}"]
            good = outcomes["autoencoders"][name][data]["psnr"]
            cells = [cell for key, cell in own["cells"].items() if key.startswith(f"main/{name}/")]
            far = float(np.mean([cell["moved"] for cell in cells]))
            rates = {cell["validated"] for cell in cells}
            rate = unpack_bits(cells[0]["validated"], outcomes["images"]).mean()
            assert len(rates) == 1  # it does not depend on the network
            rows.append((NAMES[data], name, f"{good:.1f}", f"{step:g}",
                         f"{100 * tried['kept']:.0f}", f"{tried['moved']:.3f}", f"{far:.3f}",
                         f"{100 * rate:.1f}"))  # fmt: skip
    columns = ("data", "autoencoder", "PSNR (dB)", "own step", "FMR on validation", "moved there",
               "moved, all kinds", "VR by reconstruction")  # fmt: skip
    return markdown(columns, rows)
