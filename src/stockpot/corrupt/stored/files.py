"""Writing corrupted datasets in the two public layouts, so that other tools can read them.

A file that exists is not written again, and every file appears whole or not at all, so an
interrupted run goes on where it stopped. The same dataset and seed give the same bytes. Whether
a folder may be gone on with says its record (`record.py`).
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
from stockpot.corrupt.apply import corrupt, picture_seeds
from stockpot.corrupt.between import plain
from stockpot.corrupt.constants import Profile
from stockpot.corrupt.sizes import corruptible
from stockpot.corrupt.stored.names import picture_names
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.stream.geometry import PUBLISHED_SIDE
from stockpot.errors import BadDataError, BadParameterError
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
    side: int = PUBLISHED_SIDE,
    device: str = "cpu",
    **params: Any,
) -> Path:
    """Write `<name>.npy`: all five severities one after the other, N x H x W x 3 each.

    `labels.npy`, five times the labels, is written beside it if it is not there.

    Args:
        data: the clean pictures.
        out: the folder.
        name: a corruption.
        seed: of the run; pictures of two runs share no random numbers.
        profile: as for `stockpot.corrupt`.
        side: pictures of many sizes are cut to this side as the published ones were.
        device: where to work.
        params: the corruption's own, such as frost's `overlays`.
    """
    target = out / f"{name}.npy"
    labels = data.labels.to(torch.uint8 if len(data.classes) < 256 else torch.int64).repeat(5)
    if not (out / "labels.npy").exists():
        write_atomic(out / "labels.npy", _npy(labels))
    elif not np.array_equal(np.load(out / "labels.npy", allow_pickle=False), labels.numpy()):
        raise BadDataError(
            f"{out / 'labels.npy'} holds the labels of other pictures.",
            hint="Choose another folder.",
        )
    if target.exists():
        return target
    blocks = []
    for severity in SEVERITIES:
        for batch in corruptible(data, _BATCH, side):
            seeds = picture_seeds(seed, batch.rows.tolist())
            images = batch.images.to(device)
            made = corrupt(images, name, severity, seed=seeds, profile=profile, **params)
            blocks.append(made.cpu())
    write_atomic(target, _npy(torch.cat(blocks).permute(0, 2, 3, 1)))
    return target


def write_pictures(
    data: Dataset,
    out: Path,
    name: str,
    severity: float,
    *,
    seed: int = 0,
    profile: Profile | Literal["auto"] = "auto",
    side: int = PUBLISHED_SIDE,
    format: Format = "jpeg",
    device: str = "cpu",
    **params: Any,
) -> int:
    """Write `<name>/<severity>/<class>/<picture>` and say how many files were new.

    JPEG has quality 85, as in ImageNet-C; PNG and WebP are lossless. The other arguments are those
    of `write_array`.
    """
    if format not in _SUFFIX:
        raise BadParameterError(f"format: expected jpeg, png or webp, got {format!r}.")
    folder = out / name / str(plain(severity))
    files = [folder / part for part in picture_names(data, _SUFFIX[format])]
    written = 0
    with ThreadPoolExecutor() as pool:
        for batch in corruptible(data, _BATCH, side):
            rows = [row for row in batch.rows.tolist() if not files[row].exists()]
            if not rows:
                continue
            chosen = torch.tensor(rows) - batch.rows[0]
            changed = corrupt(
                batch.images[chosen].to(device),
                name,
                severity,
                seed=picture_seeds(seed, rows),
                profile=profile,
                **params,
            ).cpu()
            jobs = zip((files[row] for row in rows), changed, strict=True)
            written += sum(pool.map(lambda job: _save(job[0], job[1], format), jobs))
    return written


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
