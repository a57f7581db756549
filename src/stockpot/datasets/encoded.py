"""Pictures that stay encoded until they are asked for, decoded by threads ahead of need.

Pillow decodes and resizes without the interpreter lock, so that threads use all cores. JPEG's draft
mode, which decodes at half the size, is left alone: it changes pixels, and pictures of the usual
500 px do not profit from it at 224 px.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from stockpot.datasets.pictures import BROKEN, Encoded, open_rgb
from stockpot.datasets.stream import ahead, processes
from stockpot.datasets.stream.decoded import DECODED, Pixels, fit_key
from stockpot.datasets.stream.geometry import Fit, told
from stockpot.engine.cores import usable_cores
from stockpot.engine.stages import stage
from stockpot.errors import BadDataError
from stockpot.foreign import reason

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
        ahead.end()
        DECODED.begin()
        workers = usable_cores()
        # A small batch is cut into more tasks, and more batches are under way.
        chunk = min(CHUNK, max(1, -(-size // workers)))
        depth = max(_AHEAD, -(-workers * chunk // size)) + 1
        starts = deque(range(0, len(self), size))
        waiting: deque[Future[tuple[Tensor, ...]]] = deque()
        with (
            ThreadPoolExecutor(workers, thread_name_prefix="decode") as threads,
            ThreadPoolExecutor(1, thread_name_prefix="join") as joiner,
        ):
            try:
                while starts or waiting:
                    while starts and len(waiting) < depth:
                        start = starts.popleft()
                        stop = min(start + size, len(self))
                        tasks = [
                            threads.submit(self._decode, at, min(at + chunk, stop), fits)
                            for at in range(start, stop, chunk)
                        ]
                        waiting.append(joiner.submit(_all_joined, tasks, fits))
                    yield waiting.popleft().result()
            finally:
                threads.shutdown(wait=False, cancel_futures=True)
                joiner.shutdown(wait=False, cancel_futures=True)

    def decode_ahead(self, fits: Sequence[Fit | None]) -> None:
        """Begin to decode for who will go through them with these fits; nobody waits for it.

        Pictures that would not be kept, since their content is not known, are left alone.
        """
        keys = [fit_key(fit) for fit in fits]
        if not self.contents or not keys or None in keys:
            return

        def decode(start: int, stop: int) -> bool:
            self._decode(start, stop, fits)
            last = self.contents[stop - 1]
            return all(DECODED.find(last, key) is not None for key in keys)

        ahead.begin((id(self.items), *keys), len(self), decode)

    @stage("decode")
    def _decode(self, start: int, stop: int, fits: Sequence[Fit | None]) -> list[Pixels]:
        """For each fit the pictures of some rows, N x 3 x H x W."""
        keys = [fit_key(fit) if self.contents else None for fit in fits]
        known = {row: self._known(row, keys) for row in range(start, stop)}
        missing = [row for row, pictures in known.items() if pictures is None]
        if missing:
            parts = self._elsewhere(missing, fits)
            for place, row in enumerate(missing):
                found = [part[place] for part in parts] if parts else self._here(row, fits)
                known[row] = found
                for key, pixels in zip(keys, found, strict=True):
                    if key:
                        DECODED.keep(self.contents[row], key, pixels)
            if parts and len(missing) == stop - start:
                return parts
        rows = [pictures for pictures in known.values() if pictures is not None]
        stacked = []
        for pictures, fit in zip(zip(*rows, strict=True), fits, strict=True):
            _check_sizes([picture.shape[1:] for picture in pictures], fit)
            stacked.append(np.stack(pictures))
        return stacked

    def _known(self, row: int, keys: Sequence[Hashable]) -> list[Pixels] | None:
        """A picture through all fits, if it was decoded before."""
        if not self.contents or None in keys:
            return None
        found = [DECODED.find(self.contents[row], key) for key in keys]
        here = [pixels for pixels in found if pixels is not None]
        return here if len(here) == len(keys) else None

    def _here(self, row: int, fits: Sequence[Fit | None]) -> list[Pixels]:
        try:
            picture = open_rgb(self.items[row])
        except BROKEN as problem:
            raise self._broken(row, problem) from None
        fitted = (np.asarray(fit(picture) if fit else picture) for fit in fits)
        return [np.ascontiguousarray(pixels.transpose(2, 0, 1)) for pixels in fitted]

    def _elsewhere(self, rows: list[int], fits: Sequence[Fit | None]) -> list[Pixels] | None:
        """The same by other processes, where they run and can do it."""
        decoders = processes.running()
        words = [told(fit) for fit in fits] if decoders else []
        files = [item for row in rows if isinstance(item := self.items[row], Path)]
        plain = [one for one in words if one is not None]
        if decoders is None or len(plain) < len(fits) or len(files) < len(rows):
            return None
        try:
            return decoders.decode(files, plain)
        except processes.BrokenPictureError as problem:
            raise self._broken(rows[problem.row], problem) from None

    def _broken(self, row: int, problem: Exception) -> BadDataError:
        return BadDataError(f"{self.names[row]} cannot be decoded ({reason(problem)}).")


def _all_joined(
    tasks: Sequence[Future[list[Pixels]]], fits: Sequence[Fit | None]
) -> tuple[Tensor, ...]:
    parts = [task.result() for task in tasks]
    return tuple(
        _joined(each, fit) for each, fit in zip(zip(*parts, strict=True), fits, strict=True)
    )


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
