"""The tasks of model merging, from small local copies with the columns that the hub has."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from stockpot.datasets import datasets
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.datasets.tasks.sets import TASK_SETS
from stockpot.datasets.words.conventions import fusionbench_words, words_of
from stockpot.errors import BadDataError, BadParameterError

CLASSES = {
    "sun397": 397, "stanford_cars": 196, "resisc45": 45, "eurosat": 10, "svhn": 10, "gtsrb": 43,
    "dtd": 47, "oxford_flowers102": 102, "pcam": 2, "fer2013": 7, "oxford_iiit_pet": 37,
    "stl10": 10, "cifar100": 100, "food101": 101, "emnist_letters": 26, "kmnist": 10,
    "rendered_sst2": 2,
}  # fmt: skip
PUBLISHED = {
    "sun397": "ce2c1e37b778a37f25306d0231c34e3d",
    "stanford_cars": "a573d05e38c4c7cfc28e1602380602a4",
    "resisc45": "880879bfd5e52bef94431365d2c59a4d",
    "eurosat": "3cb3fca35db955551bd0c41461dc08ba",
    "svhn": "49fe4ff684ed839113282d65c306ffde",
    "gtsrb": "5ca16de705737979eb8afcbe8e51e5ca",
    "mnist": "49fe4ff684ed839113282d65c306ffde",
    "dtd": "c6025e3e999e843c1536c5ac17e80d6b",
    "oxford_flowers102": "d5b2ad719f9e37e89793939bd06c0405",
    "pcam": "de43b57aadb38ff4a79d75af6a36f763",
    "fer2013": "4fb62db5ba418a45170b903a40d8ecde",
    "oxford_iiit_pet": "8efbc879cbcb5b69b21b181b87811f5e",
    "stl10": "c819580195e967b23fcd5e861737f5be",
    "cifar100": "43cca3dbd593da4e938a7fce91c3af6a",
    "cifar10": "fd9970cc21b980214f6beff3f2d5d1b0",
    "food101": "5e4f758f963e781fd5a4d19c56072191",
    "fashion_mnist": "eef8bf819be9abf349b51963fe11b3bf",
    "emnist_letters": "caa70e25eec2cf6c68689a0fce707c5b",
    "kmnist": "2c5fe398043a3154ecb85c6e4eb4d141",
    "rendered_sst2": "36c4c45461f7833193e3c4b2133200d0",
}
"""The first half of the sha256 of every prompt of every class, as JSON lists in the order of the
labels: what FusionBench 0.2.33 says (`get_classnames_and_templates`, each template called with
each name)."""
STATED = {"stl10", "cifar100", "food101"}


def heard(data: Dataset) -> str:
    text = json.dumps(words_of(data).prompts, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def picture(value: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), value, dtype=np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def copy_of(task: str, folder: Path, labels: list[int], split: str = "test") -> Path:
    """A parquet folder as the hub's: pictures as structs, labels as numbers, names as metadata."""
    image, label = ("jpg", "cls") if task == "fer2013" else ("image", "label")
    table = pa.table(
        {
            image: [{"bytes": picture(9 * n), "path": None} for n in range(len(labels))],
            label: pa.array(labels, pa.int64()),
        }
    )
    if task in STATED:
        names = [f"class_{number}" for number in range(CLASSES[task])]
        features = {image: {"_type": "Image"}, label: {"names": names, "_type": "ClassLabel"}}
        facts = json.dumps({"info": {"features": features}})
        table = table.replace_schema_metadata({"huggingface": facts})
    (folder / "data").mkdir(parents=True)
    pq.write_table(table, folder / "data" / f"{split}-00000-of-00001.parquet")
    return folder


@pytest.mark.parametrize("task", CLASSES)
def test_a_small_copy_has_the_classes_and_prompts_of_the_task(task: str, tmp_path: Path) -> None:
    labels = [0, CLASSES[task] - 1, 0]
    split = "validation" if task == "food101" else "test"
    data = load_dataset(task, path=str(copy_of(task, tmp_path / "copy", labels, split)))
    assert (data.name, data.split) == (task, "test")
    assert len(data.classes) == len(set(data.classes)) == CLASSES[task]
    assert data.labels.tolist() == labels
    assert heard(data) == PUBLISHED[task]
    assert not any("_" in name for name in data.classes)


