"""What a cell will need beside its model, begun before that is loaded."""

from __future__ import annotations

from threading import Thread

import torch

from stockpot.corrupt.ranges import chosen_corruptions, chosen_severities
from stockpot.corrupt.rehearsal import rehearse
from stockpot.corrupt.sizes import SizeRule, sizing
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.encoded import EncodedImages
from stockpot.datasets.stream.geometry import Fit
from stockpot.errors import UserError
from stockpot.measure import measures
from stockpot.measure.cells import Cell, undefended
from stockpot.models.load import expected_preprocess


def decode_ahead(cell: Cell, data: Dataset) -> None:
    """Begin to decode the pictures of a cell, where it is known how it will want them."""
    if isinstance(data.images, EncodedImages):
        data.images.decode_ahead(_fits(cell, data))


def corrupt_ahead(cell: Cell, data: Dataset, device: torch.device) -> Thread | None:
    """Begin to rehearse the corruptions that a cell will make, if it makes any."""
    if cell.measure != "corruption" or cell.params.get("folder"):
        return None
    preprocess = expected_preprocess(cell.model.source, undefended(cell.model.options))
    if preprocess is None:
        return None
    try:
        asked = measures.get(cell.measure).validate(cell.params)
        names = chosen_corruptions(asked["corruptions"])
        levels = chosen_severities(asked["severities"])
    except UserError:
        return None  # the measure itself will say what is wrong
    return rehearse(
        [(name, severity) for name in names for severity in levels],
        sizing(data, preprocess, asked["size"]).corrupted_size(data),
        device,
        profile=asked["profile"],
        overlays=asked["overlays"],
    )


def _fits(cell: Cell, data: Dataset) -> tuple[Fit | None, ...]:
    if cell.measure not in ("clean", "corruption") or cell.params.get("folder"):
        return ()
    preprocess = expected_preprocess(cell.model.source, undefended(cell.model.options))
    if preprocess is None:
        return ()
    if cell.measure == "clean":
        return (preprocess.fit,)
    rule: SizeRule = "model" if cell.params.get("size") == "model" else "published"
    return sizing(data, preprocess, rule).fits(data)
