"""Objects on contexts: the dial does what it says, masks are true, nothing leaks between splits."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from stockpot.datasets.composed.compose import laid_on, placed
from stockpot.datasets.composed.contexts import DRAWS, SIZE, context_source
from stockpot.datasets.composed.correlation import context_numbers, draws_of
from stockpot.datasets.composed.matte import opacity
from stockpot.datasets.composed.textures import NAMES, PATTERNS, draw_textures
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.datasets.named.decoded import Part, write_decoded
from stockpot.errors import BadParameterError, UnknownNameError, UserError

CLASSES = ("clock", "heart", "fruit")


def small(**options: object) -> Dataset:
    chosen = {"split": "val", "backgrounds": "texture", "classes": CLASSES, "copies": 2, **options}
    return load_dataset("object_on_context", **chosen)  # type: ignore[arg-type]


kept = cache(small)


def disc(background: tuple[int, int, int], ink: tuple[int, int, int], scale: int = 8) -> np.ndarray:
    """An antialiased disc with a white hole, as a renderer would draw it."""
    size = 64 * scale
    picture = Image.new("RGB", (size, size), background)
    draw = ImageDraw.Draw(picture)
    middle, radius = size / 2 + 3, size * 0.3
    draw.ellipse((middle - radius, middle - radius, middle + radius, middle + radius), fill=ink)
    hole = radius / 3
    draw.ellipse((middle - hole, middle - hole, middle + hole, middle + hole), fill=(255, 255, 255))
    return np.asarray(picture.resize((64, 64), Image.Resampling.BOX))


def as_tensor(picture: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(picture.copy()).permute(2, 0, 1)[None]


def test_a_drawing_is_cut_off_its_page_and_keeps_the_white_inside() -> None:
    ink = (20, 90, 200)
    on_white = as_tensor(disc((255, 255, 255), ink))
    cover = opacity(on_white)
    assert abs(float(cover.sum()) - math.pi * (64 * 0.3) ** 2) < 15  # pixels; the hole counts
    assert cover[0, 32, 32] == 1
    assert cover[0, 0, 0] == 0
    # Laid on another page it is what a renderer would have drawn there.
    page = torch.tensor([0.0, 60.0, 0.0], dtype=torch.float64)[None, :, None, None]
    laid = on_white.double() - (1 - cover[:, None]) * 255 + (1 - cover[:, None]) * page
    difference = (laid - as_tensor(disc((0, 60, 0), ink)).double()).abs()
    assert difference.mean() < 0.2
    assert difference.amax() < 40


def test_pictures_in_one_stack_do_not_touch_each_other() -> None:
    black = torch.zeros(1, 3, 64, 64, dtype=torch.uint8)
    ring = as_tensor(disc((255, 255, 255), (0, 0, 0)))
    stacked = opacity(torch.cat([ring, black, ring]))
    assert torch.equal(stacked[0], opacity(ring)[0])
    assert torch.equal(stacked[1], torch.ones(64, 64, dtype=torch.float64))
    assert torch.equal(stacked[2], stacked[0])


@pytest.mark.parametrize("correlation", [0.0, 0.25, 0.9, 1.0])
def test_the_dial_is_the_probability_of_the_partner(correlation: float) -> None:
    labels = np.arange(40_000) % 5
    draws = draws_of(1, "test", len(labels), 1)[:, 0]
    for shift, partner in (("none", labels), ("reversed", (labels + 1) % 5)):
        which = context_numbers(labels, 5, correlation, shift, draws)  # type: ignore[arg-type]
        assert abs((which == partner).mean() - correlation) < 0.01
        if correlation < 1:  # the others share the rest equally
            missed = ((which - partner) % 5)[which != partner]
            counts = np.bincount(missed, minlength=5)[1:]
            assert np.abs(counts / counts.sum() - 0.25).max() < 0.02
    shuffled = context_numbers(labels, 5, correlation, "shuffled", draws)
    table = np.histogram2d(labels, shuffled, bins=5)[0] / len(labels)
    assert np.abs(table - 1 / 25).max() < 0.004


def test_a_reversed_and_a_shuffled_set_change_the_context_alone() -> None:
    plain, turned, mixed = kept(), kept(shift="reversed"), kept(shift="shuffled")
    for other in (turned, mixed):
        assert torch.equal(plain.labels, other.labels)
        assert torch.equal(plain.masks, other.masks)  # type: ignore[arg-type]
        assert plain.columns["object"] == other.columns["object"]
        assert plain.fingerprint != other.fingerprint
        inside = _inner(plain)
        assert torch.equal(_pixels(plain)[inside], _pixels(other)[inside])
    own = [plain.classes[label] for label in plain.labels]
    agree = np.mean([a == b for a, b in zip(own, plain.columns["context_of"], strict=True)])
    disagree = np.mean([a == b for a, b in zip(own, turned.columns["context_of"], strict=True)])
    assert agree > 0.8
    assert disagree < 0.2


def _pixels(data: Dataset) -> torch.Tensor:
    return torch.cat([batch.images for batch in data.batches()])


def _inner(data: Dataset) -> torch.Tensor:
    """Pixels well inside the objects, where no background shines through."""
    assert data.masks is not None
    hidden = -torch.nn.functional.max_pool2d(-data.masks.float()[:, None], 7, stride=1, padding=3)
    return (hidden > 0).expand(-1, 3, -1, -1)


def test_the_same_seed_gives_the_same_pixels_and_another_seed_others() -> None:
    first, again, other = kept(), small(), small(seed=1)
    assert first.fingerprint == again.fingerprint
    assert torch.equal(_pixels(first), _pixels(again))
    assert first.fingerprint != other.fingerprint
    assert first.masks is not None
    assert first.masks.dtype == torch.bool
    assert first.masks.shape == (len(first), SIZE, SIZE)
    part = first.take([3, 1])
    assert torch.equal(part.masks, first.masks[[3, 1]])  # type: ignore[arg-type]


def test_no_concept_is_in_two_splits() -> None:
    concepts = [
        set(kept(split=split, copies=1).columns["concept"]) for split in ("train", "val", "test")
    ]
    assert not concepts[0] & concepts[1] | concepts[0] & concepts[2] | concepts[1] & concepts[2]


def test_no_photograph_is_in_two_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOCKPOT_CACHE", str(tmp_path))
    grey = torch.arange(220, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 32, 32)
    labels = torch.arange(220) % 10
    parts = {"train": Part(grey[:200], labels[:200]), "test": Part(grey[200:], labels[200:])}
    facts = {f"{split}.fingerprint": "0" * 64 for split in parts}
    write_decoded(tmp_path / "datasets" / "cifar10.safetensors", parts, facts)
    shown = {}
    for split in ("train", "val", "test"):
        source = context_source("cifar10", split, CLASSES)
        which = np.arange(2000) % 10
        painted = source.paint(which, torch.from_numpy(draws_of(0, split, 2000, DRAWS)))
        rows = painted[:, 0, 5, 5].round().long()
        assert torch.equal(labels[rows], torch.from_numpy(which))
        shown[split] = set(rows.tolist())
    assert shown["train"] == set(range(180))
    assert shown["val"] == set(range(180, 200))
    assert shown["test"] == set(range(200, 220))


def test_icon_backgrounds_show_other_classes_only() -> None:
    data = small(backgrounds="icons", correlation=1.0)
    assert not set(data.columns["context"]) & set(CLASSES)
    assert len(set(data.columns["context"])) == len(CLASSES)


def test_objects_keep_their_ink_and_stay_in_the_frame() -> None:
    picture = as_tensor(disc((255, 255, 255), (200, 0, 0))).repeat(50, 1, 1, 1)
    cover = opacity(picture)
    draws = torch.from_numpy(draws_of(0, "place", 50, 4))
    layer = placed(picture, cover, draws)
    sizes = (32 + (draws[:, 0] * 20).long()).double()
    share = layer.cover.sum(dim=(1, 2)) / cover[0].sum()
    assert torch.allclose(share, (sizes / 64) ** 2, atol=0.01)
    black = laid_on(layer, torch.zeros(50, 3, 64, 64, dtype=torch.float64))
    white = laid_on(layer, torch.full((50, 3, 64, 64), 255.0, dtype=torch.float64))
    opaque = (layer.cover > 0.999)[:, None].expand(-1, 3, -1, -1)
    assert torch.equal(black[opaque], white[opaque])
    clear = (layer.cover == 0)[:, None].expand(-1, 3, -1, -1)
    assert (white[clear] == 255).all()


def test_a_texture_keeps_its_pattern_and_hue() -> None:
    which = list(range(len(NAMES))) * 6
    draws = torch.from_numpy(draws_of(3, "textures", len(which), DRAWS))
    pictures = draw_textures(which, draws, SIZE)
    assert pictures.shape == (len(which), 3, SIZE, SIZE)
    assert 0 <= pictures.min() <= pictures.max() <= 255
    assert len(NAMES) == 2 * len(PATTERNS) == len(set(NAMES))
    colours = pictures.mean(dim=(2, 3)).reshape(6, len(NAMES), 3)
    colours = colours / colours.norm(dim=-1, keepdim=True)
    within = (colours - colours.mean(dim=0)).norm(dim=-1).mean()
    between = (colours.mean(dim=0) - colours.mean(dim=(0, 1))).norm(dim=-1).mean()
    assert within < between


def test_a_row_is_painted_the_same_alone_and_in_company() -> None:
    draws = torch.from_numpy(draws_of(3, "rows", 8, DRAWS))
    for kind in ("texture", "icons"):
        source = context_source(kind, "val", CLASSES)  # type: ignore[arg-type]
        which = np.arange(8) % 3
        together = source.paint(which, draws)
        alone = source.paint(which[5:6], draws[5:6])
        assert torch.equal(together[5], alone[0])


def test_mistakes_are_told_kindly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOCKPOT_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"data get cifar10.*texture or icons"):
        small(backgrounds="cifar10")
    with pytest.raises(BadParameterError, match="probability"):
        small(correlation=1.5)
    with pytest.raises(UnknownNameError, match="clock"):
        small(classes=("clok", "heart"))
    with pytest.raises(BadParameterError, match="two different"):
        small(classes=("clock",))
    with pytest.raises(BadParameterError, match="copies"):
        small(copies=0)
    with pytest.raises(BadParameterError, match="got 'all'"):
        small(split="all")


def test_a_model_that_looks_at_the_context_is_misled_as_far_as_the_dial_says() -> None:
    """Nearest mean colour of the picture's rim: it sees no object, only where one stands."""

    def rim(data: Dataset) -> torch.Tensor:
        edge = torch.ones(SIZE, SIZE, dtype=torch.bool)
        edge[3:-3, 3:-3] = False
        colours = _pixels(data)[:, :, edge].double().mean(dim=2)
        return colours / colours.norm(dim=1, keepdim=True)

    train = kept(split="train", copies=1)
    means = torch.stack([rim(train)[train.labels == k].mean(dim=0) for k in range(len(CLASSES))])
    shares = {}
    for shift in ("none", "shuffled", "reversed"):
        test = kept(split="test", shift=shift)
        nearest = torch.cdist(rim(test), means).argmin(dim=1)
        shares[shift] = float((nearest == test.labels).double().mean())
    assert shares["none"] > 0.7  # the context says it nine times in ten
    assert abs(shares["shuffled"] - 1 / 3) < 0.12
    assert shares["reversed"] < 0.2


