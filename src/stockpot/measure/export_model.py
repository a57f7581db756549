"""`stockpot export MODEL --to onnx`: write a model as it ships, and measure what that changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stockpot.checkpoints.folder import check_free
from stockpot.checkpoints.record import Record
from stockpot.checkpoints.resolve import resolve
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.errors import BadParameterError, UnknownNameError
from stockpot.harden.trained_on import recorded, trained_on
from stockpot.models.classifier import Classifier, evaluating
from stockpot.models.inputs import model_input, seen_of
from stockpot.models.load import load_for, load_model
from stockpot.models.shipped.probes import probes
from stockpot.models.shipped.write import FILES, Format, write_shipped
from stockpot.results.provenance import provenance
from stockpot.results.statistics import Interval, share_interval

_PROBES = 64


class Difference(NamedTuple):
    """How the answers of a shipped model differ from those of the one it was made from."""

    n: int
    """Images that both were asked about."""
    on: str
    """What images they were."""
    largest: float
    """The largest difference of a logit."""
    share: float
    """The same as a share of the largest logit."""
    changed: int
    """Images that are answered with another class."""
    interval: Interval
    """Of the share of changed answers, 95 %."""

    def __str__(self) -> str:
        low, high = self.interval.low, self.interval.high
        return (
            f"{self.changed} of {self.n} answers changed "
            f"({self.changed / self.n:.2%}, 95 % interval {low:.2%} to {high:.2%}); largest "
            f"difference of a logit {self.largest:.2g} ({self.share:.1g} of the largest); {self.on}"
        )


class Exported(NamedTuple):
    """A written file and what it changes."""

    file: Path
    difference: Difference


def export_model(
    source: str | Path,
    to: Format,
    out: str | Path,
    *,
    data: str | Dataset | None = None,
    split: str | None = None,
    limit: int | None = 200,
    options: Mapping[str, Any] | None = None,
) -> Exported:
    """Write a model as `out/model.onnx` or `out/model.pt2` and compare their answers.

    Args:
        source: as for `load_model`.
        to: `onnx` or `torch-export`.
        out: a folder that does not exist or is empty.
        data: images to compare them on, and classes for a model that needs to be told them; soft
            patches of colour when left out, which no model has an opinion on.
        split: of the data.
        limit: at most this many images.
        options: those of `load_model`.
    """
    if to not in FILES:
        raise UnknownNameError("format of a model", to, FILES)
    folder = Path(out)
    if folder.suffix in (".onnx", ".pt2"):
        raise BadParameterError(
            f"--out {out}: expected a folder, which will hold {FILES[to]} and its record.",
            hint=f"Give -o {folder.with_suffix('')}.",
        )
    check_free(folder)
    given = dict(options or {})
    images = load_dataset(data, split=split, limit=limit) if isinstance(data, str) else data
    model = load_for(source, images, options=given) if images else load_model(source, **given)
    made = recorded(source, given.get("revision"))
    defence = made.parameters.get("defend") if made else None
    record = Record(
        verb="export",
        method=to,
        parameters={"classes": list(model.classes), **({"defend": defence} if defence else {})},
        inputs=[model_input("model", source, resolve(source).name, given)],
        trained_on=trained_on(source, given.get("revision")),
        versions=provenance().model_dump(),
    )
    file = write_shipped(model, to, folder, record, seen_of(source, given))
    return Exported(file, difference(model, load_model(str(file)), images))


def difference(model: Classifier, shipped: Classifier, data: Dataset | None = None) -> Difference:
    """Ask both about the same images."""
    largest, scale, changed = 0.0, 1e-12, []
    with evaluating(model), evaluating(shipped):
        for pixels in _pixels(model, data):
            meant, found = model(pixels).float(), shipped(pixels).float()
            largest = max(largest, float((meant - found).abs().amax()))
            scale = max(scale, float(meant.abs().amax()))
            changed.append((meant.argmax(1) != found.argmax(1)).cpu().numpy())
    flags = np.concatenate(changed)
    on = f"on {data}" if data is not None else "on patches of colour (--data for pictures)"
    groups = data.groups if data is not None else None
    interval = share_interval(flags, groups)
    return Difference(len(flags), on, largest, largest / scale, int(flags.sum()), interval)


def _pixels(model: Classifier, data: Dataset | None) -> Iterator[Tensor]:
    if data is None:
        yield from torch.split(probes(model.preprocess, _PROBES), 32)
        return
    for batch in data.batches(32, model.preprocess.fit):
        yield model.preprocess.fit_tensor(batch.images.float() / 255)
