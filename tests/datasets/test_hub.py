"""Parquet files as the hub writes them, read without its library; names and paths resolved."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from stockpot.datasets.hub import hub
from stockpot.datasets.load import load_dataset
from stockpot.errors import (
    BadDataError,
    BadParameterError,
    MissingDependencyError,
    UnknownNameError,
)


def png(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), (value, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def write(path: Path, labels: list[object], *, names: list[str] | None = None) -> Path:
    cells = [{"bytes": png(row), "path": f"{row}.png"} for row in range(len(labels))]
    table = pa.table({"note": ["x"] * len(labels), "picture": cells, "label": labels})
    if names:
        features = {"label": {"names": names, "_type": "ClassLabel"}}
        facts = {"huggingface": json.dumps({"info": {"features": features}})}
        table = table.replace_schema_metadata(facts)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path


def test_columns_and_class_names_are_found(tmp_path: Path) -> None:
    path = write(tmp_path / "test.parquet", [1, 0, 1], names=["cat", "dog", "owl"])
    data = load_dataset(str(path))
    assert data.classes == ("cat", "dog", "owl")
    assert data.labels.tolist() == [1, 0, 1]
    assert np.array_equal(next(data.batches(3)).images[:, 0, 0, 0], [0, 1, 2])


def test_text_labels_are_numbered_by_name(tmp_path: Path) -> None:
    data = hub(path=str(write(tmp_path / "a.parquet", ["owl", "cat", "owl"])))
    assert data.classes == ("cat", "owl")
    assert data.labels.tolist() == [1, 0, 1]


@pytest.mark.parametrize("lacking", [None, "", " ", float("nan"), [1]])
@pytest.mark.parametrize("names", [None, ["cat", "owl"]])
def test_a_row_without_a_label_is_no_class(
    tmp_path: Path, lacking: object, names: list[str] | None
) -> None:
    present: object = {float: 1.0, list: [0]}.get(type(lacking), "owl")
    path = write(tmp_path / "a.parquet", [present, lacking, present], names=names)
    with pytest.raises(BadDataError, match=r"row [01].*name or the number of a class"):
        hub(path=str(path))


def test_a_folder_holds_splits_in_several_files(tmp_path: Path) -> None:
    write(tmp_path / "data" / "train-00000-of-00002.parquet", [0, 1])
    write(tmp_path / "data" / "train-00001-of-00002.parquet", [1])
    write(tmp_path / "data" / "test-00000-of-00001.parquet", [0])
    assert load_dataset(str(tmp_path), split="train").labels.tolist() == [0, 1, 1]
    assert len(load_dataset(str(tmp_path), split="test")) == 1
    with pytest.raises(BadDataError, match="no parquet file of split 'val'"):
        load_dataset(str(tmp_path), split="val")


def test_broken_rows_are_named(tmp_path: Path) -> None:
    cells = [{"bytes": png(0)}, {"bytes": png(1)[:40]}]
    pq.write_table(pa.table({"image": cells, "label": [0, 1]}), tmp_path / "a.parquet")
    with pytest.raises(BadDataError, match="row 1 "):
        hub(path=str(tmp_path / "a.parquet"))
    with pytest.warns(UserWarning, match="row 1 "):
        assert len(hub(path=str(tmp_path / "a.parquet"), on_broken="skip")) == 1


def test_missing_columns_are_explained(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a"], "label": [0]}), tmp_path / "a.parquet")
    with pytest.raises(BadDataError, match="no column of pictures among text, label"):
        hub(path=str(tmp_path / "a.parquet"))
    (tmp_path / "b.parquet").write_bytes(b"not parquet")
    with pytest.raises(BadDataError, match="cannot be read"):
        hub(path=str(tmp_path / "b.parquet"))


def test_the_library_is_asked_for_only_when_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'stockpot\[hub\]'"):
        hub(path="some/set")


def test_names_and_paths_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean icons"):
        load_dataset("icon")
    with pytest.raises(BadDataError, match="no such file or folder"):
        load_dataset(str(tmp_path / "missing"))
    with pytest.raises(BadParameterError, match="Did you mean family"):
        load_dataset("icons", famly="noto")
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(BadDataError, match=r"got .*a\.txt"):
        load_dataset(str(tmp_path / "a.txt"))