@pytest.mark.parametrize("task", sorted(set(TASK_SETS["tall20"]) - set(CLASSES)))
def test_sets_that_are_fetched_by_name_say_what_is_published(task: str, little_sets: Path) -> None:
    assert heard(load_dataset(task)) == PUBLISHED[task]


def test_some_prompts_as_they_are_published() -> None:
    said = {task: set(sum(fusionbench_words(task).prompts, ())) for task in TASK_SETS["tall20"]}
    assert "a centered satellite photo of annual crop land." in said["eurosat"]
    sign = "red and white circle 20 kph speed limit"
    assert f'a zoomed in photo of a "{sign}" traffic sign.' in said["gtsrb"]
    assert "a photo of a american_bulldog, a type of pet." in said["oxford_iiit_pet"]
    assert "a photo of the T - shirt / top." in said["fashion_mnist"]
    assert 'a photo of the number: "7".' in said["mnist"]


def test_sets_hold_registered_tasks_and_grow() -> None:
    assert [len(TASK_SETS[name]) for name in ("zoo5", "ta8", "tall14", "tall20")] == [5, 8, 14, 20]
    assert TASK_SETS["tall20"][:14] == TASK_SETS["tall14"]
    assert TASK_SETS["tall14"][:8] == TASK_SETS["ta8"]
    for tasks in TASK_SETS.values():
        assert set(tasks) <= set(datasets.names())


def test_the_wrong_data_is_refused(tmp_path: Path) -> None:
    folder = copy_of("gtsrb", tmp_path / "copy", [0, 400])
    with pytest.raises(BadDataError, match="expected 43 classes"):
        load_dataset("gtsrb", path=str(folder))
    with pytest.raises(BadParameterError, match=r"gtsrb: split: .*Did you mean test"):
        load_dataset("gtsrb", split="tset", path=str(folder))


def published_dtd(folder: Path, *, lists: bool) -> Path:
    """The layout of DTD's archive with two of its classes; each picture is of one grey level."""
    files = [
        f"{name}/{name}_{number:04d}.jpg" for name in ("banded", "zigzagged") for number in range(3)
    ]
    for level, file in enumerate(files):
        place = folder / "images" / file
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (12, 8), (40 * level,) * 3).save(place)
    if lists:
        (folder / "labels").mkdir()
        for name, own in (("train1", files[::3]), ("val1", files[1::3]), ("test1", files[2::3])):
            (folder / "labels" / f"{name}.txt").write_text("\n".join(own) + "\n")
    return folder


def test_textures_are_read_as_their_authors_publish_them(tmp_path: Path) -> None:
    folder = published_dtd(tmp_path / "listed", lists=True)
    train, test = (
        load_dataset("dtd", split=split, path=str(folder)) for split in ("train", "test")
    )
    assert test.columns["file"] == ("banded/banded_0002.jpg", "zigzagged/zigzagged_0002.jpg")
    assert [test.classes[label] for label in test.labels] == ["banded", "zigzagged"]
    assert {str(file)[-8:-4] for file in train.columns["file"]} == {"0000", "0001"}
    assert test.templates == fusionbench_words("dtd").templates
    assert len(load_dataset("dtd", path=str(published_dtd(tmp_path / "bare", lists=False)))) == 6


def test_a_folder_of_textures_without_lists_has_no_training_split(tmp_path: Path) -> None:
    folder = published_dtd(tmp_path, lists=False)
    with pytest.raises(BadDataError, match=r"train1\.txt"):
        load_dataset("dtd", split="train", path=str(folder))
    (folder / "images" / "cats").mkdir()
    Image.new("RGB", (8, 8)).save(folder / "images" / "cats" / "a.png")
    with pytest.raises(BadDataError, match="cats is no class of DTD"):
        load_dataset("dtd", path=str(folder))
