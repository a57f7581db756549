"""Hold-outs by style, subtype and version: what may stand on which side, on any data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import avg_pool2d

from commands import invoke
from stockpot.checkpoints.resolve import resolve
from stockpot.checkpoints.seen import read_seen
from stockpot.datasets.by_content.image_hashes import look_at
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.datasets.holdouts.given import LOOK_ALIKE, chosen
from stockpot.datasets.holdouts.metadata import read_facts, write_facts
from stockpot.datasets.holdouts.protocols import HoldOut, held_out_rows, leave_one_out
from stockpot.datasets.icons.concepts import class_table
from stockpot.datasets.icons.split import split_groups
from stockpot.datasets.load import load_dataset
from stockpot.errors import BadDataError, BadParameterError, UnknownNameError, UserError

ICONS = {
    "style": {"protocol": "style", "hold_out": "fluent"},
    "subtype": {"protocol": "subtype", "hold_out": 50, "hold_out_seed": 3},
    "version": {"protocol": "version", "hold_out": "noto"},
    "cut": {"protocol": "version", "hold_out": "fluent-flat"},
}
ON_ONE_SIDE = {
    "style": "family",
    "subtype": "look_alikes",
    "version": "version",
    "cut": "version",
}


def noise(columns: dict[str, list[str]], classes: list[str], labels: list[str]) -> Dataset:
    """Pictures that nobody would take for one another."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (len(labels), 3, 8, 8), generator=generator, dtype=torch.uint8)
    return Dataset(
        name="made",
        split="all",
        images=TensorImages(pixels),
        labels=torch.tensor([classes.index(label) for label in labels]),
        classes=tuple(classes),
        fingerprint="made",
        columns={key: tuple(values) for key, values in columns.items()},
    )


def colliding() -> Dataset:
    """Concepts named like classes, like parts of others, and alike in two classes."""
    things = {
        "books": ["books", "red book", "monkey"],
        "monkey": ["monkey", "monkey face", "ape"],
        "face": ["face", "monkey face", "smile"],
    }
    rows = [
        (label, concept, style, version)
        for label, concepts in things.items()
        for concept in concepts
        for style in ("book", "noto", "noto-v1")
        for version in ("1", "2")
    ]
    labels, concepts, styles, versions = (list(values) for values in zip(*rows, strict=True))
    columns = {"concept": concepts, "style": styles, "version": versions}
    return noise(columns, list(things), labels)


def whole(data: Dataset) -> Callable[[str | None], Dataset]:
    return lambda split: data


@pytest.fixture(scope="module")
def everything() -> Dataset:
    return load_dataset("icons", split="all")


@pytest.fixture(scope="module")
def sides(everything: Dataset) -> dict[str, tuple[Dataset, Dataset]]:
    load = whole(everything)
    return {
        name: (chosen(load, "train", asked), chosen(load, "test", asked))
        for name, asked in ICONS.items()
    }


@pytest.mark.parametrize("name", ICONS)
def test_icons_keep_every_class_and_hold_out_whole_things(
    name: str, sides: dict[str, tuple[Dataset, Dataset]]
) -> None:
    train, test = sides[name]
    assert set(train.labels.tolist()) == set(range(50))
    held, column = set(test.columns[ON_ONE_SIDE[name]]), ON_ONE_SIDE[name]
    assert not held & set(train.columns[column])
    if name == "subtype":
        concepts = set(test.columns["concept"])
        assert len(concepts) == 50
        assert not concepts & set(train.columns["concept"])
    else:
        assert set(test.columns["concept"]) <= set(train.columns["concept"])


@pytest.mark.parametrize("name", ["style", "subtype", "version", "splits"])
def test_no_picture_looks_like_one_across_a_boundary(
    name: str, everything: Dataset, sides: dict[str, tuple[Dataset, Dataset]]
) -> None:
    if name == "splits":
        parts = [everything.where(split=split) for split in ("train", "val", "test")]
    else:
        parts = [*sides[name]]
    # Means of blocks, not the thumbnails that the product looks at: a little blunter than these.
    seen = [avg_pool2d(part.images.pixels.float(), 8).flatten(1) for part in parts]  # type: ignore[attr-defined]
    for row, one in enumerate(seen):
        for other in seen[:row]:
            nearest = torch.cdist(one[::2], other).min() / one.shape[1] ** 0.5
            assert nearest > 0.85 * LOOK_ALIKE


def test_colliding_names_are_told_apart() -> None:
    data = colliding()
    train, test = held_out_rows(data, HoldOut("style", ("noto",)))
    assert {data.columns["style"][row] for row in test} == {"noto"}
    assert {data.columns["style"][row] for row in train} == {"book", "noto-v1"}
    train, test = held_out_rows(data, HoldOut("subtype", ("monkey", "books")))
    held = {(data.classes[int(data.labels[row])], data.columns["concept"][row]) for row in test}
    assert held == {("books", "books"), ("books", "monkey"), ("monkey", "monkey")}
    assert {int(data.labels[row]) for row in train} == {0, 1, 2}
    train, test = held_out_rows(data, HoldOut("version", ("2",)))
    assert len(train) == len(test) == len(data) // 2


