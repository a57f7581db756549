"""What several pages of a leaderboard say of a model or of its place, in the same words."""

from __future__ import annotations

from stockpot.board.boards import Board, Row
from stockpot.board.gather import Contender
from stockpot.report.design import Cell
from stockpot.results.headline import format_value


def is_first(board: Board, row: Row) -> bool:
    """Whether it is better than all others beyond noise; alone there is nobody to beat."""
    return row.rank == (1, 1) and len(board.rows) > 1


def place(row: Row) -> Cell:
    """The places that are open to it; they sort by the best, then by the worst."""
    if row.rank is None:
        return Cell("-")
    best, worst = row.rank
    return Cell(str(best) if best == worst else f"{best}–{worst}", best + worst / 1e4)


def parameters(one: Contender) -> Cell:
    """How many it has."""
    count = one.facts.parameters
    return Cell(format_value(count, "count"), count) if count else Cell("-")


def audited(one: Contender) -> str:
    """The verdict on a model in a word."""
    return one.audit or "none"


def signed(one: Contender) -> str:
    """Whether its results are."""
    return "yes" if one.keys and not one.unsigned else "in part" if one.keys else "no"
