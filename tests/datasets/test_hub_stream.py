"""Hugging Face `datasets` as streams of local files: the same rows as read whole, in parts."""

from __future__ import annotations

import io
import json
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from stockpot.datasets.load import load_dataset
from stockpot.errors import BadDataError, BadParameterError, MissingDependencyError, UserError

NAMES = ["cat", "bee", "ant"]


def png(value: int) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(value).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def parquet(folder: Path, files: int = 4, each: int = 3) -> Path:
    features = {"picture": {"_type": "Image"}, "label": {"names": NAMES, "_type": "ClassLabel"}}
    facts = {"huggingface": json.dumps({"info": {"features": features}})}
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        rows = range(number * each, (number + 1) * each)
        cells = [{"bytes": png(row), "path": f"{row}.png"} for row in rows]
        table = pa.table({"picture": cells, "label": [row % 3 for row in rows]})
        name = f"test-{number:05d}-of-{files:05d}.parquet"
        pq.write_table(table.replace_schema_metadata(facts), folder / name)
    return folder


def rows(data: Any) -> list[tuple[bytes, int]]:
    pictures = [item.read_bytes() for item in data.images.items]
    return list(zip(pictures, data.labels.tolist(), strict=True))


@pytest.fixture
def library() -> Any:
    # By a module of it: the folder of these tests has the same name.
    pytest.importorskip("datasets.arrow_dataset")
    import datasets

    return datasets


def test_without_the_library_one_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingDependencyError, match=r"stockpot\[hub\]"):
        load_dataset("hub_stream", path=str(parquet(tmp_path)))


def test_a_stream_is_the_data_and_its_parts_make_the_whole(library: Any, tmp_path: Path) -> None:
    folder = parquet(tmp_path / "set")
    whole = load_dataset("hub_stream", path=str(folder))
    assert rows(whole) == [(png(row), row % 3) for row in range(12)]
    assert whole.classes == tuple(NAMES)
    assert whole.split == "test"
    assert len(load_dataset("hub_stream", path=str(folder), take=5)) == 5
    pieces = {item.path for item in whole.images.items}  # type: ignore[attr-defined]
    assert len(pieces) == 1  # on disk, not in memory
    for count in (2, 3, 5):
        parts = [
            rows(load_dataset("hub_stream", path=str(folder), shard=f"{index}/{count}"))
            for index in range(count)
        ]
        if count <= 4:  # whole files
            files = [rows(whole)[start : start + 3] for start in range(0, 12, 3)]
            assert parts == [list(chain(*files[index::count])) for index in range(count)]
        else:
            assert parts == [rows(whole)[index::count] for index in range(count)]


def test_json_arrow_and_class_folders(library: Any, tmp_path: Path) -> None:
    for row in range(6):
        file = tmp_path / "folders" / "test" / ("ant", "bee")[row % 2] / f"{row}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png(row))
    lines = [
        json.dumps({"image": f"folders/test/{('ant', 'bee')[row % 2]}/{row}.png", "label": name})
        for row, name in enumerate(["ant", "bee"] * 3)
    ]
    (tmp_path / "list.jsonl").write_text("\n".join(lines))
    listed = load_dataset("hub_stream", path=str(tmp_path / "list.jsonl"))
    assert rows(listed) == [(png(row), row % 2) for row in range(6)]
    assert listed.classes == ("ant", "bee")
    folders = load_dataset("hub_stream", path=str(tmp_path / "folders"))
    assert sorted(rows(folders)) == sorted(rows(listed))
    assert folders.classes == ("ant", "bee")
    made = library.Dataset.from_dict({"image": [png(row) for row in range(6)], "label": [0, 1] * 3})
    made.cast_column("image", library.Image()).save_to_disk(str(tmp_path / "saved"))
    saved = load_dataset("hub_stream", path=str(tmp_path / "saved"), classes=["ant", "bee"])
    assert rows(saved) == rows(listed)
    with pytest.raises(BadParameterError, match="Give classes="):
        load_dataset("hub_stream", path=str(tmp_path / "list.jsonl"), shard="0/2")


def test_what_cannot_be_streamed_is_said(library: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    with pytest.raises(UserError, match="cannot be streamed"):
        load_dataset("hub_stream", path=str(tmp_path / "bad.parquet"))
    pq.write_table(pa.table({"a": [1]}), tmp_path / "few.parquet")
    with pytest.raises(BadDataError, match="Name them with image="):
        load_dataset("hub_stream", path=str(tmp_path / "few.parquet"))
    with pytest.raises(UserError, match="no split of"):
        load_dataset("hub_stream", path=str(parquet(tmp_path / "set")), split="dev")
