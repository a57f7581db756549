"""The icons: what is embedded obeys its own rules, and the builder does what the docs say."""

from __future__ import annotations

import io
import json
import tarfile
from collections import defaultdict
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from stockpot.datasets.icons.concepts import class_table, read_table
from stockpot.datasets.icons.loader import by_tables, icons
from stockpot.datasets.icons.naming import bare, by_name, by_table
from stockpot.datasets.icons.render import is_blank, render, svg_text
from stockpot.datasets.icons.split import split_groups
from stockpot.datasets.icons.styles import FAMILIES, STYLES
from stockpot.datasets.load import load_dataset
from stockpot.errors import BadParameterError, UnknownNameError, UserError

PARQUET = Path(str(files("stockpot"))) / "zoo" / "icons.parquet"
PERMISSIVE = {"MIT", "Apache-2.0", "CC-BY-4.0"}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    found: list[dict[str, str]] = (
        by_tables(pq.read_table(PARQUET)).drop_columns("image").to_pylist()
    )
    return found


def test_embedded_file_is_small_permissive_and_attributed(rows: list[dict[str, str]]) -> None:
    assert PARQUET.stat().st_size <= 20_000_000
    assert {row["licence"] for row in rows} <= PERMISSIVE
    text = (PARQUET.parent / "ICONS_ATTRIBUTION.md").read_text()
    for family in {row["family"] for row in rows}:
        count = sum(row["family"] == family for row in rows)
        assert f"| {family} |" in text
        assert f"| {count:,} |" in text


def test_fifty_classes_each_with_all_splits(rows: list[dict[str, str]]) -> None:
    splits = defaultdict(set)
    for row in rows:
        splits[row["class"]].add(row["split"])
    assert len(splits) == 50
    assert all(found - {"aside"} == {"train", "val", "test"} for found in splits.values())


def test_a_concept_and_its_look_alikes_are_in_one_split(rows: list[dict[str, str]]) -> None:
    splits = defaultdict(set)
    for row in rows:
        splits[row["codepoint"]] |= {row["split"]} - {"aside"}
    for groups in class_table().values():
        for group in groups:
            found = {split for concept in group for split in splits[concept.codepoint]}
            assert len(found) <= 1, group


def test_new_test_pictures_were_never_trained_on(rows: list[dict[str, str]]) -> None:
    """The zoo learned from the draw as it is before look-alikes are brought together."""
    drawn = {}
    for label, groups in class_table().items():
        drawn |= split_groups(label, groups)
    for row in rows:
        if row["split"] == "test":
            assert drawn[row["codepoint"]] == "test"
        if drawn[row["codepoint"]] == "train":
            assert row["split"] == "train"


def test_all_hours_of_the_clock_are_on_one_side(rows: list[dict[str, str]]) -> None:
    hours = {row["split"] for row in rows if row["concept"].endswith(("o’clock", "-thirty"))}
    assert hours == {"train"}


def test_licences_are_those_of_the_drawings(rows: list[dict[str, str]]) -> None:
    assert {row["licence"] for row in rows if row["family"] == "fxemoji"} == {"CC-BY-4.0"}


def test_shares_are_near_seventy_ten_twenty(rows: list[dict[str, str]]) -> None:
    share = {
        s: sum(row["split"] == s for row in rows) / len(rows) for s in ("train", "val", "test")
    }
    assert share["train"] == pytest.approx(0.7, abs=0.03)
    assert share["val"] == pytest.approx(0.1, abs=0.03)
    assert share["test"] == pytest.approx(0.2, abs=0.03)


def test_rows_follow_the_tables(rows: list[dict[str, str]]) -> None:
    by_style = {style.name: style for style in STYLES}
    listed = {
        concept.codepoint: (label, concept.name)
        for label, groups in class_table().items()
        for group in groups
        for concept in group
    }
    rejected = {(style, code) for style, codes in read_table("rejected").items() for code in codes}
    for row in rows:
        style = by_style[row["style"]]
        assert (row["family"], row["licence"]) == (style.family, style.licence)
        assert listed[row["codepoint"]] == (row["class"], row["concept"])
        assert (row["style"], row["codepoint"]) not in rejected
    pairs = [(row["style"], row["codepoint"]) for row in rows]
    assert len(pairs) == len(set(pairs))
    assert not any("1f3f" in code and code[-1] in "bcdef" for _, code in pairs), "skin tones"


def test_no_two_pictures_of_a_style_are_equal_and_none_is_blank() -> None:
    data = icons(split="all")
    pixels = data.images.pixels.numpy()  # type: ignore[attr-defined]
    assert pixels.shape[1:] == (3, 64, 64)
    seen = {
        (style, row.tobytes()) for style, row in zip(data.columns["style"], pixels, strict=True)
    }
    assert len(seen) == len(data)
    ink = (pixels.min(axis=1) < 236).mean(axis=(1, 2))
    assert ink.min() > 0.05
    corners = pixels[:, :, [0, 0, -1, -1], [0, -1, 0, -1]].reshape(len(pixels), -1)
    assert (corners == 255).all(axis=1).mean() > 0.6, "drawn on white"


def test_loader_filters_by_exact_values() -> None:
    test = icons(split="val")
    assert set(test.columns["split"]) == {"val"}
    assert len(test.classes) == 50
    noto = icons(split="val", family="noto")
    assert set(noto.columns["style"]) == {"noto"}
    rest = icons(split="val", exclude_family="noto")
    assert len(noto) + len(rest) == len(test)
    assert noto.classes == rest.classes == test.classes
    assert len({test.fingerprint, noto.fingerprint, rest.fingerprint}) == 3
    assert set(icons(split="val", style="fluent-flat").columns["family"]) == {"fluent"}