@pytest.mark.parametrize("seed", range(20))
def test_draws_leave_each_class_something(seed: int) -> None:
    data = colliding()
    train, test = held_out_rows(data, HoldOut("subtype", count=3, seed=seed))
    concepts = data.columns["concept"]
    assert len({concepts[row] for row in test}) == 3
    assert not {concepts[row] for row in test} & {concepts[row] for row in train}
    assert {int(data.labels[row]) for row in train} == {0, 1, 2}
    assert sorted(train + test) == list(range(len(data)))


def test_look_alikes_are_held_out_together() -> None:
    data = colliding()
    alike = tuple(name if name != "ape" else "smile" for name in data.columns["concept"])
    data = replace(data, columns={**data.columns, "look_alikes": alike})
    for seed in range(10):
        _, test = held_out_rows(data, HoldOut("subtype", count=3, seed=seed))
        held = {data.columns["concept"][row] for row in test}
        assert ("ape" in held) == ("smile" in held)


def test_what_cannot_be_held_out_is_said() -> None:
    data = colliding()
    with pytest.raises(BadDataError, match="no training picture of monkey"):
        held_out_rows(data, HoldOut("subtype", ("monkey", "monkey face", "ape")))
    with pytest.raises(BadParameterError, match="keeps some; 5 can"):
        held_out_rows(data, HoldOut("subtype", count=7))
    with pytest.raises(UnknownNameError, match="Did you mean noto"):
        held_out_rows(data, HoldOut("style", ("notto",)))
    with pytest.raises(BadParameterError, match="There are book, noto, noto-v1"):
        held_out_rows(data, HoldOut("style"))
    with pytest.raises(BadDataError, match="needs a column version"):
        held_out_rows(replace(data, columns={}), HoldOut("version", ("1",)))
    with pytest.raises(UnknownNameError, match="protocol"):
        load_dataset("icons", protocol="stile", hold_out="noto")
    with pytest.raises(UnknownNameError, match="side of a protocol"):
        load_dataset("icons", split="val", protocol="style", hold_out="noto")
    with pytest.raises(BadParameterError, match="names, not a number"):
        load_dataset("icons", protocol="style", hold_out_each=2)
    with pytest.raises(BadParameterError, match="hold_out_each: expected at least 1 concept"):
        load_dataset("icons", protocol="subtype", hold_out_each="many")
    with pytest.raises(BadParameterError, match="say which protocol"):
        load_dataset("icons", hold_out="noto")


def test_a_version_needs_another_edition_by_the_same_hand() -> None:
    data = noise(
        {
            "concept": ["a", "a", "a", "b", "b"],
            "vendor": ["x", "x", "y", "x", "y"],
            "version": ["1", "2", "2", "2", "1"],
        },
        ["thing"],
        ["thing"] * 5,
    )
    assert held_out_rows(data, HoldOut("version", ("2",))) == ([0, 4], [1])


def test_leaving_out_one_after_another_leaves_out_each_designer_once(everything: Dataset) -> None:
    found = leave_one_out(everything)
    assert [asked.values for asked in found] == [
        ("noto", "noto-v1"),
        *(("twemoji",), ("emojione",), ("fluent",), ("fxemoji",), ("streamline",)),
    ]
    editions = leave_one_out(everything, "version")
    assert {asked.values[0] for asked in editions} == {
        *("noto", "noto-v1", "emojione", "emojione-monotone"),
        *("fluent", "fluent-flat", "fluent-high-contrast"),
    }


def test_test_pictures_that_look_like_training_ones_are_left_out() -> None:
    data = colliding()
    pixels = data.images.pixels.clone()  # type: ignore[attr-defined]
    columns = data.columns["style"]
    old, new = columns.index("noto"), columns.index("book")
    pixels[old] = (pixels[new].int() + 3).clamp(0, 255).to(torch.uint8)
    data = replace(data, images=TensorImages(pixels))
    given = {"protocol": "style", "hold_out": "noto"}
    kept = chosen(whole(data), "test", given)
    assert len(kept) == columns.count("noto") - 1
    assert len(chosen(whole(data), "test", {**given, "twins": True})) == columns.count("noto")
    assert str(kept) == "made:test[style noto]"


