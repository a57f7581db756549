"""The tasks of model merging, from small local copies with the columns that the hub has."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from stockpot.datasets import datasets
from stockpot.datasets.load import load_dataset
from stockpot.datasets.tasks.sets import TASK_SETS
from stockpot.errors import BadDataError, BadParameterError

CLASSES = {
    "sun397": 397, "stanford_cars": 196, "resisc45": 45, "eurosat": 10, "svhn": 10, "gtsrb": 43,
    "dtd": 47, "oxford_flowers102": 102, "pcam": 2, "fer2013": 7, "oxford_iiit_pet": 37,
    "stl10": 10, "cifar100": 100, "food101": 101, "emnist_letters": 26, "kmnist": 10,
    "rendered_sst2": 2,
}  # fmt: skip
TEMPLATES = {"sun397": 2, "stanford_cars": 8, "resisc45": 18, "eurosat": 3, "svhn": 1, "gtsrb": 3,
             "dtd": 8, "cifar100": 18}  # fmt: skip
STATED = {"stl10", "cifar100", "food101"}


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
    assert all("{}" in template for template in data.templates)
    assert len(set(data.templates)) == len(data.templates)
    if task in TEMPLATES:
        assert len(data.templates) == TEMPLATES[task]
    assert not any("_" in name for name in data.classes)


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