def test_loader_explains_what_it_cannot_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOCKPOT_CACHE", str(tmp_path))
    with pytest.raises(UnknownNameError, match="Did you mean twemoji"):
        icons(family="twemojis")
    with pytest.raises(BadParameterError, match="Did you mean train"):
        load_dataset("icons", split="trian")
    with pytest.raises(BadParameterError, match="no picture"):
        icons(family="noto", exclude_family="noto")
    with pytest.raises(UserError, match="--share-alike"):
        icons(family="openmoji")


def test_split_is_decided_by_the_table_and_the_seed_alone() -> None:
    for label, groups in class_table().items():
        first = split_groups(label, groups)
        assert first == split_groups(label, list(reversed(groups)))
        assert set(first.values()) == {"train", "val", "test"}
    label, groups = next(iter(class_table().items()))
    assert split_groups(label, groups, seed=1) != split_groups(label, groups)


def test_names_match_whole_and_never_by_part() -> None:
    aliases, sibling, cldr = {"old-bear": "1f43b"}, {"fox": "1f98a"}, {"hot dog": "1f32d"}
    found = by_name(
        ["bear", "old-bear", "fox", "hot-dog", "dog", "fox-1", "fox-2"], aliases, sibling, cldr
    )
    assert found == {"1f43b": "old-bear", "1f98a": "fox", "1f32d": "hot-dog"}
    assert by_name(["fox-1", "fox-2"], {}, sibling, {}) == {"1f98a": "fox-1"}
    assert by_table({"2764-fe0f": "heart", "1f600": "gone"}, ["heart"]) == {"2764": "heart"}
    assert bare("1F441-FE0F-200D-1F5E8-FE0F") == "1f441-200d-1f5e8"


def test_families_hold_whole_styles() -> None:
    for name in ("fluent", "emojione"):
        assert len([style for style in STYLES if style.family == name]) == 3
    assert len(FAMILIES) == 8


def test_rendering_is_centred_on_white() -> None:
    pytest.importorskip("resvg_py")
    icon = {"body": '<path d="M0 0h20v10H0z" fill="currentColor"/>', "width": 20, "height": 10}
    pixels = np.asarray(render(svg_text({"icons": {"bar": icon}}, "bar"), 40))
    assert pixels.shape == (40, 40, 3)
    assert (pixels[11:29] == 0).all()
    assert (pixels[:9] == 255).all()
    assert (pixels[31:] == 255).all()
    assert is_blank(Image.new("RGB", (8, 8), (250, 250, 250)))
    assert not is_blank(Image.fromarray(pixels))


def test_the_second_renderer_steps_in(monkeypatch: pytest.MonkeyPatch) -> None:
    from stockpot.datasets.icons import render as module

    def fails(svg: str, size: int) -> Image.Image:
        raise ValueError("cannot draw this")

    monkeypatch.setattr(module, "_with_resvg", fails)
    monkeypatch.setattr(module, "_with_cairo", lambda svg, size: Image.new("RGBA", (4, 4), "red"))
    svg = svg_text({"icons": {"a": {"body": ""}}}, "a")
    assert np.asarray(render(svg, 4))[0, 0].tolist() == [255, 0, 0]


def test_build_from_small_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("resvg_py")
    from stockpot.datasets.icons import build as module

    square = '<path d="M2 2h12v12H2z" fill="{}"/>'
    drawings = {
        "bird": {"body": square.format("red")},
        "penguin": {"body": square.format("red")},  # the same drawing under a second name
        "owl": {"body": '<path d="M0 0h1v1H0z" fill="#fefefe"/>'},  # nothing to see
        "duck": {"body": square.format("blue")},
    }
    chars = {"1f426": "bird", "1f427": "penguin", "1f989": "owl", "1f986": "duck"}
    downloads = tmp_path / "cache" / "downloads"
    downloads.mkdir(parents=True)

    def pack(name: str, members: dict[str, object]) -> None:
        with tarfile.open(downloads / name, "w:gz") as tar:
            for member, value in members.items():
                data = json.dumps(value).encode()
                entry = tarfile.TarInfo(f"package/{member}")
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))

    twemoji = next(style for style in STYLES if style.name == "twemoji")
    pack(twemoji.package.file_name, {"icons.json": {"icons": drawings}, "chars.json": chars})
    names = {
        "".join(chr(int(part, 16)) for part in concept.codepoint.split("-")): {"name": concept.name}
        for groups in class_table().values()
        for group in groups
        for concept in group
    }
    pack(module.CLDR.file_name, {"data-by-emoji.json": names})
    monkeypatch.setenv("STOCKPOT_CACHE", str(tmp_path / "cache"))
    summary = module.build(tmp_path / "out.parquet", size=16, families=["twemoji"])
    assert summary.images == 2
    assert summary.blank == ["twemoji:owl"]
    assert summary.repeated == ["twemoji:penguin = bird"]
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == list(module.COLUMNS)
    assert table["concept"].to_pylist() == ["bird", "duck"]
    picture = np.asarray(Image.open(io.BytesIO(table["image"][1].as_py())).convert("RGB"))
    assert picture[8, 8].tolist() == [0, 0, 255]
    assert picture[0, 0].tolist() == [255, 255, 255]


def test_chosen_classes_are_numbered_in_their_order() -> None:
    every, few = icons(split="val"), icons(split="val", classes=("heart", "clock"))
    assert few.classes == ("heart", "clock")
    for number, name in enumerate(few.classes):
        whole = every.take((every.labels == every.classes.index(name)).nonzero()[:, 0])
        part = few.take((few.labels == number).nonzero()[:, 0])
        assert whole.columns == part.columns
    with pytest.raises(UnknownNameError, match="heart"):
        icons(classes=("hart",))
