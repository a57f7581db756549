"""Corrupted folders on disk, as `stockpot corrupt` writes them and others read them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from commands import invoke
from pico import make_dataset
from stockpot.checkpoints.record import read_record
from stockpot.corrupt.apply import corrupt
from stockpot.corrupt.stored import files
from stockpot.corrupt.stored.names import class_folders, picture_names
from stockpot.datasets.load import load_dataset
from stockpot.datasets.natural.classes import imagenet_names
from stockpot.datasets.stream.geometry import published_crop

FEW = ("--name", "contrast,gaussian_noise", "--severity", "2", "--engine", "serial")


def photograph(path: Path, seed: int, size: tuple[int, int] = (40, 30)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    small = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    Image.fromarray(small).resize(size, Image.Resampling.BICUBIC).save(path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Pictures of two sizes, two of them with the names of others of their class."""
    root = tmp_path / "photos"
    photograph(root / "cat" / "1.png", 1)
    photograph(root / "cat" / "deep" / "1.png", 2, (30, 40))
    photograph(root / "cat" / "1.bmp", 3)
    photograph(root / "dog" / "1.png", 4)
    return root


def written(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "stockpot.json"
    }


def test_imagenet_lies_under_its_wordnet_ids(tmp_path: Path) -> None:
    for number, wnid in enumerate(("n01484850", "n01440764", "n02510455")):
        photograph(tmp_path / "val" / wnid / f"ILSVRC2012_val_{number:08d}.JPEG", number)
    done = invoke("corrupt", "imagenet", tmp_path / "c", "-d", f"path={tmp_path}", *FEW)
    assert done.exit_code == 0, done.output
    folder = tmp_path / "c" / "contrast" / "2"
    # Another reader numbers folders by alphabet; ids in this order are the order of the classes.
    found = sorted(path.name for path in folder.iterdir())
    assert found == ["n01440764", "n01484850", "n02510455"]
    names = ["tench", "great white shark", "giant panda"]
    assert [imagenet_names().index(name) for name in names] == sorted(
        imagenet_names().index(name) for name in names
    )
    assert (folder / "n01484850" / "ILSVRC2012_val_00000000.JPEG").is_file()


def test_words_lie_under_ids_where_they_came_from_ids() -> None:
    data = make_dataset(n=4, classes=("tench", "great white shark"))
    plain = {"file": tuple(f"{data.classes[label]}/1.png" for label in data.labels.tolist())}
    assert class_folders(replace(data, columns=plain)) == ("tench", "great white shark")
    wnids = {"file": ("n01440764/1.png", "n01484850/1.png", "n01440764/2.png", "n01484850/2.png")}
    assert class_folders(replace(data, columns=wnids)) == ("n01440764", "n01484850")


def test_another_question_into_the_same_folder_is_refused(photos: Path, tmp_path: Path) -> None:
    words = ("corrupt", photos, tmp_path / "c", *FEW, "--size", "32")
    assert invoke(*words).exit_code == 0
    before = written(tmp_path / "c")
    for more, said in (
        (("--seed", "1"), "seed 0 -> 1"),
        (("--profile", "imagenet"), "profile cifar -> imagenet"),
        (("--limit", "2"), "pictures 4 -> 2"),
        (("--size", "48"), "size 32x32 -> 48x48"),
        (("--codec", "libjpeg-turbo"), "codec libjpeg-9 -> libjpeg-turbo"),
        (("--format", "png"), "format jpeg -> png"),
        (("--overlays", "photographs"), "overlays procedural -> photographs"),
        (("--tiles", str(photos)), "tiles"),
        (("--features", "small-vqgan"), "features"),
    ):
        done = invoke(*words, *more)
        assert done.exit_code == 1
        assert said in done.output
        assert len(done.output.strip().splitlines()) == 1
    photograph(photos / "dog" / "1.png", 5)
    assert "data photos:all has other content" in invoke(*words).output
    assert written(tmp_path / "c") == before


