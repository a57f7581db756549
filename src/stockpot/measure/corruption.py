"""Accuracy under the ImageNet-C corruptions, made on the fly from the clean images.

Every batch is decoded once, kept as uint8 on the device, corrupted and classified for each cell of
the grid in turn; nothing is written. Some corrupted pictures are kept for the next model of a run
(`CorruptedBatches`); beyond that memory does not grow with the grid.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from stockpot.corrupt.apply import corrupt, image_size, picture_seeds
from stockpot.corrupt.constants import Profile, profile_for
from stockpot.corrupt.ranges import (
    Severities,
    chosen_corruptions,
    chosen_severities,
    family_of_names,
)
from stockpot.corrupt.sizes import SizeRule, Sizing, sizing, stored_fit, stored_pixels
from stockpot.corrupt.weather.frost import Overlays
from stockpot.datasets.corrupted.stored import CorruptionSet
from stockpot.datasets.dataset import ACCEPTED, Dataset
from stockpot.measure import measures
from stockpot.measure.corruption_scores import Cell, Grid, grid_scores
from stockpot.measure.mce import IMAGENET_C, NAMED_BASELINES, Baseline, named_baseline
from stockpot.measure.measurement import Context, Measurement
from stockpot.measure.stored_corruptions import StoredCorruptions, stored_cells
from stockpot.models.classifier import Classifier, evaluating
from stockpot.models.load import identify, load_for
from stockpot.score.class_space import ClassSpace
from stockpot.score.predictions import watching
from stockpot.score.scorer import scorer_for
from stockpot.types import ModelRef


@measures.register("corruption", paper="arXiv:1903.12261")
def corruption(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    corruptions: StoredCorruptions = "benchmark",
    severities: Severities = "1-5",
    baseline: ModelRef = "alexnet-constants",
    profile: Profile | Literal["auto"] = "auto",
    size: SizeRule = "published",
    overlays: Overlays = "procedural",
    folder: str | None = None,
    class_space: ClassSpace = "all",
) -> Measurement:
    """Error under each corruption and severity, mean corruption accuracy, mCE and relative mCE.

    Args:
        corruptions: `benchmark` (the fifteen), `extra` (the four), `all`, a family such as
            `imagenet-c-bar` or `cifar-10-c-bar`, or names; those of a folder with corruptions of
            its own (ImageNet-C-bar, ImageNet-3DCC, MNIST-C) there.
        severities: such as `1-5`, `1,2.5,5` or 3; between whole ones constants are interpolated.
        baseline: what errors are divided by: `alexnet-constants`, `alexnet-severities`, `none`, or
            any model, which is then measured in the same way.
        profile: whose constants: `imagenet` (224 px), `inception` (299 px), `tinyimagenet` (64 px),
            `cifar` (32 px), or `auto` by size.
        size: `published`: photographs are corrupted at 224 px and then brought whole to the model's
            size, small pictures of one size as they are, stored pictures of 224 px are not cropped
            again. `model`: at the size and with the crop of the model.
        overlays: frost's pictures: our `procedural` ones, or the classic `photographs` of an
            installed `imagecorruptions`.
        folder: existing corrupted images to read instead of corrupting here: ImageNet-C,
            CIFAR-10-C, CIFAR-100-C, Tiny-ImageNet-C, MNIST-C, ImageNet-C-bar, ImageNet-3DCC.
        class_space: as for `clean`.
    """
    levels, family = chosen_severities(severities), IMAGENET_C
    if folder is not None:
        stored = CorruptionSet(folder, data)
        cells, family = stored_cells(stored, corruptions, levels)
        grid = _stored_grid(model, data, context, cells, stored, class_space, size)
        cut = "not cropped again" if size == "published" else "as the model resizes and crops"
        recipe = f"read from {stored.description} (size={size}: {cut})"
    else:
        names = chosen_corruptions(corruptions)
        family = family_of_names(names) or family
        cells = [(name, severity) for name in names for severity in levels]
        measured = _Grids(data, context, cells, profile, size, overlays, class_space)
        grid = measured.of(model)
        recipe = _recipe(names, profile, overlays, data, sizing(data, model.preprocess, size))
    known: Baseline | None
    notes = [f"corruptions: {recipe}"]
    if baseline in NAMED_BASELINES:
        known = named_baseline(baseline)
        if known is not None and data.name.lower() not in ("imagenet", "imagenet-c"):
            notes.append(
                f"mCE divides by AlexNet's errors on ImageNet, which says little about {data.name};"
                " a measured model as baseline is a fairer yardstick"
            )
    else:
        yardstick = load_for(baseline, data, device=context.device)
        other = (
            _stored_grid(yardstick, data, context, cells, stored, class_space, size)
            if folder is not None
            else measured.of(yardstick)
        )
        known = Baseline(_short(baseline), other.errors(), other.clean_error())
    scored = grid_scores(grid, known, seed=context.seed, family=family)
    scorer = scorer_for(model.classes, data, class_space)
    return Measurement(
        scores=scored.scores,
        convention=scored.convention,
        images=len(data) * (len(cells) + 1),
        outcomes={
            "correct": grid.clean,
            **{f"{name}:{severity}": flags for (name, severity), flags in grid.cells.items()},
        },
        notes=(*notes, *scored.notes, *scorer.notes),
        class_space=scorer.description,
    )


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


_KEPT: dict[tuple[object, ...], Grid] = {}
"""Grids measured in this process: a baseline is often one of the models being measured."""
_PICTURES = CorruptedBatches()


class _Grids:
    """Measures whole grids for one dataset and setting."""

    def __init__(
        self,
        data: Dataset,
        context: Context,
        cells: list[Cell],
        profile: Profile | Literal["auto"],
        size: SizeRule,
        overlays: Overlays,
        class_space: ClassSpace,
    ) -> None:
        self.data, self.context, self.cells, self.size = data, context, cells, size
        self.profile, self.overlays, self.class_space = profile, overlays, class_space

    def of(self, model: Classifier) -> Grid:
        """The model's right and wrong answers in every cell."""
        key = (
            identify(model),
            *(self.data.fingerprint, tuple(self.cells), self.profile, self.size),
            *(self.overlays, self.class_space, self.context.seed, self.data.columns.get(ACCEPTED)),
            self.data.groups,
        )
        if key in _KEPT:
            return _KEPT[key]
        context, data = self.context, self.data
        way = sizing(data, model.preprocess, self.size)
        whole = self._set(way)
        scorer = scorer_for(model.classes, data, self.class_space)
        right: dict[Cell | None, list[NDArray[np.bool_]]]
        right = {cell: [] for cell in (None, *self.cells)}
        done, total = 0, len(data) * len(right)
        with evaluating(model), watching(model) as watch:
            for batch, base in way.batches(data, context.batch_size):
                images = base.to(context.device, non_blocking=True)
                seeds = picture_seeds(context.seed, batch.rows.tolist())
                for cell in right:
                    if cell is None:
                        seen = batch.images.to(context.device, non_blocking=True)
                    else:
                        place = (int(batch.rows[0]), cell)
                        seen = way.seen(self._corrupted(images, cell, seeds, whole, place))
                    flags = scorer.correct(model(seen).float(), batch.rows)
                    right[cell].append(flags.cpu().numpy())
                    done += len(images)
                    context.progress("corruption", done, total)
        joined = {cell: np.concatenate(parts) for cell, parts in right.items()}
        cells = {cell: joined[cell] for cell in self.cells}
        grid = Grid(joined.pop(None), cells, data.groups)
        if not watch.broken:  # a grid from memory would not say what the outputs were
            while len(_KEPT) >= 8:
                _KEPT.pop(next(iter(_KEPT)))
            _KEPT[key] = grid
        return grid

    def _set(self, way: Sizing) -> tuple[object, ...]:
        """All that corrupted pictures depend on; a model may have fitted them to its size."""
        context = self.context
        return (
            *(self.data.fingerprint, way.origin, context.batch_size, context.seed),
            *(str(context.device), self.profile, self.overlays),
        )

    def _corrupted(
        self,
        images: Tensor,
        cell: Cell,
        seeds: list[int],
        whole: Hashable,
        place: Hashable,
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


def _stored_grid(
    model: Classifier,
    data: Dataset,
    context: Context,
    cells: list[Cell],
    stored: CorruptionSet,
    class_space: ClassSpace,
    size: SizeRule,
) -> Grid:
    done, total = 0, len(data) * (len(cells) + 1)

    own = model.preprocess

    def fit(picture: Image.Image) -> Image.Image:
        return stored_fit(picture, own)

    def flags(part: Dataset, published: bool) -> Iterator[NDArray[np.bool_]]:
        nonlocal done
        scorer = scorer_for(model.classes, part, class_space)
        for batch in part.batches(context.batch_size, fit if published else own.fit):
            images = batch.images.to(context.device)
            outputs = model(stored_pixels(images, own) if published else images).float()
            yield scorer.correct(outputs, batch.rows).cpu().numpy()
            done += len(batch.labels)
            context.progress("corruption", done, total)

    with evaluating(model):
        clean = np.concatenate(list(flags(data, False)))
        published = size == "published"
        found = {cell: np.concatenate(list(flags(stored.load(*cell), published))) for cell in cells}
    return Grid(clean, found, data.groups)


def _recipe(
    names: tuple[str, ...],
    profile: Profile | Literal["auto"],
    overlays: Overlays,
    data: Dataset,
    way: Sizing,
) -> str:
    """What the numbers depend on: whose constants at which size, and which frost."""
    _, first = next(iter(way.batches(data, 1)))
    size = image_size(first)
    chosen = profile_for(size) if profile == "auto" else profile
    frost = f", {overlays} frost" if "frost" in names else ""
    return f"{chosen} constants {way.description(size)}{frost}"


def _short(source: str) -> str:
    return source.rstrip("/").rpartition("/")[2].removeprefix("zoo:")
