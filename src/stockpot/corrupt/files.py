"""Writing corrupted datasets in the two public layouts, so that other tools can read them.

A file that exists is not written again, and every file appears whole or not at all, so an
interrupted run goes on where it stopped. The same dataset and seed give the same bytes.
"""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from stockpot.corrupt import SEVERITIES
from stockpot.corrupt.apply import corrupt
from stockpot.corrupt.constants import Profile
from stockpot.datasets.dataset import Dataset, Fit
from stockpot.errors import BadParameterError
from stockpot.files import write_atomic

Format = Literal["jpeg", "png", "webp"]
_SUFFIX = {"jpeg": ".JPEG", "png": ".png", "webp": ".webp"}
_BATCH = 256


def write_array(
    data: Dataset,
    out: Path,
    name: str,
    *,
    seed: int = 0,
    profile: Profile | Literal["auto"] = "auto",
    fit: Fit | None = None,
) -> Path:
    """Write `<name>.npy`: all five severities one after the other, N x H x W x 3 each.

    `labels.npy`, five times the labels, is written beside it if it is not there.
    """
    target = out / f"{name}.npy"
    if not (out / "labels.npy").exists():
        labels = data.labels.to(torch.uint8 if len(data.classes) < 256 else torch.int64)
        write_atomic(out / "labels.npy", _npy(labels.repeat(5)))
    if target.exists():
        return target
    blocks = []
    for severity in SEVERITIES:
        for batch in data.batches(_BATCH, fit):
            seeds = (batch.rows + seed).tolist()
            blocks.append(corrupt(batch.images, name, severity, seed=seeds, profile=profile))
    write_atomic(target, _npy(torch.cat(blocks).permute(0, 2, 3, 1)))
    return target


def write_pictures(
    data: Dataset,
    out: Path,
    name: str,
    severity: int,
    *,
    seed: int = 0,
    profile: Profile | Literal["auto"] = "auto",
    fit: Fit | None = None,
    format: Format = "jpeg",
) -> int:
    """Write `<name>/<severity>/<class>/<picture>` and say how many files were new.

    JPEG has quality 85, as in ImageNet-C; PNG and WebP are lossless.
    """
    if format not in _SUFFIX:
        raise BadParameterError(f"format: expected jpeg, png or webp, got {format!r}.")
    folder = out / name / str(severity)
    files = [folder / part for part in picture_names(data, _SUFFIX[format])]
    written = 0
    with ThreadPoolExecutor() as pool:
        for batch in data.batches(_BATCH, fit):
            rows = [row for row in batch.rows.tolist() if not files[row].exists()]
            if not rows:
                continue
            chosen = torch.tensor(rows) - batch.rows[0]
            changed = corrupt(
                batch.images[chosen],
                name,
                severity,
                seed=[row + seed for row in rows],
                profile=profile,
            )
            jobs = zip((files[row] for row in rows), changed, strict=True)
            written += sum(pool.map(lambda job: _save(job[0], job[1], format), jobs))
    return written


def picture_names(data: Dataset, suffix: str) -> list[str]:
    """`class/file` of every row: the original file names where there are any, else row numbers."""
    given = data.columns.get("file")
    names = []
    for row, label in enumerate(data.labels.tolist()):
        stem = Path(given[row]).stem if given else f"{row:06d}"
        names.append(f"{data.classes[label].replace('/', '_')}/{stem}{suffix}")
    return names


def _save(path: Path, pixels: Tensor, format: Format) -> int:
    options: dict[str, Any] = {}
    if format == "jpeg":
        options = {"quality": 85, "optimize": True}
    elif format == "webp":
        options = {"lossless": True}
    buffer = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(buffer, format.upper(), **options)
    write_atomic(path, buffer.getvalue())
    return 1


def _npy(values: Tensor) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values.contiguous().numpy())
    return buffer.getvalue()
