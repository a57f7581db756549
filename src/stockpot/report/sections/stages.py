"""Where the time of a run went, over all its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from stockpot.report.design import Cell, Column, table
from stockpot.results.schema import CellResult

ORDER = ("start", "load", "make", "look", "learn", "merge", "choose", "judge", "decode", "corrupt",
         "forward", "attack", "score", "hash", "write")  # fmt: skip
"""As they follow one another; `other` and what is new come last."""
_LEAST = 0.05


class StageShare(NamedTuple):
    """One stage of all cells together."""

    name: str
    seconds: float
    share: float


def stage_shares(results: Sequence[CellResult]) -> list[StageShare]:
    """Seconds by stage and their share of the whole; nothing for results that tell none."""
    sums: dict[str, float] = {}
    for cell in results:
        for name, seconds in cell.cost.stages.items():
            sums[name] = sums.get(name, 0.0) + seconds
    whole = sum(sums.values())
    return [StageShare(name, sums[name], sums[name] / whole) for name in _ordered(sums) if whole]


def costs_table(results: Sequence[CellResult]) -> Markup:
    """What each cell took, the dearest first."""
    heads = [Column("cell", number=False), Column("seconds"), Column("images through the model"),
             Column("peak memory", fold=1), Column("device", number=False, fold=2)]  # fmt: skip
    rows = []
    for cell in sorted(results, key=lambda cell: -cell.cost.wall_seconds):
        cost, key = cell.cost, cell.key
        peak = cost.peak_memory_bytes
        rows.append(
            [Cell(f"{key.model} × {key.measure} × {key.data}"),
             Cell(f"{cost.wall_seconds:,.1f}", cost.wall_seconds),
             Cell(f"{cost.images:,}", cost.images),
             Cell(f"{peak / 2**20:,.0f} MiB", peak) if peak else Cell(), Cell(cost.device)]
        )  # fmt: skip
    return table("costs", heads, rows, most=8)


def in_words(stages: Mapping[str, float]) -> str:
    """The stages of one cell that took a while."""
    long = [name for name in _ordered(stages) if stages[name] >= _LEAST]
    return ", ".join(f"{name} {stages[name]:.1f} s" for name in long)


def _ordered(stages: Mapping[str, float]) -> list[str]:
    places = {name: place for place, name in enumerate(ORDER)}
    return sorted(stages, key=lambda name: (places.get(name, len(ORDER)), name))
