"""Sets after ImageNet-C in their public layouts, read by a rule that is perfect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from imagenet_suite import reader, save
from stockpot.datasets.load import load_dataset
from stockpot.datasets.natural.classes import imagenet_classes, objectnet_classes, superclasses
from stockpot.datasets.natural.later.imagenet_x import FACTORS
from stockpot.errors import UserError
from stockpot.measure.measurement import Context
from stockpot.measure.shift.factors import factors
from stockpot.measure.shift.surface import surface


def score(found, metric: str, **condition):
    matching = [
        s.value
        for s in found.scores
        if s.metric == metric and condition.items() <= s.condition.items()
    ]
    assert len(matching) == 1, (metric, condition)
    return matching[0]


@pytest.fixture
def annotated(tmp_path: Path) -> Path:
    """Eight pictures of eight classes; the last is a prototype and has no place in the scores."""
    lines = []
    told = ["pose", "pose", "pose", "background", "background", "style", "style", "style"]
    for place, factor in enumerate(told):
        name = f"ILSVRC2012_val_{place:08d}.JPEG"
        save(tmp_path / "imagenet" / "val" / imagenet_classes()[place].wnid / name, place)
        entry = {each: int(each == factor) for each in FACTORS}
        lines.append(json.dumps({"file_name": name, "class": place, **entry, "one_word": "odd"}))
    folder = tmp_path / "annotations"
    folder.mkdir()
    (folder / "imagenet_x_val_top_factor.jsonl").write_text("\n".join(lines))
    (folder / "prototypical_paths.csv").write_text("file_name\nILSVRC2012_val_00000007.JPEG\n")
    return tmp_path


def test_factors_of_imagenet_x(annotated: Path) -> None:
    """By hand: of 3 poses 2 wrong, of 2 backgrounds 1, of 2 styles none; 3 of 7 in all."""
    options = {"path": str(annotated), "annotations": str(annotated / "annotations")}
    data = load_dataset("imagenet_x", **options)
    assert data.columns["factors"] == ("pose",) * 3 + ("background",) * 2 + ("style",) * 2
    found = factors(reader(wrong=(0, 1, 3)), data, Context())
    assert score(found, "accuracy") == pytest.approx(4 / 7)
    assert score(found, "factor_accuracy", factor="pose") == pytest.approx(1 / 3)
    assert score(found, "error_ratio", factor="pose") == pytest.approx((2 / 3) / (3 / 7))
    assert score(found, "error_ratio", factor="style") == 0
    assert score(found, "factor_gap", factor="pose") == pytest.approx(3 / 4 - 1 / 3)
    assert score(found, "worst_factor_accuracy", factor="pose") == pytest.approx(1 / 3)
    everything = load_dataset("imagenet_x", **options, prototypes=True)
    assert len(everything) == 8


def test_annotations_that_are_not_there_are_named(annotated: Path) -> None:
    with pytest.raises(UserError, match=r"multi_factor\.jsonl is not there"):
        load_dataset(
            "imagenet_x",
            path=str(annotated),
            annotations=str(annotated / "annotations"),
            factors="multi",
        )
    (annotated / "annotations" / "imagenet_x_val_multi_factor.jsonl").write_text('{"pose": 1}\n')
    with pytest.raises(UserError, match="jsonl:1: expected file_name"):
        load_dataset(
            "imagenet_x",
            path=str(annotated),
            annotations=str(annotated / "annotations"),
            factors="multi",
        )


def test_imagenet_d_is_objectnets_classes_under_other_names(tmp_path: Path) -> None:
    known = {each.folder: (row, each.places) for row, each in enumerate(objectnet_classes())}
    wanted = {"chair": "chair", "teddy_bear": "stuffed_animal", "t_shirt": "t-shirt"}
    for attribute, folder in zip(("background", "texture", "material"), wanted, strict=True):
        place = known[wanted[folder]][1][-1]
        save(tmp_path / "ImageNet-D" / attribute / folder / "0.png", place)
    save(tmp_path / "ImageNet-D" / "questions" / "chair" / "0.png", 1)
    data = load_dataset("imagenet_d", path=str(tmp_path))
    assert data.columns["attribute"] == ("background", "material", "texture")
    labels = [known[name][0] for name in ("chair", "t-shirt", "stuffed_animal")]
    assert data.labels.tolist() == labels
    found = surface(reader(), data, Context(), by="attribute")
    assert score(found, "accuracy") == 1
    one = load_dataset("imagenet_d", path=str(tmp_path / "ImageNet-D"), attribute="texture")
    assert len(one) == 1


def test_cns_bench_has_scales(tmp_path: Path) -> None:
    for shift, scale in (("in_snow", 0), ("in_snow", 1500), ("painting_style", 2500)):
        file = tmp_path / shift / "022_bald eagle" / f"seed_0034_scale_{scale:04d}.jpg"
        save(file, 22 if scale < 2000 else 23)
    data = load_dataset("cns_bench", path=str(tmp_path))
    assert data.columns["scale"] == ("0", "1.5", "2.5")
    assert data.labels.tolist() == [22, 22, 22]
    found = surface(reader(), data, Context(), by="scale")
    assert score(found, "group_accuracy", group="1.5") == 1
    assert score(found, "group_accuracy", group="2.5") == 0
    assert len(set(data.columns["original"])) == 2
    assert len(load_dataset("cns_bench", path=str(tmp_path), shift="in_snow")) == 2
    with pytest.raises(UserError, match="expected in_rain/022_bald eagle/seed"):
        load_dataset("cns_bench", path=str(tmp_path), shift="in_rain")


def test_laion_c_is_answered_by_means(tmp_path: Path) -> None:
    known = {each.folder: each.places for each in superclasses()}
    assert len(known) == 16
    assert [len(known[name]) for name in ("dog", "bird", "fish", "fruit")] == [109, 49, 12, 6]
    for level, folder in ((1, "fish"), (5, "car_truck")):
        place = tmp_path / "glitched" / f"intensity_level_{level}" / folder / "a.png"
        save(place, known[folder][0])
    data = load_dataset("laion_c", path=str(tmp_path))
    assert data.columns["severity"] == ("1", "5")
    found = surface(reader(), data, Context(), by="severity", class_space="subset")
    assert score(found, "accuracy") == 1
    assert "mean probability" in found.class_space
    assert len(load_dataset("laion_c", path=str(tmp_path), level=5)) == 1
    assert torch.equal(load_dataset("laion_c", path=str(tmp_path), level=1).labels, data.labels[:1])
