"""The ImageNet family on tiny folders of the public layouts, traps included."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.datasets.natural.classes import (
    answers,
    categories,
    imagenet_classes,
    imagenet_names,
    objectnet_classes,
    subset,
    word_places,
)
from stockpot.errors import BadDataError, UserError

TENCH, GOLDFISH, HEN, GOLDEN = "n01440764", "n01443537", "n01514859", "n02099601"


def picture(colour: int = 90, size: int = 12) -> Image.Image:
    return Image.new("RGB", (size, size), (colour, colour // 2, 200))


def make(root: Path, files: Mapping[str, int]) -> Path:
    for name, colour in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(colour).save(path)
    return root


def labelled(data: Dataset) -> dict[str, int]:
    return dict(zip(data.columns["file"], data.labels.tolist(), strict=True))


def test_the_thousand_are_where_every_model_has_them() -> None:
    names = imagenet_names()
    assert len(names) == len({name.casefold() for name in names}) == 1000
    known = {0: "tench", 1: "goldfish", 207: "golden retriever", 281: "tabby", 404: "airliner"}
    known |= {985: "daisy", 999: "toilet tissue", 134: "crane bird", 517: "construction crane"}
    assert {place: names[place] for place in known} == known
    ids = [each.wnid for each in imagenet_classes()]
    assert ids == sorted(set(ids))


def test_the_derived_sets_have_the_sizes_of_their_papers() -> None:
    assert len(subset("r")) == len(subset("a")) == 200
    assert len(set(subset("r")) & set(subset("a"))) == 86
    assert len(objectnet_classes()) == 113
    places = [place for each in objectnet_classes() for place in each.places]
    assert len(places) == len(set(places)) == 125
    assert len(categories()) == 16
    assert sum(len(each.places) for each in categories()) == 207
    clock = next(each for each in objectnet_classes() if each.folder == "alarm_clock")
    assert [imagenet_names()[place] for place in clock.places] == ["analog clock", "digital clock"]


def test_words_that_mean_two_classes_mean_none() -> None:
    assert "crane" not in word_places()
    assert word_places()["maillot"] == 638  # its only word; 639 is the tank suit
    assert word_places()["crane bird"] == 134
    assert word_places()["tinca tinca"] == word_places()["tench, tinca tinca"] == 0
    assert answers(("tench", "goldfish")) == ((0,), (1,))
    assert answers(("ant", "bee", "no such thing")) is None


def test_imagenet_val_from_class_folders_keeps_all_classes(tmp_path: Path) -> None:
    make(tmp_path, {f"val/{GOLDEN}/ILSVRC2012_val_00000002.JPEG": 10, f"val/{HEN}/a.JPEG": 20})
    data = load_dataset("imagenet", path=str(tmp_path))
    assert len(data.classes) == 1000
    assert sorted(data.labels.tolist()) == [8, 207]  # though the folders are the 1st and 2nd
    assert load_dataset("imagenet", path=str(tmp_path / "val")).fingerprint == data.fingerprint
    above = make(tmp_path / "suite", {f"imagenet/val_in_folder/{HEN}/a.JPEG": 20})
    assert load_dataset("imagenet", path=str(above)).labels.tolist() == [8]


def test_flat_validation_images_take_ids_from_a_file(tmp_path: Path) -> None:
    flat = {f"val/ILSVRC2012_val_0000000{n}.JPEG": 10 * n for n in (1, 2, 3)}
    make(tmp_path, flat)
    with pytest.raises(BadDataError, match="labels=FILE"):
        load_dataset("imagenet", path=str(tmp_path))
    lines = tmp_path / "synsets.txt"
    lines.write_text(f"{HEN}\n{TENCH}\n{GOLDEN}\n")
    expected = [8, 0, 207]
    assert load_dataset("imagenet", path=str(tmp_path), labels=str(lines)).labels.tolist() == (
        expected
    )
    solution = tmp_path / "LOC_val_solution.csv"
    with solution.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["ImageId", "PredictionString"])
        for name, wnid in zip(flat, (HEN, TENCH, GOLDEN), strict=True):
            table.writerow([Path(name).stem, f"{wnid} 111 108 441 193"])
    by_table = load_dataset("imagenet", path=str(tmp_path), labels=str(solution))
    assert by_table.labels.tolist() == expected
    lines.write_text("490\n361\n171\n")  # the development kit's own numbers
    with pytest.raises(BadDataError, match="another order"):
        load_dataset("imagenet", path=str(tmp_path), labels=str(lines))
    lines.write_text(f"{HEN}\n")
    with pytest.raises(BadDataError, match="1 lines for 3 images"):
        load_dataset("imagenet", path=str(tmp_path), labels=str(lines))


def test_v2_folders_are_numbers_not_words(tmp_path: Path) -> None:
    folder = tmp_path / "imagenetv2-matched-frequency-format-val"
    make(folder, {f"{number}/x.jpeg": number % 200 for number in (0, 2, 10, 100, 999)})
    data = load_dataset("imagenet_v2", path=str(folder))
    assert labelled(data) == {f"{number}/x.jpeg": number for number in (0, 2, 10, 100, 999)}
    assert load_dataset("imagenet_v2", path=str(tmp_path)).fingerprint == data.fingerprint
    with pytest.raises(UserError):
        load_dataset("imagenet_v2", path=str(tmp_path), version="top-images")


@pytest.mark.parametrize(("name", "which"), [("imagenet_r", "r"), ("imagenet_a", "a")])
def test_two_hundred_classes_are_numbered_within_the_set(
    tmp_path: Path, name: str, which: str
) -> None:
    chosen = [subset(which)[number] for number in (0, 7, 199)]
    folder = tmp_path / name.replace("_", "-")
    make(folder, {f"{imagenet_classes()[place].wnid}/a.jpg": 9 for place in chosen})
    data = load_dataset(name, path=str(tmp_path))
    assert data.labels.tolist() == [0, 7, 199]
    assert len(data.classes) == 200
    assert [data.classes[label] for label in data.labels] == [imagenet_names()[p] for p in chosen]


def test_sketch_and_stylized(tmp_path: Path) -> None:
    make(tmp_path, {f"sketch/{HEN}/s.JPEG": 5, f"stylized-imagenet/val/{GOLDEN}/s.JPEG": 6})
    assert load_dataset("imagenet_sketch", path=str(tmp_path)).labels.tolist() == [8]
    assert load_dataset("stylized_imagenet", path=str(tmp_path)).labels.tolist() == [207]


def test_objectnet_loses_its_border_and_the_classes_that_imagenet_lacks(tmp_path: Path) -> None:
    inside = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    red = np.zeros((22, 32, 3), dtype=np.uint8)
    red[:, :, 0] = 255
    red[1:-1, 1:-1] = inside
    for folder in ("alarm_clock", "air_freshener"):  # the second is none of the 113
        (tmp_path / "objectnet-1.0" / "images" / folder).mkdir(parents=True)
        Image.fromarray(red).save(tmp_path / "objectnet-1.0" / "images" / folder / "x.png")
    cut = load_dataset("objectnet", path=str(tmp_path))
    assert len(cut) == 1
    assert cut.classes[cut.labels[0]] == "alarm clock"
    assert len(cut.classes) == 113
    shown = next(cut.batches()).images[0].permute(1, 2, 0).numpy()
    assert np.array_equal(shown, inside[1:-1, 1:-1])
    one = load_dataset("objectnet", path=str(tmp_path / "objectnet-1.0"), border=1)
    assert np.array_equal(next(one.batches()).images[0].permute(1, 2, 0).numpy(), inside)
    assert one.fingerprint != cut.fingerprint
    assert len(cut.take([0]).limited(1)) == 1
    with pytest.raises(UserError, match="border"):
        load_dataset("objectnet", path=str(tmp_path), border=-1)


def test_real_goes_by_the_number_in_the_name_and_skips_empty_labels(tmp_path: Path) -> None:
    # By class folder the order of the files is 3, 1, 2, 4: not that of the labels' file.
    files = {
        f"val/{TENCH}/ILSVRC2012_val_00000003.JPEG": 30,
        f"val/{GOLDFISH}/ILSVRC2012_val_00000001.JPEG": 10,
        f"val/{HEN}/ILSVRC2012_val_00000002.JPEG": 20,
        f"val/{GOLDEN}/ILSVRC2012_val_00000004.JPEG": 40,
    }
    make(tmp_path, files)
    (tmp_path / "real.json").write_text(json.dumps([[5, 1], [], [7, 9], [207]]))
    data = load_dataset("imagenet_real", path=str(tmp_path))
    rows = {
        Path(file).stem[-1]: (label, right)
        for file, label, right in zip(
            data.columns["file"], data.labels.tolist(), data.columns["accepted"], strict=True
        )
    }
    assert rows == {"1": (1, "5 1"), "3": (7, "7 9"), "4": (207, "207")}
    (tmp_path / "real.json").unlink()
    with pytest.raises(BadDataError, match=r"real\.json"):
        load_dataset("imagenet_real", path=str(tmp_path))


def test_real_refuses_files_without_numbers(tmp_path: Path) -> None:
    make(tmp_path, {f"val/{HEN}/hen.JPEG": 1})
    labels = tmp_path / "labels.json"
    labels.write_text("[[1]]")
    with pytest.raises(BadDataError, match="ILSVRC2012_val_00000001"):
        load_dataset("imagenet_real", path=str(tmp_path), labels=str(labels))
    labels.write_text('{"a": 1}')
    with pytest.raises(BadDataError, match="one list"):
        load_dataset("imagenet_real", path=str(tmp_path), labels=str(labels))


def test_cue_conflict_reads_both_cues(tmp_path: Path) -> None:
    names = ("bear/bear1-bicycle2.png", "bear/bear3-bear1.png", "cat/0001_cat10-elephant3.png")
    make(tmp_path / "cue-conflict", dict.fromkeys(names, 3))
    data = load_dataset("cue_conflict", path=str(tmp_path))
    assert data.columns["shape"] == ("bear", "bear", "cat")
    assert data.columns["texture"] == ("bicycle", "bear", "elephant")
    assert data.columns["shape_source"] == ("bear1", "bear3", "cat10")
    assert data.columns["texture_source"] == ("bicycle2", "bear1", "elephant3")
    assert [data.classes[label] for label in data.labels] == ["bear", "bear", "cat"]
    make(tmp_path / "cue-conflict", {"cat/cat.png": 4})
    with pytest.raises(BadDataError, match="bear1-bicycle2"):
        load_dataset("cue_conflict", path=str(tmp_path))


def hub_file(path: Path, labels: list[object], column: str) -> str:
    buffer = io.BytesIO()
    picture().save(buffer, "PNG")
    cells = [{"bytes": buffer.getvalue(), "path": None}] * len(labels)
    pq.write_table(pa.table({"image": cells, column: labels}), path)
    return str(path)


def test_hub_data_may_name_ids_words_or_numbers(tmp_path: Path) -> None:
    first, last = subset("r")[0], subset("r")[199]
    ids = [imagenet_classes()[place].wnid for place in (last, first)]
    words = [imagenet_classes()[place].words for place in (last, first)]
    for labels in (ids, words, [last, first], [199, 0]):
        path = hub_file(tmp_path / "test.parquet", list(labels), "wnid")
        data = load_dataset("imagenet_r", path=path, label="wnid")
        assert data.labels.tolist() == [199, 0], labels
        assert len(data.classes) == 200
    path = hub_file(tmp_path / "test.parquet", ["sofa", "no such thing"], "label")
    with pytest.raises(BadDataError, match="WordNet ids"):
        load_dataset("imagenet_r", path=path)


def test_hub_objectnet_leaves_further_classes_aside(tmp_path: Path) -> None:
    path = hub_file(tmp_path / "test.parquet", ["banana", "air_freshener", "Band Aid"], "label")
    data = load_dataset("objectnet", path=path, border=0)
    assert [data.classes[label] for label in data.labels] == ["banana", "band aid"]


def test_a_folder_of_something_else_is_named(tmp_path: Path) -> None:
    make(tmp_path, {"dogs/rex.png": 1})
    with pytest.raises(BadDataError, match="imagenet-r"):
        load_dataset("imagenet_r", path=str(tmp_path))


def test_pictures_reach_a_model_through_its_own_fit(tmp_path: Path) -> None:
    make(tmp_path, {"objectnet-1.0/images/banana/a.png": 50})
    data = load_dataset("objectnet", path=str(tmp_path))
    batch = next(data.batches(8, lambda found: found.resize((4, 4))))
    assert batch.images.shape == (1, 3, 4, 4)
    assert batch.images.dtype == torch.uint8