def test_the_same_question_goes_on_and_takes_further_corruptions(
    photos: Path, tmp_path: Path
) -> None:
    words = ("corrupt", photos, tmp_path / "c", "--size", "32", "--engine", "serial")
    assert invoke(*words, "--name", "contrast", "--severity", "1").exit_code == 0
    assert invoke(*words, "--name", "frost", "--severity", "5").exit_code == 0
    assert len(written(tmp_path / "c")) == 2 * 4
    record = read_record(tmp_path / "c")
    assert record is not None
    assert record.verb == "corrupt"
    assert record.seed == 0
    assert record.inputs[0].fingerprint == load_dataset(str(photos)).fingerprint
    expected = {"profile": "cifar", "size": "32x32", "overlays": "procedural"}
    assert expected.items() <= record.parameters.items()
    assert record.parameters["codec"] == "libjpeg-9"
    assert set(record.details["corruptions"]) == {"contrast", "frost"}
    assert record.details["classes"] == ["cat", "dog"]


def test_later_families_are_written_by_name(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "later"
    words = ("corrupt", photos, out, "--name", "laion-c,style", "--severity", "2.5", "--size", "32")
    done = invoke(*words, "--engine", "serial", "--format", "png", "--tiles", photos)
    assert done.exit_code == 0, done.output
    record = json.loads((out / "stockpot.json").read_text())
    assert record["parameters"]["tiles"] == str(photos)
    assert "styles" not in record["parameters"], "what is as usual is not said"
    assert f"tiles={photos}" in record["details"]["corruptions"]["stickers"]
    assert len(list(out.glob("*/2.5/*/*.png"))) == 7 * 4


def test_a_folder_of_unknown_origin_is_refused(photos: Path, tmp_path: Path) -> None:
    photograph(tmp_path / "c" / "contrast" / "2" / "cat" / "1.png", 0)
    done = invoke("corrupt", photos, tmp_path / "c", *FEW)
    assert done.exit_code == 1
    assert "no stockpot.json" in done.output


def test_names_that_collide_are_kept_apart(photos: Path, tmp_path: Path) -> None:
    data = load_dataset(str(photos))
    names = picture_names(data, ".JPEG")
    assert len({name.lower() for name in names}) == 4
    assert "dog/1.JPEG" in names
    done = invoke("corrupt", photos, tmp_path / "c", *FEW, "--size", "32")
    assert done.exit_code == 0, done.output
    assert len(written(tmp_path / "c")) == 2 * 4
    labels = [name.split("/")[0] for name in names]
    assert [data.classes[label] for label in data.labels.tolist()] == labels


def test_killed_and_started_again_it_is_as_if_it_had_run_through(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("corrupt", photos, "--seed", "3", "--size", "32", *FEW)
    assert invoke(*words[:2], tmp_path / "whole", *words[2:]).exit_code == 0
    save = files._save

    def dying(path: Path, *about):
        if path.match("gaussian_noise/2/dog/*"):
            raise RuntimeError("the machine was switched off")
        return save(path, *about)

    with monkeypatch.context() as patch:
        patch.setattr(files, "_save", dying)
        with pytest.raises(RuntimeError, match="switched off"):
            invoke(*words[:2], tmp_path / "cut", *words[2:])
    assert 0 < len(written(tmp_path / "cut")) < len(written(tmp_path / "whole"))
    assert invoke(*words[:2], tmp_path / "cut", *words[2:]).exit_code == 0
    assert written(tmp_path / "cut") == written(tmp_path / "whole")
    whole, cut = (
        json.loads((tmp_path / name / "stockpot.json").read_text()) for name in ("whole", "cut")
    )
    assert whole["digest"] == cut["digest"]


def test_pictures_are_cut_as_the_published_ones_and_seeds_are_apart(
    photos: Path, tmp_path: Path
) -> None:
    """By hand: short side to 256, centre of 224, corrupted with the seed of the run and row."""
    invoke("corrupt", photos, tmp_path / "c", *FEW, "--format", "png", "--seed", "2")
    with Image.open(photos / "dog" / "1.png") as picture:
        resized = picture.resize((341, 256), Image.Resampling.BILINEAR)  # int(256 * 40 / 30)
        left = round((341 - 224) / 2)
        cut = resized.crop((left, 16, left + 224, 16 + 224))
        assert np.array_equal(np.asarray(published_crop(picture)), np.asarray(cut))
    pixels = torch.from_numpy(np.array(cut)).permute(2, 0, 1)[None]
    row = picture_names(load_dataset(str(photos)), ".png").index("dog/1.png")
    expected = corrupt(pixels, "gaussian_noise", 2, seed=(2 << 32) + row)[0].permute(1, 2, 0)
    with Image.open(tmp_path / "c" / "gaussian_noise" / "2" / "dog" / "1.png") as stored:
        assert np.array_equal(np.asarray(stored), expected.numpy())
