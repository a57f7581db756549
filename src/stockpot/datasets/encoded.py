"""Pictures that stay encoded until they are asked for, decoded by threads ahead of need.

Pillow decodes and resizes without the interpreter lock, so that threads use all cores. JPEG's draft
mode, which decodes at half the size, is left alone: it changes pixels, and pictures of the usual
500 px do not profit from it at 224 px.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from stockpot.datasets.pictures import BROKEN, Encoded, open_rgb
from stockpot.datasets.stream import ahead, processes
from stockpot.datasets.stream.decoded import DECODED, Pixels, fit_key
from stockpot.datasets.stream.geometry import Fit, told
from stockpot.datasets.stream.joined import Joined
from stockpot.engine.cores import usable_cores
from stockpot.errors import BadDataError
from stockpot.foreign import reason
from stockpot.stages import stage

CHUNK = 16
"""Pictures per task: enough that handing tasks over costs little beside decoding."""
_AHEAD = 2
"""Batches that are decoded ahead, or more where they would leave a thread without work."""
_ROOM = 2**30
"""Bytes of such batches where processes decode for a GPU, their size is known, and pictures are
kept anyway: who goes through them may have much to do before the first, and decoding would stand
still. Where a processor makes the passes too, it would only take their memory."""


@dataclass(frozen=True)
class EncodedImages:
    """Pictures by path, in pieces of files or as bytes, each with the name that messages use."""

    items: Sequence[Encoded]
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
        depth = max(_AHEAD, -(-workers * chunk // size), self._fitting(size, fits)) + 1
        starts = deque(range(0, len(self), size))
        waiting: deque[tuple[list[Future[None]], list[Joined]]] = deque()
        with ThreadPoolExecutor(workers, thread_name_prefix="decode") as threads:

            def begun(start: int) -> tuple[list[Future[None]], list[Joined]]:
                stop = min(start + size, len(self))
                parts = [Joined(stop - start, fitted=fit is not None) for fit in fits]

                def fill(at: int) -> None:
                    found = self._decode(at, min(at + chunk, stop), fits)
                    for part, pictures in zip(parts, found, strict=True):
                        part.put(at - start, pictures)

                return [threads.submit(fill, at) for at in range(start, stop, chunk)], parts

            try:
                while starts or waiting:
                    while starts and len(waiting) < depth:
                        waiting.append(begun(starts.popleft()))
                    tasks, parts = waiting.popleft()
                    for task in tasks:
                        task.result()
                    yield tuple(part.whole() for part in parts)
            finally:
                threads.shutdown(wait=False, cancel_futures=True)

    def _fitting(self, size: int, fits: Sequence[Fit | None]) -> int:
        """Batches that fit into the room; none where nobody knows, or no process decodes."""
        words = [told(fit) for fit in fits]
        sides = [one[0] for one in words if one is not None]
        if processes.running() is None or not self.contents or len(sides) < len(words):
            return 0
        return _ROOM // (size * sum(3 * height * width for height, width in sides) or 1)

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

        # What was begun before anybody had the dataset may be the same pictures: it goes on then.
        ahead.begin((self.contents, *keys), len(self), decode)

    @stage("decode")
    def _decode(
        self, start: int, stop: int, fits: Sequence[Fit | None]
    ) -> list[tuple[Pixels, ...]]:
        """For each fit the pictures of some rows, 3 x H x W each."""
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
        rows = [pictures for pictures in known.values() if pictures is not None]
        return list(zip(*rows, strict=True))

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
