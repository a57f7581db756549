"""What is raised when cells have failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from stockpot.errors import PartialResultsError, UserError
from stockpot.measure.cells import Cell


def raise_failures(failures: Sequence[tuple[Cell, Exception]], saved: int) -> NoReturn:
    """The one error of cells that failed, beside so many that are saved."""
    for _, error in failures:
        if not isinstance(error, UserError):
            raise error
    if saved == 0 and len({str(error) for _, error in failures}) == 1:
        raise failures[0][1]
    lines = "; ".join(
        f"{cell.model.name} x {cell.measure} x {cell.data.name}: {error}"
        for cell, error in failures
    )
    if saved == 0:  # nothing is partial about it
        raise UserError(f"all {len(failures)} cells failed. {lines}")
    count = f"{len(failures)} of {saved + len(failures)} cells failed, {saved} are saved."
    raise PartialResultsError(f"{count} {lines}")
