"""Folders of pictures: classes, label maps, splits, broken files, fingerprints."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from stockpot.datasets.imagefolder import imagefolder
from stockpot.datasets.load import load_dataset
from stockpot.errors import BadDataError, UnknownNameError


def put(path: Path, value: int = 0, size: tuple[int, int] = (8, 8)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, 0, 0)).save(path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate(("dog", "cat")):
        for row in range(3):
            put(tmp_path / "set" / name / f"{row}.png", 100 * number + row)
    return tmp_path / "set"


def test_class_folders_in_alphabetical_order(folder: Path) -> None:
    data = imagefolder(path=str(folder))
    assert data.classes == ("cat", "dog")
    assert data.labels.tolist() == [0, 0, 0, 1, 1, 1]
    pixels = next(data.batches(10)).images
    assert pixels[:, 0, 0, 0].tolist() == [100, 101, 102, 0, 1, 2]
    assert data.columns["file"][0] == "cat/0.png"


def test_order_of_listing_does_not_matter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = imagefolder(path=str(folder))
    rglob = Path.rglob
    monkeypatch.setattr(Path, "rglob", lambda self, p: reversed(list(rglob(self, p))))
    again = imagefolder(path=str(folder))
    assert again.fingerprint == expected.fingerprint
    assert again.columns == expected.columns


def test_fingerprint_follows_pixels_names_and_labels(folder: Path) -> None:
    marks = [imagefolder(path=str(folder)).fingerprint]
    target = folder / "cat" / "0.png"
    pixels = np.asarray(Image.open(target)).copy()
    pixels[3, 3, 1] += 1
    Image.fromarray(pixels).save(target)
    marks.append(imagefolder(path=str(folder)).fingerprint)
    target.rename(folder / "cat" / "9.png")
    marks.append(imagefolder(path=str(folder)).fingerprint)
    (folder / "cat" / "9.png").rename(folder / "dog" / "9.png")
    marks.append(imagefolder(path=str(folder)).fingerprint)
    assert len(set(marks)) == 4


def test_a_class_named_train_is_a_class(tmp_path: Path) -> None:
    for name in ("car", "train"):
        put(tmp_path / name / "x.png", 1)
    assert imagefolder(path=str(tmp_path)).classes == ("car", "train")
    put(tmp_path / "split" / "train" / "car" / "x.png", 1)
    put(tmp_path / "split" / "notes" / "x.png", 1)
    assert imagefolder(path=str(tmp_path / "split"), split="train").classes == ("car",)


def test_split_folders_are_found(tmp_path: Path) -> None:
    for split, value in (("train", 1), ("validation", 2)):
        put(tmp_path / split / "a" / "x.png", value)
    for split, value in (("train", 1), ("val", 2), ("validation", 2)):
        pixels = next(imagefolder(path=str(tmp_path), split=split).batches(1)).images
        assert int(pixels[0, 0, 0, 0]) == value
    with pytest.raises(UnknownNameError, match="test"):
        imagefolder(path=str(tmp_path), split="test")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.csv", "file,label\nx.png,tench\ny.png,goldfish\n"),
        ("labels.csv", "x.png,tench\ny.png,goldfish\n"),
        ("labels.csv", "id,label,note\nx,tench,1\ny,goldfish,2\n"),
        ("labels.tsv", "x.png\ttench\ny.png\tgoldfish\n"),
        ("labels.json", '{"x.png": "tench", "y.png": "goldfish"}'),
    ],
)
def test_flat_folder_with_a_label_map(tmp_path: Path, name: str, text: str) -> None:
    put(tmp_path / "set" / "x.png")
    put(tmp_path / "set" / "y.png")
    put(tmp_path / "set" / "not-labelled.png")
    (tmp_path / name).write_text(text)
    data = imagefolder(path=str(tmp_path / "set"), labels=str(tmp_path / name))
    assert data.columns["file"] == ("x.png", "y.png")
    assert [data.classes[label] for label in data.labels] == ["tench", "goldfish"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.csv", "file,label\nx.png,\ny.png,goldfish\n"),
        ("labels.csv", "x.png, \ny.png,goldfish\n"),
        ("labels.json", '{"x.png": null, "y.png": "goldfish"}'),
        ("labels.json", '{"x.png": ["tench"], "y.png": "goldfish"}'),
    ],
)
def test_a_picture_without_a_label_is_no_class(tmp_path: Path, name: str, text: str) -> None:
    put(tmp_path / "set" / "x.png")
    put(tmp_path / "set" / "y.png")
    (tmp_path / name).write_text(text)
    with pytest.raises(BadDataError, match=r"x\.png: expected the name or the number of a class"):
        imagefolder(path=str(tmp_path / "set"), labels=str(tmp_path / name))


def test_links_to_folders_are_followed_and_not_in_circles(tmp_path: Path) -> None:
    put(tmp_path / "all" / "cat" / "x.png")
    put(tmp_path / "all" / "dog" / "deep" / "y.png")
    part = tmp_path / "part"
    part.mkdir()
    for name in ("cat", "dog"):
        (part / name).symlink_to(tmp_path / "all" / name)
    (part / "cat" / "up").symlink_to(tmp_path / "all")
    (part / "cat" / "self").symlink_to(tmp_path / "all" / "cat")
    (part / "cat" / "nowhere").symlink_to(tmp_path / "nowhere")
    linked = load_dataset(str(part), split="all")
    assert linked.classes == ("cat", "dog")
    assert linked.columns["file"] == ("cat/x.png", "dog/deep/y.png")


@pytest.mark.parametrize(
    ("folders", "classes"),
    [
        (["0", "1", "2"], ("0", "1", "2")),
        ([str(n) for n in range(11)], tuple(str(n) for n in range(11))),
        (["00", "01"], ("0", "1")),
        (["1", "2", "10"], ("1", "10", "2")),
        (["2019", "2020"], ("2019", "2020")),
        (["001", "002"], ("001", "002")),
    ],
)
def test_folders_of_numbers_are_classes_and_no_others(
    tmp_path: Path, folders: list[str], classes: tuple[str, ...]
) -> None:
    for folder in folders:
        put(tmp_path / "set" / folder / "x.png")
    data = imagefolder(path=str(tmp_path / "set"))
    assert data.classes == classes
    shown = [name.split("/")[0] for name in data.columns["file"]]
    assert [classes[label] for label in data.labels] == [
        name if name in classes else str(int(name)) for name in shown
    ]


def test_a_name_of_two_classes_says_neither(tmp_path: Path) -> None:
    put(tmp_path / "set" / "x.png")
    put(tmp_path / "set" / "y.png")
    classes, label_map = ["crane", "owl", "crane"], tmp_path / "map.json"
    label_map.write_text(json.dumps({"x.png": "owl", "y.png": 2}))
    data = imagefolder(path=str(tmp_path / "set"), labels=str(label_map), classes=classes)
    assert data.labels.tolist() == [1, 2]
    label_map.write_text(json.dumps({"x.png": "owl", "y.png": "crane"}))
    with pytest.raises(BadDataError, match=r"y\.png: the label 'crane' is the name of 2 classes"):
        imagefolder(path=str(tmp_path / "set"), labels=str(label_map), classes=classes)


def test_wnid_folders_and_indices_into_a_class_list(tmp_path: Path) -> None:
    put(tmp_path / "set" / "n02" / "x.png")
    put(tmp_path / "set" / "n07" / "y.png")
    label_map = tmp_path / "map.json"
    label_map.write_text(json.dumps({"n02": 2, "n07": 7}))
    data = imagefolder(path=str(tmp_path / "set"), labels=str(label_map), classes=10)
    assert data.labels.tolist() == [2, 7]
    assert len(data.classes) == 10
    names = tmp_path / "names.txt"
    names.write_text("\n".join(f"class {number}" for number in range(10)))
    named = imagefolder(path=str(tmp_path / "set"), labels=str(label_map), classes=str(names))
    assert named.classes[7] == "class 7"
    with pytest.raises(BadDataError, match="label '7' is neither"):
        imagefolder(path=str(tmp_path / "set"), labels=str(label_map), classes=["a", "b", "c"])


def test_a_map_that_names_more_than_there_is(tmp_path: Path) -> None:
    put(tmp_path / "set" / "a" / "x.png")
    label_map = tmp_path / "map.json"
    label_map.write_text('{"a": "first", "b": "second"}')
    with pytest.raises(BadDataError, match=r"1 of 2 names in the label map have no image.*: b\."):
        imagefolder(path=str(tmp_path / "set"), labels=str(label_map))
    part = imagefolder(
        path=str(tmp_path / "set"), labels=str(label_map), classes=["first", "second"]
    )
    assert part.classes == ("first", "second")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: None, "is none"),
        (lambda root: root.mkdir(), "holds no images"),
        (lambda root: put(root / "x.png"), "one folder per class"),
        (
            lambda root: (put(root / "a" / "x.png"), (root / "b").mkdir()),
            "no images in the class folders b",
        ),
    ],
)
def test_wrong_folders_are_explained(tmp_path: Path, make: object, message: str) -> None:
    make(tmp_path / "set")  # type: ignore[operator]
    with pytest.raises(BadDataError, match=message):
        imagefolder(path=str(tmp_path / "set"))


def test_three_broken_of_many_are_named_and_stop_or_are_skipped(tmp_path: Path) -> None:
    source = put(tmp_path / "one.png").read_bytes()
    root = tmp_path / "set"
    for label in "ab":
        (root / label).mkdir(parents=True)
        for row in range(500):
            (root / label / f"{row:03d}.png").write_bytes(source)
    broken = ["a/007.png", "b/000.png", "b/499.png"]
    (root / broken[0]).write_bytes(source[: len(source) // 2])
    (root / broken[1]).write_bytes(b"")
    (root / broken[2]).write_bytes(b"<html>not found</html>")
    with pytest.raises(BadDataError) as caught:
        imagefolder(path=str(root))
    assert "3 of 1000 images are broken" in str(caught.value)
    assert all(name in str(caught.value) for name in broken)
    with pytest.warns(UserWarning, match="skipped") as warned:
        data = imagefolder(path=str(root), on_broken="skip")
    assert all(name in str(warned[0].message) for name in broken)
    assert len(data) == 997
    assert sum(len(batch.labels) for batch in data.batches(256)) == 997


def test_load_dataset_takes_a_path_and_limits(folder: Path) -> None:
    whole = load_dataset(str(folder))
    some = load_dataset(str(folder), limit=2)
    assert len(whole) == 6
    assert len(some) == 2
    assert some.fingerprint != whole.fingerprint
    assert torch.equal(load_dataset(str(folder), limit=2).labels, some.labels)


@pytest.mark.skipif(os.name != "posix", reason="needs links")
def test_hidden_files_are_not_pictures(folder: Path) -> None:
    (folder / "cat" / "._0.png").write_bytes(b"a file system's own note")
    assert len(imagefolder(path=str(folder))) == 6


def test_a_path_may_be_a_path(folder: Path) -> None:
    named = load_dataset("imagefolder", path=folder)
    assert named.fingerprint == load_dataset("imagefolder", path=str(folder)).fingerprint
    assert load_dataset(folder).fingerprint == named.fingerprint
