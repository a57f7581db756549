"""Data without splits: parts by content that twins share, and all of it when no split is asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from commands import invoke
from stockpot.datasets.by_content.image_hashes import image_hashes
from stockpot.datasets.by_content.parts import parts, parts_by_hash
from stockpot.datasets.by_content.split_names import SHARES
from stockpot.datasets.by_content.twins import twin_groups
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.errors import BadDataError, UserError

SPLITS = ("train", "val", "test")


def scene(number: int, side: int = 48) -> Image.Image:
    """A smooth picture of its own: coarse colours, enlarged."""
    coarse = np.random.default_rng(number).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    for number in range(60):
        place = folder / ("ant", "bee")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        scene(number).save(place / f"{number}.png")
    return folder


def hashes(data: Dataset) -> set[int]:
    return set(image_hashes(data.images).tolist())


def test_a_flat_folder_is_not_train_and_test_at_once(photos: Path) -> None:
    found = {split: load_dataset(str(photos), split=split) for split in SPLITS}
    assert sum(len(part) for part in found.values()) == 60
    assert len(set.union(*map(hashes, found.values()))) == 60
    assert all(len(part) > 0 for part in found.values())
    assert {part.classes for part in found.values()} == {("ant", "bee")}
    assert found["test"].split == "test of 60/20/20 by content"
    whole = load_dataset(str(photos))
    assert (len(whole), whole.split) == (60, "all")
    assert load_dataset(str(photos), split="all").fingerprint == whole.fingerprint
    with pytest.raises(UserError, match="split of"):
        load_dataset(str(photos), split="fit")


def test_a_picture_keeps_its_part_wherever_it_lies(photos: Path, tmp_path: Path) -> None:
    """By its pixels: another name, another lossless format, an array, and more pictures beside."""
    before = {split: hashes(load_dataset(str(photos), split=split)) for split in SPLITS}
    for file in sorted(photos.rglob("*.png")):
        Image.open(file).save(file.with_name(f"x{file.stem}.bmp"))
        file.unlink()
    for number in range(100, 120):
        scene(number).save(photos / "ant" / f"{number}.png")
    every = load_dataset(str(photos))
    pixels = np.concatenate([batch.images.numpy() for batch in every.batches()])
    np.savez(tmp_path / "same.npz", images=pixels, labels=every.labels.numpy())
    for split in SPLITS:
        after = hashes(load_dataset(str(photos), split=split))
        assert before[split] <= after
        assert hashes(load_dataset(str(tmp_path / "same.npz"), split=split)) == after


def test_near_twins_stay_together(photos: Path) -> None:
    for number in range(60):
        picture = scene(number)
        place = photos / ("ant", "bee")[number % 2]
        picture.save(place / f"{number}-again.jpg", quality=60)
        picture.resize((29, 31)).save(place / f"{number}-small.png")
    homes: dict[str, set[str]] = {}
    for split in SPLITS:
        data = load_dataset(str(photos), split=split)
        for name in data.columns["file"]:
            homes.setdefault(Path(name).stem.split("-")[0], set()).add(split)
    assert len(homes) == 60
    assert all(len(splits) == 1 for splits in homes.values())


def test_twins_are_those_of_a_full_comparison() -> None:
    generator = np.random.default_rng(0)
    first = generator.integers(0, 256, (150, 192)).astype(np.int64)
    noisy = first[:100] + generator.integers(-6, 8, (100, 192))
    thumbnails = np.concatenate([first, noisy.clip(0, 255), first[:5]]).astype(np.uint8)
    wide = thumbnails.astype(np.float64)
    near = (((wide[:, None] - wide[None]) ** 2).mean(axis=2)) <= 16.0
    groups = twin_groups(thumbnails)
    together = groups[:, None] == groups[None]
    assert (together == (np.linalg.matrix_power(near.astype(float), 8) > 0)).all()
    assert 0 < near[:100, 150:250].diagonal().mean() < 1  # some noise is within reach


def test_shares_and_the_smallest_hash_of_a_group() -> None:
    numbers = np.random.default_rng(1).integers(0, 2**64, 20_000, dtype=np.uint64)
    alone = parts_by_hash(numbers, np.arange(20_000))
    for split, percent in SHARES.items():
        assert (alone == split).mean() == pytest.approx(percent / 100, abs=0.015)
    pairs = parts_by_hash(numbers, np.arange(20_000) // 2)
    smaller = np.where(numbers[::2] < numbers[1::2], alone[::2], alone[1::2])
    assert (pairs.reshape(-1, 2) == smaller[:, None]).all()
    for split, percent in SHARES.items():  # twins do not flock to one part
        assert (pairs == split).mean() == pytest.approx(percent / 100, abs=0.02)


def test_a_place_named_like_a_split_is_that_split(photos: Path, tmp_path: Path) -> None:
    photos.rename(tmp_path / "train")
    place = str(tmp_path / "train")
    for split in ("train", None, "all"):
        data = load_dataset(place, split=split)
        assert (len(data), data.split) == (60, "train")
    with pytest.raises(BadDataError, match="is train by its name"):
        load_dataset(place, split="val")


def test_arrays_without_splits_are_parted_and_named_ones_are_not(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (50, 8, 8, 3), dtype=np.uint8)
    labels = np.arange(50) % 2
    np.savez(tmp_path / "plain.npz", images=pixels, labels=labels)
    np.savez(tmp_path / "both.npz", x_train=pixels, y_train=labels, x_test=pixels, y_test=labels)
    sizes = {split: len(load_dataset(str(tmp_path / "plain.npz"), split=split)) for split in SPLITS}
    assert sum(sizes.values()) == 50
    assert min(sizes.values()) > 0
    assert load_dataset(str(tmp_path / "plain.npz")).split == "all"
    whole = load_dataset(str(tmp_path / "both.npz"), split="train")
    assert (len(whole), whole.split) == (50, "train")
    keys = {"images": "x_train", "labels": "y_train"}
    chosen = load_dataset(str(tmp_path / "both.npz"), split="train", **keys)
    assert (len(chosen), chosen.split) == (50, "train")


def test_too_few_images_for_a_part_say_so(tmp_path: Path) -> None:
    (tmp_path / "few" / "ant").mkdir(parents=True)
    scene(0).save(tmp_path / "few" / "ant" / "0.png")
    whole = load_dataset(str(tmp_path / "few"))
    assert len(whole) == 1
    (own,) = parts(whole)
    for split in set(SPLITS) - {own}:
        with pytest.raises(BadDataError, match="by content none of its 1 images is in"):
            load_dataset(str(tmp_path / "few"), split=split)


def test_a_recipe_that_asks_for_an_unknown_part_is_stopped(photos: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"version: 1\ndata:\n  mine: {{dataset: {photos}, split: tesst}}\nmodels: {{}}\n"
    )
    done = invoke("validate", recipe)
    assert done.exit_code == 1
    assert "tesst" in done.output
