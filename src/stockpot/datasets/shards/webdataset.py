"""Tars of samples in the layout of WebDataset, read in place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch

from stockpot.datasets import datasets
from stockpot.datasets.by_content.parts import part_of
from stockpot.datasets.by_content.split_names import WHOLE, split_called
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.encoded import EncodedImages
from stockpot.datasets.label_map import LabelIndex, label_text, resolve_classes
from stockpot.datasets.pictures import SUFFIXES, Piece
from stockpot.datasets.shards.files import shard_names, staged
from stockpot.datasets.shards.part import check_classes_known, read_part
from stockpot.datasets.shards.tar_samples import Sample, tar_samples
from stockpot.datasets.stream.file_check import OnBroken, content_fingerprint, inspect, usable_rows
from stockpot.errors import BadDataError, BadParameterError

LABELS = ("cls", "json", "txt")
JSON_KEYS = ("label", "cls", "class", "class_name", "target")
_LONGEST = 1 << 20


@datasets.register("webdataset")
def webdataset(
    *,
    path: str,
    split: str | None = None,
    shard: str | None = None,
    image: str | None = None,
    label: str | None = None,
    classes: int | str | list[str] | None = None,
    on_broken: OnBroken = "stop",
) -> Dataset:
    """Tars in the layout of WebDataset: 0001.jpg and 0001.cls are one sample.

    Pictures stay in their tar until they are asked for; tars at an address are brought into the
    cache first, and only those of the part that is asked for.

    Args:
        path: a tar, a folder of tars, a pattern such as `shards/{000..009}.tar`, or an address of
            one (s3://, https://, hf://).
        split: train, val or test: parts by content, unless the tars are named like one. All when
            not given.
        shard: `i/n`, the part i of n (from 0): every n-th tar, or every n-th sample where there are
            fewer tars than parts.
        image: the ending of the pictures; jpg, png, webp and others are found when not given.
        label: the ending of the labels: `cls`, `txt`, `json` or `json:KEY`; the first of them that
            is there when not given.
        classes: the class names in order, a text or JSON file of them, or how many there are.
        on_broken: what to do with pictures that cannot be decoded: stop and name them, or skip.
    """
    part = read_part(shard)
    check_classes_known(part, classes is not None, path)
    names = shard_names(path)
    own = split_called(Path(names[0]).name.split(".")[0].partition("-")[0])
    if not part.is_whole and own is None and split not in (None, WHOLE):
        raise BadParameterError(
            f"{path}: shard={part} of split {split!r}: what looks alike is parted together, which "
            "takes all pictures.",
            hint="Give the tars of one split, or leave one of the two out.",
        )
    by_files = part.by_files(len(names))
    samples = [
        (name, sample)
        for name in (part.of(names) if by_files else names)
        for sample in tar_samples(staged(name), name)
    ]
    if not by_files:
        samples = list(part.of(samples))
    if not samples:
        raise BadDataError(f"{path}: no samples are there{'' if part.is_whole else f' in {part}'}.")
    pictures = [_picture(sample, image, name) for name, sample in samples]
    texts = [_label(sample, label, name) for name, sample in samples]
    known = resolve_classes(texts, classes)
    numbers = LabelIndex(known)
    targets = [
        numbers.of(text, f"{name}: {sample.key}")
        for text, (name, sample) in zip(texts, samples, strict=True)
    ]
    seen = inspect(pictures, pictures[0].path.parent)
    keys = [sample.key for _, sample in samples]
    rows = usable_rows(keys, seen.broken, on_broken, path)
    if not rows:
        raise BadDataError(f"{path}: no image is left.")
    kept = [keys[row] for row in rows]
    target = torch.tensor([targets[row] for row in rows])
    digests = [seen.digests[row] for row in rows]
    found = Dataset(
        name=Path(path.rstrip("/")).name.split("{")[0].removesuffix(".tar").rstrip("-_")
        or "webdataset",
        split=WHOLE,
        images=EncodedImages(
            tuple(pictures[row] for row in rows),
            tuple(f"{samples[row][0]}: {keys[row]}" for row in rows),
            tuple(digests),
        ),
        labels=target,
        classes=known,
        fingerprint=content_fingerprint(kept, digests, target, known),
        columns={"file": tuple(kept)},
    )
    found = part_of(found, path, own, split)
    return found if part.is_whole else replace(found, split=f"{found.split}[shard {part}]")


def _picture(sample: Sample, ending: str | None, tar: str) -> Piece:
    wanted = [ending] if ending else [each for each in sample.files if f".{each}" in SUFFIXES]
    found = [sample.files[each] for each in wanted if each in sample.files]
    if len(found) != 1:
        raise BadDataError(
            f"{tar}: {sample.key}: expected one picture, there are {', '.join(sample.files)}.",
            hint="Name its ending with image=.",
        )
    return found[0]


def _label(sample: Sample, asked: str | None, tar: str) -> str:
    ending, _, key = (asked or "").partition(":")
    if not ending:
        ending = next((each for each in LABELS if each in sample.files), "")
    if ending not in sample.files:
        raise BadDataError(
            f"{tar}: {sample.key}: expected a label, there are {', '.join(sample.files)}.",
            hint="Name its ending with label=.",
        )
    piece = sample.files[ending]
    if piece.size > _LONGEST:
        raise BadDataError(f"{tar}: {sample.key}.{ending} is too long for a label.")
    try:
        text = piece.read_bytes().decode().strip()
        if ending == "json" or key:
            return _from_json(text, key)
    except (ValueError, KeyError) as problem:
        raise BadDataError(
            f"{tar}: {sample.key}.{ending} holds no label ({problem}).",
            hint="Name its key with label=json:KEY." if ending == "json" else "",
        ) from None
    return label_text(text, f"{tar}: {sample.key}.{ending}")


def _from_json(text: str, key: str) -> str:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("expected a JSON object")
    for name in [key] if key else JSON_KEYS:
        if isinstance(found.get(name), str | int):
            return str(found[name])
    raise ValueError(f"no {key or ' or '.join(JSON_KEYS)} among {', '.join(map(str, found))}")