def test_plain_and_vector_instructions_give_the_same_pixels() -> None:
    options = {"split": "val", "backgrounds": "texture", "classes": ("heart", "fruit")}
    program = (
        "from stockpot.datasets.load import load_dataset;"
        f"print(load_dataset('object_on_context', **{options!r}).fingerprint)"
    )
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "default"}
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == load_dataset("object_on_context", **options).fingerprint  # type: ignore[arg-type]


def test_a_design_family_can_be_held_out() -> None:
    every, one, rest = small(), small(family="fluent"), small(exclude_family="fluent")
    assert set(one.columns["family"]) == {"fluent"}
    assert "fluent" not in rest.columns["family"]
    assert set(rest.columns["family"]) == set(every.columns["family"]) - {"fluent"}
    assert len(one) + len(rest) == len(every)
    assert one.classes == rest.classes == every.classes


def test_copies_of_one_object_belong_together() -> None:
    from stockpot.results.statistics import share_interval

    twice, once = small(copies=2), small(copies=1)
    assert twice.groups is not None
    assert len(set(twice.groups)) == len(once)
    right = np.repeat(np.arange(len(once)) % 3 > 0, 2)
    alone = share_interval(right[::2])
    found = share_interval(right, twice.groups)
    assert (found.low, found.high) == pytest.approx((alone.low, alone.high))
    assert once.groups is None
