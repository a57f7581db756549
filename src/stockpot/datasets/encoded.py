"""Pictures that stay encoded until they are asked for, decoded by a few threads ahead of need."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from PIL import UnidentifiedImageError
from torch import Tensor

from stockpot.datasets.dataset import Fit
from stockpot.datasets.pictures import check_whole, open_rgb
from stockpot.errors import BadDataError

OnBroken = Literal["stop", "skip"]
Pixels = np.ndarray[Any, np.dtype[np.uint8]]

CHUNK = 32
"""Pictures per task: enough that handing tasks over costs little beside decoding."""

BROKEN = (OSError, SyntaxError, ValueError, EOFError, UnidentifiedImageError)
"""What Pillow raises for a file that it cannot decode (its PNG reader raises SyntaxError)."""


@dataclass(frozen=True)
class EncodedImages:
    """Pictures by path or as encoded bytes, each with the name that messages use."""

    items: tuple[Path | bytes, ...]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.items)

    def take(self, index: Sequence[int]) -> EncodedImages:
        """The pictures of these rows, in this order."""
        return EncodedImages(
            tuple(self.items[row] for row in index), tuple(self.names[row] for row in index)
        )

    def batches(self, size: int, fit: Fit | None) -> Iterator[Tensor]:
        """Consecutive uint8 NCHW batches; two batches are decoded ahead of the one in use."""
        starts = deque(range(0, len(self), size))
        waiting: deque[list[Future[Pixels]]] = deque()
        with ThreadPoolExecutor(_threads()) as threads:
            try:
                while starts or waiting:
                    while starts and len(waiting) < 3:
                        start = starts.popleft()
                        stop = min(start + size, len(self))
                        waiting.append(
                            [
                                threads.submit(self._decode, at, min(at + CHUNK, stop), fit)
                                for at in range(start, stop, CHUNK)
                            ]
                        )
                    parts = [task.result() for task in waiting.popleft()]
                    _check_sizes([part.shape[2:] for part in parts], fit)
                    yield torch.from_numpy(np.concatenate(parts))
            finally:
                threads.shutdown(wait=False, cancel_futures=True)

    def _decode(self, start: int, stop: int, fit: Fit | None) -> Pixels:
        pictures = []
        for row in range(start, stop):
            try:
                picture = open_rgb(self.items[row])
            except BROKEN as problem:
                raise BadDataError(f"{self.names[row]} cannot be decoded ({problem}).") from None
            pictures.append(np.asarray(fit(picture) if fit else picture))
        _check_sizes([picture.shape[:2] for picture in pictures], fit)
        return np.ascontiguousarray(np.stack(pictures).transpose(0, 3, 1, 2))


def _check_sizes(sizes: Iterable[tuple[int, ...]], fit: Fit | None) -> None:
    if len(different := set(sizes)) > 1:
        shown = ", ".join(sorted(f"{height}x{width}" for height, width in different)[:4])
        raise BadDataError(
            f"expected pictures of one size in a batch, got {shown}"
            + (" after fitting." if fit else "."),
            hint="" if fit else "Give a `fit` that brings them to one size, as a model does.",
        )


class Inspection(NamedTuple):
    """What one reading of every file has shown."""

    digests: list[str]
    broken: dict[int, str]


def inspect(items: Sequence[Path | bytes]) -> Inspection:
    """Read every file once, in parallel: its sha256, and whether it is whole."""

    def look(item: Path | bytes) -> tuple[str, str]:
        try:
            data = item if isinstance(item, bytes) else item.read_bytes()
        except OSError as problem:
            return "", problem.strerror or "cannot be read"
        try:
            check_whole(data)
        except BROKEN as problem:
            return "", str(problem).split(" <_io")[0].split(" file <")[0] or "cannot be decoded"
        return hashlib.sha256(data).hexdigest(), ""

    with ThreadPoolExecutor(_threads()) as threads:
        found = list(threads.map(look, items, chunksize=CHUNK))
    broken = {row: reason for row, (_, reason) in enumerate(found) if reason}
    return Inspection([digest for digest, _ in found], broken)


def usable_rows(
    names: Sequence[str], broken: dict[int, str], on_broken: OnBroken, what: str
) -> list[int]:
    """The rows that can be decoded; broken ones are named, and stop or are skipped."""
    if broken:
        listing = "; ".join(f"{names[row]} ({reason})" for row, reason in broken.items())
        message = f"{what}: {len(broken)} of {len(names)} images are broken: {listing}"
        if on_broken == "stop":
            raise BadDataError(f"{message}.", hint="Repair them, or set on_broken=skip.")
        warnings.warn(f"{message}; they are skipped.", UserWarning, stacklevel=2)
    return [row for row in range(len(names)) if row not in broken]


def content_fingerprint(
    names: Sequence[str], digests: Sequence[str], labels: Tensor, classes: Sequence[str]
) -> str:
    """The sha256 over relative names, contents and labels."""
    digest = hashlib.sha256(repr(tuple(classes)).encode())
    for name, content, label in zip(names, digests, labels.tolist(), strict=True):
        digest.update(f"{name}\0{content}\0{label}\n".encode())
    return digest.hexdigest()


def _threads() -> int:
    return min(16, os.cpu_count() or 1)
