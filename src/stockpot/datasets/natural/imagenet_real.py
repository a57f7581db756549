"""ImageNet with reassessed labels: each class in a picture counts, a picture with none does not."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch

from stockpot.datasets import datasets
from stockpot.datasets.dataset import ACCEPTED, Dataset
from stockpot.datasets.natural.imagenet import imagenet
from stockpot.datasets.stream.file_check import OnBroken
from stockpot.errors import BadDataError

FILES = ("real.json", "imagenet_real_labels.json", "reassessed-imagenet/real.json")
NUMBERED = re.compile(r"ILSVRC2012_val_(\d{8})")


@datasets.register("imagenet_real", paper="arXiv:2006.07159")
def imagenet_real(
    *,
    path: str,
    labels: str | None = None,
    files: str | None = None,
    on_broken: OnBroken = "stop",
) -> Dataset:
    """ImageNet's validation images with the ReaL labels: several classes may be right.

    Pictures without any label are left out. The label of a row is the original one where it is
    among the right ones, else the first of these; the column `accepted` holds them all, and
    accuracy counts a hit of any.

    Args:
        path: as for `imagenet`.
        labels: the file real.json of the labels' authors: one list of classes for each image, by
            the number in its name. Looked for in `path` and above when not given.
        files: as for `imagenet`.
        on_broken: what to do with files that cannot be decoded: stop and name them, or skip them.
    """
    data = imagenet(path=path, split="val", files=files, on_broken=on_broken)
    if "file" not in data.columns:
        raise BadDataError(
            f"imagenet_real: the labels go by file names, which {path} does not have.",
            hint="Give a folder of the validation images.",
        )
    right = _read(_found(Path(path).expanduser(), labels))
    rows, targets, accepted = [], [], []
    for row, (file, label) in enumerate(
        zip(data.columns["file"], data.labels.tolist(), strict=True)
    ):
        classes = right[_number(file, len(right))]
        if classes:
            rows.append(row)
            targets.append(label if label in classes else classes[0])
            accepted.append(" ".join(str(each) for each in classes))
    if not rows:
        raise BadDataError(f"imagenet_real: none of the {len(data)} images has a ReaL label.")
    kept = data.take(rows)
    told = hashlib.sha256("\n".join([kept.fingerprint, *accepted]).encode())
    return replace(
        kept,
        name="imagenet_real",
        fingerprint=told.hexdigest(),
        labels=torch.tensor(targets),
        columns={**kept.columns, ACCEPTED: tuple(accepted)},
    )


def real_labels(path: Path) -> Path | None:
    """The labels' file in a folder of ImageNet or of several sets, or above it."""
    tried = [folder / name for folder in (path, path / "imagenet", path.parent) for name in FILES]
    return next((file for file in tried if file.is_file()), None)


def _found(path: Path, labels: str | None) -> Path:
    found = Path(labels).expanduser() if labels is not None else real_labels(path)
    if found is None:
        raise BadDataError(
            f"imagenet_real: no real.json in {path} or above.",
            hint="Give it with labels=; its authors publish it as reassessed-imagenet/real.json.",
        )
    return found


def _read(file: Path) -> list[list[int]]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as problem:
        raise BadDataError(f"labels: {file} cannot be read ({problem}).") from None
    sound = isinstance(found, list) and all(
        isinstance(each, list) and all(isinstance(n, int) and 0 <= n < 1000 for n in each)
        for each in found
    )
    if not sound:
        raise BadDataError(f"labels: expected one list of class numbers for each image in {file}.")
    return cast("list[list[int]]", found)


def _number(file: str, count: int) -> int:
    match = NUMBERED.search(file)
    if match is None or not 1 <= int(match.group(1)) <= count:
        raise BadDataError(
            f"imagenet_real: expected images named ILSVRC2012_val_00000001.JPEG to {count:08d}, "
            f"got {file}.",
            hint="The labels go by the number in the name.",
        )
    return int(match.group(1)) - 1
