"""Datasets of the Hugging Face hub and of its formats: parquet, arrow, saved folders."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from stockpot.datasets import datasets
from stockpot.datasets.by_content.parts import part_of
from stockpot.datasets.by_content.split_names import check_part, named_split
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.encoded import EncodedImages
from stockpot.datasets.label_map import LabelIndex, label_text, resolve_classes
from stockpot.datasets.stream.file_check import OnBroken, content_fingerprint, inspect, usable_rows
from stockpot.errors import BadDataError, MissingDependencyError, UnknownNameError, UserError
from stockpot.foreign import reading

LABEL_NAMES = ("label", "labels", "class", "fine_label", "target")


class Rows(NamedTuple):
    """The two columns in use, and the class names where the data states them."""

    images: list[bytes | Path]
    labels: list[Any]
    classes: tuple[str, ...] | None


@datasets.register("hub")
def hub(
    *,
    path: str,
    split: str | None = None,
    config: str | None = None,
    image: str | None = None,
    label: str | None = None,
    on_broken: OnBroken = "stop",
) -> Dataset:
    """A dataset of the Hugging Face hub, or local parquet, arrow or saved dataset files.

    Args:
        path: a hub id such as uoft-cs/cifar10, a file, or a folder.
        split: the split as the dataset names it. A single file or table is parted by content into
            train, val and test, or taken whole (`all`). When not given: test, or all of what is
            not parted.
        config: the configuration of a hub dataset that has several.
        image: the column of pictures; found by its type when not given.
        label: the column of labels; found by its type or name when not given.
        on_broken: what to do with pictures that cannot be decoded: stop and name them, or skip.
    """
    local = Path(path).expanduser()
    files = parquet_files(local, split)
    if files:
        parted, rows = local.is_dir(), _from_parquet(files, image, label)
    else:
        parted, rows = _from_library(path, local, split or "test", config, image, label)
    classes, targets = numbered(rows.labels, rows.classes, None, path)
    names = [str(number) for number in range(len(rows.images))]
    seen = inspect(rows.images)
    kept = usable_rows([f"row {name}" for name in names], seen.broken, on_broken, path)
    target = torch.tensor([targets[row] for row in kept])
    digests = [seen.digests[row] for row in kept]
    found = Dataset(
        name=local.stem if local.exists() else path,
        split=split or "test",
        images=EncodedImages(
            tuple(rows.images[row] for row in kept),
            tuple(f"{path} row {row}" for row in kept),
            tuple(digests),
        ),
        labels=target,
        classes=classes,
        fingerprint=content_fingerprint([names[row] for row in kept], digests, target, classes),
    )
    return found if parted else part_of(found, path, named_split(local), split)


def parquet_files(path: Path, split: str | None) -> list[Path]:
    """The local parquet files of a split (test, if none); none where a path holds no such files."""
    if path.suffix == ".parquet" and path.is_file():
        check_part(str(path), named_split(path), split)
        return [path]
    if not path.is_dir():
        return []
    split = split or "test"
    every = sorted(path.rglob("*.parquet"))
    named = [
        file
        for file in every
        if file.stem == split
        or file.stem.startswith((f"{split}-", f"{split}_"))
        or file.parent.name == split
    ]
    if every and not named:
        stems = ", ".join(file.name for file in every[:6])
        raise BadDataError(f"{path}: no parquet file of split {split!r}; there are {stems}.")
    return named


def _from_parquet(files: Sequence[Path], image: str | None, label: str | None) -> Rows:
    with reading(files[0]):
        schema = pq.read_schema(files[0])
        image = image or _image_column(schema, files[0])
        label = label or _label_column(schema, files[0])
        table = pa.concat_tables(pq.read_table(file, columns=[image, label]) for file in files)
        cells = table[image].to_pylist()
        images = [_cell(cell, files[0].parent) for cell in cells]
        return Rows(images, table[label].to_pylist(), _stated_classes(schema, label))


def _image_column(schema: Any, file: Path) -> str:
    for field in schema:
        parts = [part.name for part in field.type] if pa.types.is_struct(field.type) else []
        if "bytes" in parts or pa.types.is_binary(field.type):
            return str(field.name)
    raise BadDataError(
        f"{file}: no column of pictures among {', '.join(schema.names)}.",
        hint="Name it with image=.",
    )


def _label_column(schema: Any, file: Path) -> str:
    for name in LABEL_NAMES:
        if name in schema.names:
            return name
    whole = [field.name for field in schema if pa.types.is_integer(field.type)]
    if len(whole) == 1:
        return str(whole[0])
    raise BadDataError(
        f"{file}: no single column of labels among {', '.join(schema.names)}.",
        hint="Name it with label=.",
    )


def _stated_classes(schema: Any, label: str) -> tuple[str, ...] | None:
    stored = (schema.metadata or {}).get(b"huggingface")
    if stored is None:
        return None
    feature = json.loads(stored).get("info", {}).get("features", {}).get(label, {})
    names = feature.get("names") if isinstance(feature, Mapping) else None
    return tuple(map(str, names)) if isinstance(names, list) and names else None


def _cell(cell: Any, folder: Path) -> bytes | Path:
    if isinstance(cell, bytes):
        return cell
    if isinstance(cell, Mapping):
        if cell.get("bytes"):
            return bytes(cell["bytes"])
        if cell.get("path"):
            return folder / str(cell["path"])
    raise BadDataError("expected pictures as bytes or as {bytes, path}, got an empty cell.")


def _from_library(
    path: str, local: Path, split: str, config: str | None, image: str | None, label: str | None
) -> tuple[bool, Rows]:
    """Whether the data has splits, and the rows of this one (all, where it has none)."""
    parted = False
    try:
        import datasets as library
    except ImportError as problem:
        raise MissingDependencyError(
            f"reading {path!r} needs the package `datasets`, which cannot be imported ({problem}).",
            hint="pip install 'stockpot[hub]'",
        ) from None
    try:
        if local.suffix == ".arrow":
            data = library.Dataset.from_file(str(local))
        elif local.is_dir():
            data = library.load_from_disk(str(local))
            if isinstance(data, library.DatasetDict) and split not in data:
                raise UnknownNameError(f"split of {path}", split, data)
            parted = isinstance(data, library.DatasetDict)
            data = data[split] if parted else data
        else:
            parted = True
            data = library.load_dataset(path, config, split=split)
    except UserError:
        raise
    except Exception as problem:  # the library raises many kinds; each is about this dataset
        reason = str(problem).partition("\n")[0] or type(problem).__name__
        raise UserError(f"the dataset {path!r}, split {split!r}, cannot be loaded: {reason}") from (
            problem
        )
    kinds = {name: type(feature).__name__ for name, feature in data.features.items()}
    image = image or next((name for name, kind in kinds.items() if kind == "Image"), None)
    label = label or next((name for name, kind in kinds.items() if kind == "ClassLabel"), None)
    label = label or next((name for name in LABEL_NAMES if name in kinds), None)
    if image not in kinds or label not in kinds:
        raise BadDataError(
            f"{path}: expected a column of pictures and one of labels, there are "
            f"{', '.join(kinds)}.",
            hint="Name them with image= and label=.",
        )
    data = data.cast_column(image, library.Image(decode=False))
    names = getattr(data.features[label], "names", None)
    images = [_cell(cell, local) for cell in data[image]]
    return parted, Rows(images, list(data[label]), tuple(names) if names else None)


def numbered(
    labels: list[Any],
    stated: tuple[str, ...] | None,
    given: int | str | list[str] | None,
    path: str,
) -> tuple[tuple[str, ...], list[int]]:
    """The classes of rows, and the number of each label among them.

    Args:
        labels: names or numbers.
        stated: the classes that the data states.
        given: those that a user gives.
        path: what messages call the data.
    """
    if given is None and stated is not None and all(isinstance(value, int) for value in labels):
        return stated, labels
    texts = [label_text(value, f"{path} row {row}") for row, value in enumerate(labels)]
    known = resolve_classes(texts, given or stated)
    numbers = LabelIndex(known)
    return known, [numbers.of(text, f"{path} row {row}") for row, text in enumerate(texts)]
