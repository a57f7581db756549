"""Is a cell answered already, by a file that was made as it would be made now?

A key knows the files of a model by their content, and not what the program reads from them. Where
another version brought pictures to the network otherwise, the saved answer is to another question.
"""

from __future__ import annotations

from stockpot.measure.cells import Cell, undefended
from stockpot.models.load import expected_preprocess
from stockpot.results.schema import CellKey, CellResult
from stockpot.results.store import ResultStore


def saved(cell: Cell, key: CellKey) -> CellResult | None:
    """The saved result of a cell; none where nothing is saved or it is doubted."""
    known = any_saved(cell, key)
    return None if known is None or is_doubted(cell, known) else known


def any_saved(cell: Cell, key: CellKey) -> CellResult | None:
    """The saved result of a cell, whether doubted or not."""
    store = ResultStore(cell.store) if cell.store else None
    return store.find(key, samples=cell.samples) if store else None


def is_doubted(cell: Cell, known: CellResult) -> bool:
    """Whether the pictures of a result may have reached the model otherwise than they would now.

    Only its folder is asked. A defence, an option or a part of its own may bring pictures in
    another way than that says, so whoever has loaded the model has the last word.
    """
    expected = expected_preprocess(cell.model.source, undefended(cell.model.options))
    return expected is not None and known.model.preprocessing != str(expected)
