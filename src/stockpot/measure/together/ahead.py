"""Which pictures a cell will go through, known before its model is loaded."""

from __future__ import annotations

from stockpot.corrupt.sizes import SizeRule, sizing
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.encoded import EncodedImages
from stockpot.datasets.stream.geometry import Fit
from stockpot.measure.cells import Cell, undefended
from stockpot.models.load import expected_preprocess


def decode_ahead(cell: Cell, data: Dataset) -> None:
    """Begin to decode the pictures of a cell, where it is known how it will want them."""
    if isinstance(data.images, EncodedImages):
        data.images.decode_ahead(_fits(cell, data))


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