def test_data_with_splits_keep_them() -> None:
    data = colliding()
    halves = {
        "train": data.take(range(0, len(data), 2)),
        "test": data.take(range(1, len(data), 2)),
    }

    def load(split: str | None) -> Dataset:
        if split not in halves:
            raise UserError(f"no split {split}")
        return halves[split]

    given = {"protocol": "subtype", "hold_out": 2, "hold_out_seed": 1}
    train, seen, test = (chosen(load, side, given) for side in ("train", "seen", "test"))
    held = set(test.columns["concept"])
    assert len(held) == 2
    assert not held & {*train.columns["concept"], *seen.columns["concept"]}
    assert len(seen) + len(test) == len(halves["test"])
    assert len(train) < len(halves["train"])
    with pytest.raises(BadDataError, match="no side"):
        chosen(whole(data), "seen", given)


def test_lists_choose_by_whole_values_everywhere() -> None:
    some = load_dataset("icons", families=["noto"], concepts=["bird", "owl"], split="all")
    assert set(some.columns["concept"]) == {"bird", "owl"}
    assert set(some.columns["family"]) == {"noto"}
    rest = load_dataset("icons", exclude_families="noto", exclude_concepts="swan", split="val")
    assert "noto" not in rest.columns["family"]
    assert "noto-v1" in rest.columns["family"]
    assert "goose" in rest.columns["concept"]
    assert "swan" not in rest.columns["concept"]
    with pytest.raises(UnknownNameError, match="Did you mean swan"):
        load_dataset("icons", concepts=["swans"], split="val")
    with pytest.raises(BadDataError, match="needs a column family or style; there are none"):
        chosen(whole(replace(colliding(), columns={})), None, {"families": ["noto"]})


def test_a_written_split_is_read_back(tmp_path: Path) -> None:
    out = tmp_path / "split"
    words = [
        "data",
        "split",
        "icons",
        "--protocol",
        "version",
        "--hold-out",
        "noto",
        "-o",
        str(out),
    ]
    words += ["-d", "families=noto,noto-v1", "-d", "concepts=bird,owl,cat,red apple"]
    assert invoke(*words).exit_code == 0
    assert {path.name for path in out.iterdir()} == {"train", "test", "train.png", "test.png"}
    asked = {"protocol": "version", "hold_out": "noto", "families": ["noto", "noto-v1"]}
    asked["concepts"] = ["bird", "owl", "cat", "red apple"]
    for side in ("train", "test"):
        direct, back = (
            load_dataset("icons", split=side, **asked),
            load_dataset(str(out), split=side),
        )
        assert len(back) == len(direct) > 0
        assert set(look_at(back.images).hashes) == set(look_at(direct.images).hashes)
        for key in ("concept", "family", "version", "look_alikes"):
            told, read = (
                sorted(zip([data.classes[n] for n in data.labels], data.columns[key], strict=True))
                for data in (direct, back)
            )
            assert told == read
    assert "is there already" in invoke(*words).output


def test_models_of_the_zoo_know_which_icons_they_were_trained_on() -> None:
    known = read_seen(resolve("icons-resnet").local())
    data = load_dataset("icons", split="all", families="streamline,fxemoji")
    drawn = {}
    for label, groups in class_table().items():
        drawn |= split_groups(label, groups)
    trained = [drawn[code] == "train" for code in data.columns["codepoint"]]
    found = known.among(look_at(data.images).hashes)
    assert found["training"].tolist() == trained


def test_metadata_says_one_thing_of_a_picture(tmp_path: Path) -> None:
    file = tmp_path / "metadata.csv"
    file.write_text("file_name,style\ncat/a.png,ink\ncat/a.png,ink\n")
    assert read_facts(tmp_path, ["cat/a.png"]) == {"style": ("ink",)}
    file.write_text("file_name,style\ncat/a.png,ink\ncat/a.png,oil\n")
    with pytest.raises(BadDataError, match=r"two things of cat/a\.png"):
        read_facts(tmp_path, ["cat/a.png"])


def test_what_metadata_says_is_part_of_the_data(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    names = [f"{label}/{number}.png" for label in ("cat", "dog") for number in range(3)]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(chance.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(tmp_path / name)

    def loaded(columns: dict[str, list[str]]) -> Dataset:
        if columns:
            write_facts(tmp_path, names, columns)
        return load_dataset(str(tmp_path), split="all")

    pairs, alone = ["a", "a", "b", "b", "c", "c"], ["a", "b", "c", "d", "e", "f"]
    says = [{}, {"original": pairs}, {"original": alone}, {"style": pairs}]
    known = [loaded(columns).fingerprint for columns in says]
    assert len(set(known)) == len(says)
    assert loaded({"original": pairs}).fingerprint == known[1]


def test_metadata_names_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "cat" / "a.png")
    (tmp_path / "metadata.csv").write_text("name,style\na,b\n")
    with pytest.raises(BadDataError, match="file_name"):
        load_dataset(str(tmp_path))
    (tmp_path / "metadata.csv").write_text('file_name,style\ncat/a.png,"pen, ink"\n')
    assert load_dataset(str(tmp_path)).columns["style"] == ("pen, ink",)
