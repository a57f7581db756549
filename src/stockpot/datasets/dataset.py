"""A labelled image dataset: a frozen value that every measure and method reads the same way.

Images of one size stay decoded as one uint8 tensor (`TensorImages`). Images of many sizes stay
encoded (`EncodedImages`) and are decoded by a few threads as batches are asked for, through the
`fit` of the model that asks, since only a model knows the size it wants.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, overload

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from stockpot.datasets.stream.geometry import Fit
from stockpot.datasets.stream.transfer import all_moved
from stockpot.datasets.words.words import Words
from stockpot.errors import BadDataError, BadParameterError
from stockpot.stages import waited

ACCEPTED = "accepted"
"""The column of all classes that are right for a picture, by number with spaces between; data
without it accepts the label alone."""

ORIGINAL = "original"
"""The column that says which picture a picture was made from, where many come from one: pictures
of one original are not independent. Where it is, `STRATA` say how they were made."""
STRATA = ("corruption", "severity")


class Batch(NamedTuple):
    """Some rows of a dataset: uint8 NCHW images, labels, and their row numbers."""

    images: Tensor
    labels: Tensor
    rows: Tensor


class Example(NamedTuple):
    """One picture as it is, and the number of its class."""

    image: Image.Image
    label: int


class Images(Protocol):
    """Pictures by row number, decoded when they are asked for."""

    def __len__(self) -> int: ...

    def take(self, index: Sequence[int]) -> Images:
        """The pictures of these rows, in this order."""
        ...

    def batches(self, size: int, fit: Fit | None) -> Iterator[Tensor]:
        """Consecutive uint8 NCHW batches of at most `size` pictures."""
        ...

    def several(self, size: int, fits: Sequence[Fit | None]) -> Iterator[tuple[Tensor, ...]]:
        """The same batches through several fits."""
        ...


@dataclass(frozen=True)
class TensorImages:
    """Pictures of one size, decoded, as one uint8 NCHW tensor."""

    pixels: Tensor

    def __post_init__(self) -> None:
        if self.pixels.dtype != torch.uint8 or self.pixels.ndim != 4 or self.pixels.shape[1] != 3:
            raise BadDataError(
                "expected images as uint8 N x 3 x H x W, "
                f"got {self.pixels.dtype} of shape {tuple(self.pixels.shape)}."
            )

    def __len__(self) -> int:
        return len(self.pixels)

    def __repr__(self) -> str:
        return f"TensorImages({' x '.join(map(str, self.pixels.shape))})"

    def take(self, index: Sequence[int]) -> TensorImages:
        """The pictures of these rows, in this order."""
        return TensorImages(self.pixels[torch.as_tensor(index, dtype=torch.long)])

    def batches(self, size: int, fit: Fit | None) -> Iterator[Tensor]:
        """Consecutive slices; `fit` is not needed, a model resizes equal pictures by itself."""
        for start in range(0, len(self), size):
            yield self.pixels[start : start + size]

    def several(self, size: int, fits: Sequence[Fit | None]) -> Iterator[tuple[Tensor, ...]]:
        """The same slices for every fit."""
        return ((pixels,) * len(fits) for pixels in self.batches(size, None))


def is_fitted(images: Images) -> bool:
    """Whether pictures come through the `fit` of whoever asks; those of one size do not."""
    return not isinstance(images, TensorImages)


@dataclass(frozen=True)
class Dataset:
    """Images, labels, and what one must know to score a model on them."""

    name: str
    split: str
    images: Images
    labels: Tensor
    classes: tuple[str, ...]
    fingerprint: str
    licence: str = "unknown"
    templates: tuple[str, ...] = ("a photo of a {}.",)
    prompts: tuple[tuple[str, ...], ...] = ()
    """All captions of each class, where templates around its name would not say them."""
    vocabulary: Words | None = None
    """How classes are called and in which sentences, by a convention or a user's own words; class
    names in `templates` where this is none."""
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Further facts of each row, such as an icon's style and design family."""
    masks: Tensor | None = None
    """Where the object is, as N x H x W booleans, for data that knows."""

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise BadDataError(
                f"{self.name}: expected one label per image, got {len(self.images)} images and "
                f"{len(self.labels)} labels."
            )
        if self.vocabulary is not None and len(self.vocabulary.names) != len(self.classes):
            raise BadDataError(
                f"{self.name}: expected words for {len(self.classes)} classes, got "
                f"{len(self.vocabulary.names)}."
            )
        if self.masks is not None and len(self.masks) != len(self.labels):
            raise BadDataError(
                f"{self.name}: expected one mask per image, got {len(self.masks)} for "
                f"{len(self.labels)}."
            )
        if len(self.labels) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(
            self.classes
        ):
            raise BadDataError(
                f"{self.name}: labels go from {int(self.labels.min())} to {int(self.labels.max())}"
                f", but there are {len(self.classes)} classes."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __str__(self) -> str:
        return f"{self.name}:{self.split}"

    def __repr__(self) -> str:
        shown = ", ".join(self.classes[:3]) + (", ..." if len(self.classes) > 3 else "")
        return (
            f"Dataset({self}, {len(self):,} images, {len(self.classes):,} classes ({shown}), "
            f"fingerprint {self.fingerprint[:12]})"
        )

    def _repr_html_(self) -> str:
        from stockpot.datasets.told.gallery import dataset_html

        return dataset_html(self)

    @overload
    def __getitem__(self, row: int) -> Example: ...

    @overload
    def __getitem__(self, row: slice) -> Dataset: ...

    def __getitem__(self, row: int | slice) -> Example | Dataset:
        """A picture with its label, `image, label = data[0]`; the dataset of a slice of rows."""
        if isinstance(row, slice):
            return self.take(range(len(self))[row])
        place = range(len(self))[row]  # counts from the end too, and says where there is none
        (pixels,) = next(iter(self.images.take([place]).batches(1, None)))
        picture = Image.fromarray(pixels.permute(1, 2, 0).numpy())
        return Example(picture, int(self.labels[place]))

    def batches(
        self, size: int = 256, fit: Fit | None = None, device: torch.device | None = None
    ) -> Iterator[Batch]:
        """All rows in order, `size` at a time, with the images on a device if one is given."""
        source = ((images,) for images in self.images.batches(size, fit))
        for (batch,) in self._batches(source, device):
            yield batch

    def several(
        self, size: int, fits: Sequence[Fit | None], device: torch.device | None = None
    ) -> Iterator[tuple[Batch, ...]]:
        """The same through several fits; encoded pictures are decoded once for all of them."""
        return self._batches(self.images.several(size, fits), device)

    def _batches(
        self, source: Iterator[tuple[Tensor, ...]], device: torch.device | None
    ) -> Iterator[tuple[Batch, ...]]:
        start = 0
        there = source if device is None else all_moved(source, device)
        for found in waited("decode", there):
            rows = torch.arange(start, start + len(found[0]))
            start += len(rows)
            yield tuple(Batch(images, self.labels[rows], rows) for images in found)

    def take(self, index: Sequence[int] | Tensor) -> Dataset:
        """The dataset of these rows; its fingerprint says which were taken."""
        rows = [int(row) for row in index]
        chosen = hashlib.sha256(np.asarray(rows, dtype=np.int64).tobytes()).hexdigest()
        return replace(
            self,
            images=self.images.take(rows),
            labels=self.labels[torch.as_tensor(rows, dtype=torch.long)],
            columns={
                key: tuple(values[row] for row in rows) for key, values in self.columns.items()
            },
            masks=None if self.masks is None else self.masks[torch.tensor(rows, dtype=torch.long)],
            fingerprint=hashlib.sha256(f"{self.fingerprint}:{chosen}".encode()).hexdigest(),
        )

    def limited(self, limit: int | None, seed: int = 0) -> Dataset:
        """A random, seeded subset of at most `limit` rows, in their original order."""
        if limit is None:
            return self
        if not isinstance(limit, int | np.integer) or limit < 1:
            raise BadParameterError(f"limit: expected at least 1 image, got {limit!r}.")
        if limit >= len(self):
            return self
        return self.take(limited_rows(len(self), limit, seed))

    @property
    def groups(self) -> tuple[str, ...] | None:
        """The original of each picture, where pictures were made from others."""
        return self.columns.get(ORIGINAL)

    @property
    def accepted(self) -> list[tuple[int, ...]] | None:
        """All classes that are right for each picture; none where only the label is."""
        if ACCEPTED not in self.columns:
            return None
        try:
            found = [tuple(map(int, text.split())) for text in self.columns[ACCEPTED]]
        except ValueError as problem:
            raise BadDataError(f"{self.name}: column {ACCEPTED}: {problem}.") from None
        count = len(self.classes)
        for row, classes in enumerate(found):
            if not classes or not all(0 <= number < count for number in classes):
                raise BadDataError(
                    f"{self.name}: column {ACCEPTED}: expected class numbers below {count}, got "
                    f"{self.columns[ACCEPTED][row]!r} in row {row}.",
                    hint="Leave out pictures for which no class is right.",
                )
        return found

    def where(self, **columns: str) -> Dataset:
        """The rows whose columns have exactly these values."""
        rows = range(len(self))
        for key, wanted in columns.items():
            if key not in self.columns:
                known = ", ".join(self.columns) or "none"
                raise BadParameterError(f"{self.name} has no column {key!r}. Columns: {known}.")
            values = self.columns[key]
            rows = [row for row in rows if values[row] == wanted]  # type: ignore[assignment]
        return self.take(list(rows))


def limited_rows(count: int, limit: int, seed: int = 0) -> Tensor:
    """The rows that a limit takes of so many."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(count, generator=generator)[:limit].sort().values


def pixel_fingerprint(pixels: Tensor, labels: Tensor, classes: Sequence[str]) -> str:
    """The sha256 of decoded pixels, labels and class names: what a score depends on."""
    digest = hashlib.sha256()
    digest.update(repr((tuple(pixels.shape), tuple(classes))).encode())
    digest.update(pixels.contiguous().numpy().tobytes())
    digest.update(labels.to(torch.int64).contiguous().numpy().tobytes())
    return digest.hexdigest()
