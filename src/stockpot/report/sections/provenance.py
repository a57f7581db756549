"""Methods and provenance: which rules, models, data, code and machines stand behind the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from stockpot.report.design import Cell, Column, table
from stockpot.report.sections.stages import in_words
from stockpot.results.schema import CellResult
from stockpot.results.summary.comparable import comparable


class Provenance(NamedTuple):
    """Tables of methods, models and data, every cell in full, and what made them."""

    methods: Markup
    models: Markup
    data: Markup
    cells: list[tuple[str, list[tuple[str, str]]]]
    code: list[str]


def provenance_section(results: Sequence[CellResult]) -> Provenance:
    """From all results of the page."""
    code = list(dict.fromkeys(f"{_code(cell)}, {cell.provenance.platform}" for cell in results))
    return Provenance(_methods(results), _models(results), _data(results),
                      [_details(cell) for cell in results], code)  # fmt: skip


def _methods(results: Sequence[CellResult]) -> Markup:
    heads = [Column("measure", number=False), Column("data", number=False),
             Column("convention", number=False), Column("settings", number=False),
             Column("models")]  # fmt: skip
    rows = []
    for group in comparable(results):
        cell = group.cells[0]
        models = {one.key.model for one in group.cells}
        rows.append(
            [
                Cell(group.measure),
                Cell(group.data),
                Cell(cell.convention or "-"),
                Cell(_settings(cell) or "-"),
                Cell(str(len(models)), len(models)),
            ]
        )
    return table("methods", heads, rows)


def _models(results: Sequence[CellResult]) -> Markup:
    heads = [Column("model", number=False), Column("architecture", number=False),
             Column("parameters"), Column("preprocessing", number=False, fold=2),
             Column("fingerprint", number=False, fold=1)]  # fmt: skip
    facts = {cell.key.model: cell.model for cell in results}
    rows = [
        [Cell(name), Cell(own.architecture or "-"),
         Cell(f"{own.parameters / 1e6:,.2f} M", own.parameters) if own.parameters else Cell(),
         Cell(own.preprocessing or "-"), Cell(own.fingerprint[:12] or "-")]
        for name, own in facts.items()
    ]  # fmt: skip
    return table("models", heads, rows)


def _data(results: Sequence[CellResult]) -> Markup:
    heads = [Column("data", number=False), Column("set", number=False),
             Column("split", number=False), Column("images"), Column("classes"),
             Column("licence", number=False), Column("fingerprint", number=False, fold=1)
             ]  # fmt: skip
    facts = {(cell.key.data, cell.data.fingerprint): cell.data for cell in results}
    rows = [
        [Cell(name), Cell(own.name), Cell(own.split), Cell(f"{own.n:,}", own.n),
         Cell(str(own.classes), own.classes), Cell(own.licence), Cell(own.fingerprint[:12] or "-")]
        for (name, _), own in facts.items()
    ]  # fmt: skip
    return table("data", heads, rows)


def _details(cell: CellResult) -> tuple[str, list[tuple[str, str]]]:
    """Where one cell came from."""
    facts = {
        "architecture": cell.model.architecture,
        "preprocessing": cell.model.preprocessing,
        "classes": cell.model.class_space,
        "words": cell.key.words,
        "convention": cell.convention,
        "parameters": _settings(cell),
        "seed": str(cell.key.seed),
        "passes": str(cell.forward or ""),
        "n": f"{cell.data.n:,}",
        "data fingerprint": cell.data.fingerprint[:16],
        "model fingerprint": cell.model.fingerprint[:16],
        "time": f"{cell.cost.wall_seconds:.1f} s on {cell.cost.device}",
        "stages": in_words(cell.cost.stages),
        "notes": "; ".join(cell.notes),
        "code": _code(cell),
        "made": cell.provenance.created,
    }
    title = f"{cell.key.model} × {cell.key.measure} × {cell.key.data}"
    return title, [(name, value) for name, value in facts.items() if value]


def _settings(cell: CellResult) -> str:
    told = {key: value for key, value in cell.key.params.items() if value not in (None, "", [])}
    return ", ".join(f"{key}={value}" for key, value in told.items())


def _code(cell: CellResult) -> str:
    made = cell.provenance
    commit = f" ({made.commit[:10]}{', modified' if made.dirty else ''})" if made.commit else ""
    pillow = f"Pillow {made.pillow}, " if made.pillow else ""
    return f"stockpot {made.stockpot}{commit}, torch {made.torch}, {pillow}Python {made.python}"
