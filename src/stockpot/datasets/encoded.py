"""Pictures that stay encoded until they are asked for, decoded by threads ahead of need.

Pillow decodes and resizes without the interpreter lock, so that threads use all cores. JPEG's draft
mode, which decodes at half the size, is left alone: it changes pixels, and pictures of the usual
500 px do not profit from it at 224 px.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stockpot.datasets.dataset import Fit
from stockpot.datasets.pictures import BROKEN, Encoded, open_rgb
from stockpot.datasets.stream.decoded import DECODED, Pixels, fit_key
from stockpot.engine.cores import usable_cores
from stockpot.engine.stages import stage
from stockpot.errors import BadDataError

CHUNK = 16
"""Pictures per task: enough that handing tasks over costs little beside decoding."""
_AHEAD = 2
"""Batches that are decoded ahead, or more where they would leave a thread without work."""


@dataclass(frozen=True)
class EncodedImages:
    """Pictures by path, in pieces of files or as bytes, each with the name that messages use."""

    items: tuple[Encoded, ...]
    names: tuple[str, ...]
    contents: tuple[str, ...] = ()
    """The sha256 of each, where it is known: such pictures are decoded once, while there is room
    (`decoded.py`)."""

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"EncodedImages({len(self):,} pictures, {', '.join(self.names[:2])}, ...)"

    def take(self, index: Sequence[int]) -> EncodedImages:
        """The pictures of these rows, in this order."""
        return EncodedImages(
            tuple(self.items[row] for row in index),
            tuple(self.names[row] for row in index),
            tuple(self.contents[row] for row in index) if self.contents else (),
        )

    def batches(self, size: int, fit: Fit | None) -> Iterator[Tensor]:
        """Consecutive uint8 NCHW batches, decoded ahead of the one in use."""
        for (batch,) in self.several(size, (fit,)):
            yield batch

    def several(self, size: int, fits: Sequence[Fit | None]) -> Iterator[tuple[Tensor, ...]]:
        """The same batches through several fits, every picture decoded once for all of them."""
        DECODED.begin()
        workers = usable_cores()
        # A small batch is cut into more tasks, and more batches are under way.
        chunk = min(CHUNK, max(1, -(-size // workers)))
        ahead = max(_AHEAD, -(-workers * chunk // size)) + 1
        starts = deque(range(0, len(self), size))
        waiting: deque[list[Future[list[Pixels]]]] = deque()
        with ThreadPoolExecutor(workers, thread_name_prefix="decode") as threads:
            try:
                while starts or waiting:
                    while starts and len(waiting) < ahead:
                        start = starts.popleft()
                        stop = min(start + size, len(self))
                        waiting.append(
                            [
                                threads.submit(self._decode, at, min(at + chunk, stop), fits)
                                for at in range(start, stop, chunk)
                            ]
                        )
                    parts = [task.result() for task in waiting.popleft()]
                    yield tuple(
                        _joined(each, fit)
                        for each, fit in zip(zip(*parts, strict=True), fits, strict=True)
                    )
            finally:
                threads.shutdown(wait=False, cancel_futures=True)

    @stage("decode")
    def _decode(self, start: int, stop: int, fits: Sequence[Fit | None]) -> list[Pixels]:
        rows = [self._pictures(row, fits) for row in range(start, stop)]
        found = []
        for pictures, fit in zip(zip(*rows, strict=True), fits, strict=True):
            _check_sizes([picture.shape[:2] for picture in pictures], fit)
            found.append(np.ascontiguousarray(np.stack(pictures).transpose(0, 3, 1, 2)))
        return found

    def _pictures(self, row: int, fits: Sequence[Fit | None]) -> list[Pixels]:
        content = self.contents[row] if self.contents else ""
        keys = [fit_key(fit) if content else None for fit in fits]
        known = [DECODED.find(content, key) if key else None for key in keys]
        if all(pixels is not None for pixels in known):
            return [pixels for pixels in known if pixels is not None]
        try:
            picture = open_rgb(self.items[row])
        except BROKEN as problem:
            raise BadDataError(f"{self.names[row]} cannot be decoded ({problem}).") from None
        found = []
        for fit, key, pixels in zip(fits, keys, known, strict=True):
            if pixels is None:
                pixels = np.asarray(fit(picture) if fit else picture)
                if key:
                    DECODED.keep(content, key, pixels)
            found.append(pixels)
        return found


def _joined(parts: Sequence[Pixels], fit: Fit | None) -> Tensor:
    _check_sizes([part.shape[2:] for part in parts], fit)
    return torch.from_numpy(parts[0] if len(parts) == 1 else np.concatenate(parts))


def _check_sizes(sizes: Iterable[tuple[int, ...]], fit: Fit | None) -> None:
    if len(different := set(sizes)) > 1:
        shown = ", ".join(sorted(f"{height}x{width}" for height, width in different)[:4])
        raise BadDataError(
            f"expected pictures of one size in a batch, got {shown}"
            + (" after fitting." if fit else "."),
            hint="" if fit else "Give a `fit` that brings them to one size, as a model does.",
        )
