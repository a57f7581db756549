"""A pass over the images in parts: workers find the pieces, and the measure finds them on disk.

A cell with `shards` is measured n + 1 times. The first n times each run goes through its own
batches of the measure's first pass, keeps what the model answered, and ends there (`PartDone`).
The last run is the measure itself, on all images: what is kept it reads, the rest it computes. So
its scores are those of an undivided run, whatever became of the parts. Parts are cut between
batches: rounding may differ with what else is in a batch, and so no batch is made anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from stockpot.datasets.dataset import Batch, Dataset
from stockpot.datasets.stream.geometry import Fit
from stockpot.files import write_atomic
from stockpot.models.classifier import Classifier
from stockpot.results.schema import ForwardFacts
from stockpot.score.predictions import Watch, recall


class PartDone(Exception):  # noqa: N818 (it is no error)
    """A part of a cell is whole; there is nothing to score yet."""


class Part(NamedTuple):
    """Which of how many."""

    number: int
    of: int

    def rows(self, count: int, size: int) -> range:
        """Its rows of so many, in whole batches."""
        batches = -(-count // size)
        first, last = (n * batches // self.of * size for n in (self.number, self.number + 1))
        return range(first, min(last, count))


class Window(NamedTuple):
    """Rows of a dataset that follow one another, and where they begin."""

    data: Dataset
    start: int

    def batches(
        self, size: int, fit: Fit | None = None, device: torch.device | None = None
    ) -> Iterator[Batch]:
        """Its batches, with the rows of the whole."""
        for batch in self.data.batches(size, fit, device):
            yield self.placed(batch)

    def placed(self, batch: Batch) -> Batch:
        """A batch with its rows of the whole."""
        return batch._replace(rows=batch.rows + self.start) if self.start else batch


def window(data: Dataset, part: Part | None, size: int) -> Window:
    """The rows of a part; all of them where there are no parts."""
    if part is None or part.of == 1:
        return Window(data, 0)
    rows = part.rows(len(data), size)
    return Window(data.take(rows), rows.start)


class Recalled(NamedTuple):
    """How the passes of pieces were made, as `Passes` tells it of itself."""

    facts: ForwardFacts
    notes: list[str]


@dataclass
class Pieces:
    """What was found of some rows, in files; of the first pass of one cell."""

    folder: Path | None
    part: Part | None = None
    gone: bool = field(default=False, init=False)
    """Whether the first pass has begun: the later ones are not divided."""

    def begin(self, count: int, size: int) -> Begun:
        """A pass over so many images begins; what is there of it, and whether to keep more."""
        first, self.gone = not self.gone, True
        if not first or self.folder is None:
            return Begun(None, False)
        if self.part is not None:
            return Begun(None, True)
        if not self.folder.is_dir():
            return Begun(None, False)
        starts = range(0, count, size)
        found = [self.find(range(start, min(start + size, count))) for start in starts]
        # With a piece missing the pass is made as if there were none: as a whole, in step.
        whole = [piece for piece in found if piece is not None]
        return Begun(whole if len(whole) == len(found) else None, False)

    def find(self, rows: range) -> Piece | None:
        """What is kept of these rows."""
        path = self._path(rows)
        try:
            with safe_open(path, "pt") as file:
                found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                about = json.loads(file.metadata()["about"])
                return Piece(rows, found, about)
        except (OSError, SafetensorError, ValueError, KeyError, TypeError):
            return None  # not there, or not whole: it is made again

    def keep(self, rows: range, found: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        """Keep what was found of these rows."""
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in found.items()}
        write_atomic(self._path(rows), save(plain, metadata={"about": json.dumps(dict(about))}))

    def end(self) -> None:
        """The pass is over; a part ends here."""
        if self.part is not None:
            raise PartDone

    def _path(self, rows: range) -> Path:
        if self.folder is None:
            raise FileNotFoundError("pieces without a folder")
        return self.folder / f"{rows.start:08d}-{rows.stop:08d}.safetensors"


class Piece(NamedTuple):
    """Tensors of some rows, and what is said of them."""

    rows: range
    found: dict[str, Tensor]
    about: dict[str, Any]


class Begun(NamedTuple):
    """A pass over the images that begins."""

    pieces: list[Piece] | None
    """All that it would find, where it was found before."""
    keeps: bool
    """Whether it is a part, whose pieces are to be kept."""


def as_range(rows: Tensor) -> range:
    """The rows of a batch, which follow one another."""
    return range(int(rows[0]), int(rows[-1]) + 1)


class Since:
    """What a watch has seen since it was asked last, to be kept beside a piece."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._seen, self._broken = watch.seen, watch.broken

    def now(self) -> dict[str, int]:
        """The answers, and those of them that are no numbers."""
        before = self._seen, self._broken
        self._seen, self._broken = self._watch.seen, self._watch.broken
        return {"seen": self._seen - before[0], "broken": self._broken - before[1]}


def seen_again(model: Classifier, about: Mapping[str, Any]) -> None:
    """Tell who watches the model what was seen of it when a piece was made."""
    recall(model, int(about.get("seen", 0)), int(about.get("broken", 0)))
