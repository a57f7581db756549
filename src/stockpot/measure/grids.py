"""A model's right and wrong answers, clean and in every cell of a grid of corruptions.

Every batch is decoded once, kept as uint8 on the device, corrupted and shown, for each cell of the
grid in turn, to all models that are measured together; nothing is written. Some corrupted pictures
are kept for the next models of a run (`CorruptedBatches`); beyond that memory does not grow with
the grid.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Thread
from typing import Literal, NamedTuple

import torch
from PIL import Image
from torch import Tensor

from stockpot.corrupt.apply import corrupt, picture_seeds
from stockpot.corrupt.constants import Profile
from stockpot.corrupt.rehearsal import rehearse
from stockpot.corrupt.sizes import SizeRule, Sizing, sizing, stored_fit, stored_pixels
from stockpot.corrupt.weather.frost import Overlays
from stockpot.datasets.corrupted.stored import CorruptionSet
from stockpot.datasets.dataset import ACCEPTED, Dataset
from stockpot.datasets.stream.transfer import moved
from stockpot.measure.corruption_scores import Cell, Grid
from stockpot.measure.measurement import Context, recall_passes, span, told_of
from stockpot.measure.parts import Part, Piece, Since, as_range, seen_again, window
from stockpot.measure.samples.said import Note
from stockpot.measure.together.pictures import geometry
from stockpot.measure.together.steps import Steps
from stockpot.models.classifier import Classifier
from stockpot.models.load import identify
from stockpot.models.preprocess import Preprocess
from stockpot.results.resamples import draw_ahead
from stockpot.score.class_space import ClassSpace
from stockpot.score.predictions import watching
from stockpot.score.scorer import Scorer, scorer_for
from stockpot.stages import stage
from stockpot.types import ImageSize

ROOM = 2**28
"""Bytes that are kept at most: all 75 cells of CIFAR-10-C for a thousand images."""


class CorruptedBatches:
    """Corrupted pictures by place in their set, made once for all models that a process measures.

    Some corruptions take longer than the models. The pictures of the last set stay as uint8, where
    the model is, as far as there is room; what does not fit is made anew each time.
    """

    def __init__(self, room: int = ROOM) -> None:
        self.room = room
        self._set: Hashable = None
        self._kept: dict[Hashable, Tensor] = {}
        self._bytes = 0

    def find(self, whole: Hashable, place: Hashable) -> Tensor | None:
        """The pictures at a place of a set, if they are here.

        Args:
            whole: everything that the pictures of the set depend on; another set replaces this one.
            place: which of them: rows, corruption and severity.
        """
        if whole != self._set:
            self._set, self._kept, self._bytes = whole, {}, 0
        return self._kept.get(place)

    def keep(self, place: Hashable, made: Tensor) -> None:
        """Keep pictures of the set that was asked for last, if there is room."""
        size = made.element_size() * made.nelement()
        # The first ones are kept: every model asks in the same order, so the last ones would
        # always have gone by the time they are wanted.
        if self._bytes + size <= self.room:
            self._kept[place] = made
            self._bytes += size


_PICTURES = CorruptedBatches()
_KEPT: dict[tuple[object, ...], Grid] = {}
"""Grids measured in this process: a baseline is often one of the models being measured."""
_GRIDS = 16


class InCell(NamedTuple):
    """A batch as a model sees it in one cell of the grid; in none of them it is clean."""

    pixels: Tensor
    rows: Tensor
    cell: Cell | None
    part: Dataset
    """Whose rows they are."""


@dataclass(frozen=True)
class Grids(ABC):
    """Measures whole grids for one dataset and setting."""

    data: Dataset
    context: Context
    cells: list[Cell]
    class_space: ClassSpace
    size: SizeRule

    def of(self, model: Classifier, identity: str = "", *, noted: bool = False) -> Steps[Grid]:
        """The model's right and wrong answers in every cell; taken inside `evaluating(model)`.

        Args:
            model: what is asked.
            identity: what tells it from every other, where that is known; its weights otherwise.
            noted: whether its answers are those of the result, for per-image records.
        """
        context, data = self.context, self.data
        setting = (*self.about(), data.fingerprint, tuple(self.cells), self.size, context.seed)
        how = (self.class_space, data.columns.get(ACCEPTED), data.groups, context.forward)
        who = (identity or identify(model), model.preprocess, model.classes)
        key = (*who, *setting, *how)
        noted = noted and context.said is not None
        if key in _KEPT and not noted:  # a grid from memory does not say what was answered
            _KEPT[key] = _KEPT.pop(key)  # the last one asked for is the last to go
            return _KEPT[key]
        scorer: tuple[Dataset, Scorer] | None = None
        notes: dict[Cell | None, Note] = {}
        right: dict[Cell | None, list[Tensor]] = {cell: [] for cell in (None, *self.cells)}
        known, keeps = context.pieces.begin(len(data), context.batch_size)
        if known is not None:
            return self._recalled(model, known)
        part = context.pieces.part if keeps else None
        done, total = 0, len(data) * len(right)
        if context.device.type != "cpu":
            draw_ahead(len(data), context.seed, data.groups)  # the processor has little to do
        run = context.passes(model)
        shown = context.pictures.shared(
            (*setting, context.batch_size, str(context.device), geometry(model.preprocess), part),
            lambda: self.pictures(model.preprocess, part),
            context.device,
            "corrupt",
        )
        with watching(model) as watch:
            since = Since(watch)
            last = self.cells[-1] if self.cells else None
            for pixels, rows, cell, whose in shown:
                if scorer is None or scorer[0] is not whose:
                    own = scorer_for(model.classes, whose, self.class_space)
                    scorer = (whose, own.to(context.device))
                if noted and int(rows[0]) == 0:
                    notes[cell] = context.note(_record(cell), whose, scorer[1])
                with stage("forward"):
                    outputs = run(pixels)
                # Left on the device: to bring answers over is to wait for them.
                logits = scorer[1].logits(outputs)
                right[cell].append(scorer[1].right(logits, span(rows))[:, 0])
                if noted:
                    notes[cell](logits, span(rows))
                if keeps and cell == last:  # the batch was seen in all cells
                    place = len(right[cell]) - 1
                    found = {_record(each): parts[place] for each, parts in right.items()}
                    context.pieces.keep(as_range(rows), found, {**since.now(), **told_of(run)})
                done += len(rows)
                context.progress("corruption", done, total)
                yield None
        if keeps:
            context.pieces.end()
        grid = self._joined(right)
        if not watch.broken:  # a grid from memory would not say what the outputs were
            while len(_KEPT) >= _GRIDS:
                _KEPT.pop(next(iter(_KEPT)))
            _KEPT[key] = grid
        return grid

    def _joined(self, right: Mapping[Cell | None, Sequence[Tensor]]) -> Grid:
        joined = {cell: torch.cat(list(parts)).cpu().numpy() for cell, parts in right.items()}
        cells = {cell: joined[cell] for cell in self.cells}
        return Grid(joined.pop(None), cells, self.data.groups)

    def _recalled(self, model: Classifier, pieces: Sequence[Piece]) -> Grid:
        """The grid that workers have kept."""
        recall_passes(self.context, [piece.about for piece in pieces])
        for piece in pieces:
            seen_again(model, piece.about)
        cells: tuple[Cell | None, ...] = (None, *self.cells)
        return self._joined(
            {cell: [piece.found[_record(cell)] for piece in pieces] for cell in cells}
        )

    @abstractmethod
    def about(self) -> tuple[Hashable, ...]:
        """What else decides the pictures of the cells."""

    @abstractmethod
    def pictures(self, preprocess: Preprocess, part: Part | None = None) -> Iterator[InCell]:
        """All batches, clean and in every cell, as models of this preprocessing see them."""


def _record(cell: Cell | None) -> str:
    """How the outcome of a cell is called in results."""
    return "correct" if cell is None else f"{cell[0]}:{cell[1]}"


@dataclass(frozen=True)
class MadeGrids(Grids):
    """Of pictures that are corrupted here."""

    profile: Profile | Literal["auto"]
    overlays: Overlays

    def about(self) -> tuple[Hashable, ...]:
        """Whose constants, and which frost."""
        return ("made", self.profile, self.overlays)

    def pictures(self, preprocess: Preprocess, part: Part | None = None) -> Iterator[InCell]:
        """Each batch clean, then corrupted in every way, before the next one is decoded."""
        context, data = self.context, self.data
        way = sizing(data, preprocess, self.size)
        whole = self._set(way)
        if context.device.type != "cpu":  # which has its hands full with decoding
            with stage("corrupt"):
                self.rehearsed(way.corrupted_size(data)).join()
        own = window(data, part, context.batch_size)
        for found, images in way.batches(own.data, context.batch_size, context.device):
            batch = own.placed(found)
            yield InCell(batch.images, batch.rows, None, data)
            seeds = picture_seeds(context.seed, batch.rows.tolist())
            for cell in self.cells:
                place = (int(batch.rows[0]), cell)
                with stage("corrupt"):
                    seen = way.seen(self._corrupted(images, cell, seeds, whole, place))
                yield InCell(seen, batch.rows, cell, data)

    def rehearsed(self, size: ImageSize) -> Thread:
        """What has the corruptions done once; begun now, if it was not when the cell was opened."""
        return rehearse(
            self.cells, size, self.context.device, profile=self.profile, overlays=self.overlays
        )

    def _set(self, way: Sizing) -> tuple[object, ...]:
        """All that corrupted pictures depend on; a model may have fitted them to its size."""
        context = self.context
        return (
            *(self.data.fingerprint, way.origin, context.batch_size, context.seed),
            *(str(context.device), self.profile, self.overlays),
        )

    def _corrupted(
        self, images: Tensor, cell: Cell, seeds: list[int], whole: Hashable, place: Hashable
    ) -> Tensor:
        """The corrupted pictures, kept or made now."""
        known = _PICTURES.find(whole, place)
        if known is not None:
            return known
        name, severity = cell
        options = {"overlays": self.overlays} if name == "frost" else {}
        made = corrupt(images, name, severity, seed=seeds, profile=self.profile, **options)
        _PICTURES.keep(place, made)
        return made


@dataclass(frozen=True)
class StoredGrids(Grids):
    """Of corrupted pictures that somebody has written."""

    stored: CorruptionSet

    def about(self) -> tuple[Hashable, ...]:
        """Which files; they may change until the next time that they are read."""
        return ("stored", str(self.stored.folder), self.context.pictures.mark)

    def pictures(self, preprocess: Preprocess, part: Part | None = None) -> Iterator[InCell]:
        """The clean set, then that of each cell."""
        yield from self._batches(None, self.data, preprocess, part)
        for cell in self.cells:
            yield from self._batches(cell, self.stored.load(*cell), preprocess, part)

    def _batches(
        self, cell: Cell | None, whose: Dataset, preprocess: Preprocess, part: Part | None
    ) -> Iterator[InCell]:
        published = cell is not None and self.size == "published"

        def fit(picture: Image.Image) -> Image.Image:
            return stored_fit(picture, preprocess)

        size = self.context.batch_size
        own = window(whose, part, size)
        for batch in own.batches(size, fit if published else preprocess.fit):
            images = moved(batch.images, self.context.device)
            pixels = stored_pixels(images, preprocess) if published else images
            yield InCell(pixels, batch.rows, cell, whose)
