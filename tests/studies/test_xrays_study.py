"""The study of X-rays: its parts, its pictures and its rule, on hand-made data."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from stockpot.results.packed import pack_bits, pack_labels

Part = Callable[[str, str], ModuleType]


def some(part: Part, n: int = 40) -> Any:
    """X-rays of patients with two pictures each; every picture has its own grey and lungs."""
    xrays = part("xrays", "lungs")
    labels = np.repeat(np.arange(n // 2) % 2, 2)
    pixels = np.repeat(np.arange(n, dtype=np.uint8), 64 * 64).reshape(n, 64, 64)
    lungs = np.zeros((n, 64, 64), bool)
    for row in range(n):
        lungs[row, 10 : 30 + row % 7, 10:40] = True
    patients = tuple(f"person{row // 2}" for row in range(n))
    return xrays, xrays.Pictures(pixels, lungs, labels.astype(np.int64), patients)


def test_no_patient_is_in_two_parts(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    xrays, pictures = some(part)
    monkeypatch.setattr(xrays, "PARTS", {"test": 5, "validation": 3, "tuning": 4})
    parts = xrays.dealt(pictures)
    assert {name: np.bincount(p.labels).tolist() for name, p in parts.items()} == {
        "test": [5, 5], "validation": [3, 3], "tuning": [4, 4],
    }  # fmt: skip
    met = [set(p.patients) for p in parts.values()]
    assert sum(map(len, met)) == len(set.union(*met))
    assert xrays.patient_of("NORMAL2-IM-0246-0001-0002") == "NORMAL2-IM-0246"
    assert xrays.patient_of("person1481_bacteria_3867") == "person1481"


def test_swapped_pictures_keep_their_lungs_and_take_the_rest_from_the_other_class(
    part: Part,
) -> None:
    xrays, pictures = some(part)
    made = xrays.swapped(pictures)
    for row, picture in enumerate(made):
        assert (picture[pictures.lungs[row]] == row).all()
        (partner,) = set(picture[~pictures.lungs[row]].tolist())
        assert pictures.labels[partner] != pictures.labels[row]
        assert partner % 7 == row % 7  # the one with the likest lungs
    mixed = xrays.mixed(pictures.take(np.tile(np.arange(40), 3)), copies=2)
    assert len(mixed) == 240
    own = mixed.images.pixels[:, 0]
    taken = own[~mixed.masks].unique().long()
    assert set(pictures.labels[taken].tolist()) == {0, 1}


def test_masks_are_as_large_as_the_lungs(part: Part) -> None:
    xrays = part("xrays", "lungs")
    scores = torch.rand(5, 8, 8, generator=torch.Generator().manual_seed(0))
    counts = torch.tensor([0, 1, 7, 20, 64])
    masked = xrays.equal_cells(scores, counts)
    assert masked.flatten(1).sum(1).tolist() == counts.tolist()
    assert masked[1].flatten()[scores[1].argmax()]


def test_masks_are_paired_where_neighbours_follow(part: Part) -> None:
    pairs = part("xrays", "pairs")
    names = [f"person{n}_bacteria_{n}" for n in range(10, 20)]
    nearest = {name: 500 + row for row, name in enumerate(names)} | {names[4]: 7}
    found = pairs.agreed(names, nearest)
    assert found == {name: mask for name, mask in nearest.items() if name != names[4]}
    assert pairs.agreed(names, {name: 500 - row for row, name in enumerate(names)}) == {}


def outcomes(truth: float, seeds: int = 8, n: int = 600) -> dict[str, Any]:
    """Models that are right by chance, `truth` on so many more of the swapped pictures."""
    draw = np.random.default_rng(0)
    hard = draw.random(n)

    def kept(more: float = 0.0) -> dict[str, Any]:
        right = {name: hard + 0.02 * draw.random(n) < 0.8 for name in ("inside", "swapped")}
        right["swapped"] = right["swapped"] | (draw.random(n) < more)
        iou = " ".join(str(int(v)) for v in 4000 + 1000 * draw.random(n))
        masks = {"iou": iou, "covered": iou, "picture": iou}
        return {"right": {k: pack_bits(v) for k, v in right.items()}, "masks": masks}

    models = ("vanilla", "no-mask", "random", "relevance", "truth")
    baselines = ("random mask", "centred blob", "usual lungs", "true cells")
    return {
        "seeds": list(range(seeds)), "n": n, "start": kept(),
        "patients": pack_labels(np.arange(n) // 2, [str(row) for row in range(n)])[0],
        "baselines": {name: kept()["masks"] for name in baselines},
        "models": {m: {str(s): kept(truth if m == "truth" else 0.0) for s in range(seeds)}
                   for m in models},
    }  # fmt: skip


def test_equal_is_judged_on_both_sides(part: Part) -> None:
    claims = part("xrays", "claims")
    by_name = {claim.name: claim for claim in claims.CLAIMS}

    def said(name: str, **given: Any) -> str:
        return claims.Judge(outcomes(**given)).verdict(by_name[name])

    assert said("T3", truth=0.0) == "held"
    assert said("T4", truth=0.0) == "not told apart"
    assert said("T3", truth=0.5) == "did not hold"  # better by far is not equal
    assert said("T4", truth=0.5) == said("T6", truth=0.5) == "held"
    assert said("T4", truth=0.5, seeds=5) == "not told apart"  # too few seeds to judge
