"""What a search found, on disk: a file for each batch, so that memory holds one batch at a time.

A killed search goes on after the last whole file. Pictures are read back when they are asked for.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from stockpot.files import write_atomic

IMAGES = "images"
PICTURED = "pictured"
"""The rows whose images a shard holds, in their order."""
_SUFFIX = ".safetensors"


class Shards:
    """The files of one search; rows are those of the data, from 0 on without a gap."""

    def __init__(self, folder: Path | None = None, start: int = 0) -> None:
        """Look what is there.

        Args:
            folder: where the files are; a folder that goes with this object where none is given.
            start: the first row, for a part of the data.
        """
        if folder is None:
            # Without a place to go on from, the files go with this object.
            folder = Path(tempfile.mkdtemp(prefix="stockpot-"))
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._start = start
        self.parts: list[tuple[int, int, Path]] = []
        for path in sorted(self.folder.glob(f"*{_SUFFIX}")):
            first, _, stop = path.name.removesuffix(_SUFFIX).partition("-")
            if int(first) == self.done:
                self.parts.append((int(first), int(stop), path))

    @property
    def done(self) -> int:
        """The row after the last that is there."""
        return self.parts[-1][1] if self.parts else self._start

    def add(
        self,
        found: Mapping[str, Tensor],
        notes: Sequence[str],
        count: int,
        told: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the next rows: tensors of `count` rows each, and images of those pictured.

        `told` is what else is said of how they were found.
        """
        start, stop = self.done, self.done + count
        path = self.folder / f"{start:08d}-{stop:08d}{_SUFFIX}"
        plain = {name: tensor.contiguous() for name, tensor in found.items()}
        said = {"notes": json.dumps(list(notes)), "told": json.dumps(dict(told or {}))}
        write_atomic(path, save(plain, metadata=said))
        self.parts.append((start, stop, path))

    def column(self, name: str) -> Tensor:
        """One fact of all rows."""
        parts = []
        for _, _, path in self.parts:
            with safe_open(path, "pt") as file:
                parts.append(file.get_tensor(name))
        return torch.cat(parts)

    def told(self) -> list[dict[str, Any]]:
        """What was said of how the rows were found, file by file."""
        found = []
        for _, _, path in self.parts:
            with safe_open(path, "pt") as file:
                found.append(json.loads(file.metadata().get("told", "{}")))
        return found

    def notes(self) -> list[str]:
        """What was noted on the way, each once."""
        found: dict[str, None] = {}
        for _, _, path in self.parts:
            with safe_open(path, "pt") as file:
                found |= dict.fromkeys(json.loads(file.metadata()["notes"]))
        return list(found)

    def images(self, rows: Sequence[int]) -> Iterator[Tensor]:
        """The uint8 images of some rows in ascending order, one after the other; all were kept."""
        for start, stop, path in self.parts:
            own = [row for row in rows if start <= row < stop]
            if not own:
                continue
            with safe_open(path, "pt") as file:
                places = {
                    row: place for place, row in enumerate(file.get_tensor(PICTURED).tolist())
                }
                pixels = file.get_slice(IMAGES)
                for row in own:
                    yield pixels[places[row] : places[row] + 1][0]
