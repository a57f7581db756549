"""Rows of Hugging Face `datasets`, streamed: nothing is downloaded but what is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import Field

from stockpot.datasets import datasets
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.encoded import EncodedImages
from stockpot.datasets.hub import LABEL_NAMES, numbered
from stockpot.datasets.shards.kept import keep
from stockpot.datasets.shards.part import Part, check_classes_known, read_part
from stockpot.datasets.stream.file_check import OnBroken, content_fingerprint, inspect, usable_rows
from stockpot.errors import BadDataError, MissingDependencyError, UnknownNameError, UserError

_READERS = {".parquet": "parquet", ".arrow": "arrow", ".json": "json", ".jsonl": "json"}


@datasets.register("hub_stream")
def hub_stream(
    *,
    path: str,
    split: str | None = None,
    config: str | None = None,
    shard: str | None = None,
    take: Annotated[int, Field(ge=1)] | None = None,
    image: str | None = None,
    label: str | None = None,
    classes: int | str | list[str] | None = None,
    on_broken: OnBroken = "stop",
) -> Dataset:
    """A dataset of the Hugging Face hub, or files of its formats, read as a stream.

    Pictures go to the cache as they come, so that memory holds none of them.

    Args:
        path: a hub id such as timm/imagenet-1k-wds; a .parquet, .arrow, .json or .jsonl file; or a
            folder of such files or of class folders.
        split: the split as the dataset names it; when not given: test, or the only one.
        config: the configuration of a hub dataset that has several.
        shard: `i/n`, the part i of n (from 0): every n-th file, or every n-th row where there are
            fewer files than parts.
        take: stop after so many rows of the part.
        image: the column of pictures; found by its type when not given.
        label: the column of labels; found by its type or name when not given.
        classes: the class names in order, a file of them, or how many there are, where the data
            does not state them.
        on_broken: what to do with pictures that cannot be decoded: stop and name them, or skip.
    """
    part = read_part(shard)
    rows = _opened(path, split, config, image, label)
    check_classes_known(part, classes is not None or rows.classes is not None, path)
    labels: list[Any] = []

    def pictures() -> Iterator[bytes | Path]:
        for row in islice(_with_reasons(rows.part(part), path), take):
            labels.append(row[rows.label])
            yield _picture(row[rows.image], rows.root, path)

    items = keep(pictures())
    if not items:
        raise BadDataError(f"{path}: no rows are there{'' if part.is_whole else f' in {part}'}.")
    known, targets = numbered(labels, rows.classes, classes, path)
    names = [str(row) for row in range(len(items))]
    seen = inspect(items)
    kept = usable_rows([f"row {each}" for each in names], seen.broken, on_broken, path)
    if not kept:
        raise BadDataError(f"{path}: no image is left.")
    target = torch.tensor([targets[row] for row in kept])
    digests = [seen.digests[row] for row in kept]
    return Dataset(
        name=Path(path).stem if Path(path).expanduser().exists() else path,
        split=rows.split if part.is_whole else f"{rows.split}[shard {part}]",
        images=EncodedImages(
            tuple(items[row] for row in kept),
            tuple(f"{path} row {row}" for row in kept),
            tuple(digests),
        ),
        labels=target,
        classes=known,
        fingerprint=content_fingerprint([names[row] for row in kept], digests, target, known),
    )


class _Rows(NamedTuple):
    """A stream, and which of its columns are meant."""

    data: Any
    split: str
    root: Path
    """From where pictures are meant that are given by path."""
    image: str
    label: str
    classes: tuple[str, ...] | None

    def part(self, part: Part) -> Iterator[Any]:
        """The rows of a part, in order."""
        if part.is_whole:
            return iter(self.data)
        if part.by_files(self.data.num_shards):
            return iter(self.data.shard(part.count, part.index, contiguous=False))
        return islice(iter(self.data), part.index, None, part.count)


def _opened(
    path: str, split: str | None, config: str | None, image: str | None, label: str | None
) -> _Rows:
    try:
        from datasets import Image, load_dataset
    except ImportError as problem:
        raise MissingDependencyError(
            f"reading {path!r} needs the package `datasets`, which cannot be imported ({problem}).",
            hint="pip install 'stockpot[hub]'",
        ) from None
    local = Path(path).expanduser()
    try:
        found = load_dataset(**_source(path, local, split, config), streaming=True)
        name = split or ("test" if "test" in found or len(found) > 1 else next(iter(found)))
        if name not in found:
            raise UnknownNameError(f"split of {path}", name, found)
        data = found[name]
        features = data.features or dict.fromkeys(next(iter(data), {}))
        kinds = {column: type(feature).__name__ for column, feature in features.items()}
    except UserError:
        raise
    except Exception as problem:  # the library raises many kinds; each is about this dataset
        raise _cannot_be_read(path, problem) from problem
    image = image or next((c for c, kind in kinds.items() if kind == "Image"), None)
    image = image or next((c for c in ("image", "img", "picture", "file_name") if c in kinds), None)
    label = label or next((c for c, kind in kinds.items() if kind == "ClassLabel"), None)
    label = label or next((c for c in LABEL_NAMES if c in kinds), None)
    if image not in kinds or label not in kinds or image is None or label is None:
        raise BadDataError(
            f"{path}: expected a column of pictures and one of labels, there are "
            f"{', '.join(kinds)}.",
            hint="Name them with image= and label=.",
        )
    if kinds[image] == "Image":
        data = data.cast_column(image, Image(decode=False))
    names = getattr(features[label], "names", None)
    root = local if local.is_dir() else local.parent
    return _Rows(data, name, root, image, label, tuple(names) if names else None)


def _source(path: str, local: Path, split: str | None, config: str | None) -> dict[str, Any]:
    """The arguments of the library for a hub id, a file, or a folder of either kind."""
    if local.is_file():
        if local.suffix not in _READERS:
            raise BadDataError(f"{path}: expected one of {', '.join(_READERS)}, or a folder.")
        return {"path": _READERS[local.suffix], "data_files": str(local)}
    for folder in (local / (split or "test"), local):
        if (folder / "state.json").is_file():  # written by `save_to_disk`
            files = sorted(str(file) for file in folder.glob("*.arrow"))
            return {"path": "arrow", "data_files": {split or "test": files}}
    return {"path": str(local) if local.is_dir() else path, "name": config}


def _with_reasons(rows: Iterator[Any], path: str) -> Iterator[Any]:
    """The same rows; what the library raises on the way is about this dataset."""
    while True:
        try:
            row = next(rows, None)
        except Exception as problem:
            raise _cannot_be_read(path, problem) from problem
        if row is None:
            return
        yield row


def _cannot_be_read(path: str, problem: Exception) -> UserError:
    reason = str(problem).partition("\n")[0].rstrip(".") or type(problem).__name__
    return UserError(f"the dataset {path!r} cannot be streamed: {reason}.")


def _picture(cell: Any, root: Path, path: str) -> bytes | Path:
    if isinstance(cell, Mapping):
        cell = cell.get("bytes") or cell.get("path")
    if isinstance(cell, str) and cell:
        return root / cell
    if isinstance(cell, bytes) and cell:
        return cell
    raise BadDataError(f"{path}: expected pictures as bytes or paths, got an empty cell.")
