"""Who was right about which image, a bit each: what is measured, and what is taken up again."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stockpot.files import write_atomic

Flags = NDArray[np.bool_]


class Answers:
    """Arrays of booleans by name, in one file; added to, and written now and then."""

    def __init__(self, path: Path, seconds: float = 20.0) -> None:
        self.path = path
        self.found: dict[str, Flags] = {}
        self._seconds, self._saved = seconds, time.monotonic()
        if path.exists():
            with np.load(path) as kept:
                packed = kept["bits"]
                start = 0
                for name, *shape in json.loads(bytes(kept["names"])):
                    count = int(np.prod(shape))
                    size = -(-count // 8)
                    bits = np.unpackbits(packed[start : start + size], count=count)
                    self.found[name] = bits.astype(bool).reshape(shape)
                    start += size

    def __contains__(self, name: str) -> bool:
        return name in self.found

    def __getitem__(self, name: str) -> Flags:
        return self.found[name]

    def add(self, name: str, flags: Flags) -> None:
        """Add an array; the file is written where the last time is long ago."""
        self.found[name] = np.asarray(flags, dtype=bool)
        if time.monotonic() - self._saved > self._seconds:
            self.save()

    def save(self) -> None:
        """Write the file, whole."""
        names = json.dumps([[name, *flags.shape] for name, flags in self.found.items()]).encode()
        packed = [np.packbits(flags) for flags in self.found.values()]
        bits = np.concatenate(packed) if packed else np.zeros(0, np.uint8)
        stream = io.BytesIO()
        np.savez_compressed(stream, names=np.frombuffer(names, np.uint8), bits=bits)
        write_atomic(self.path, stream.getvalue())
        self._saved = time.monotonic()
