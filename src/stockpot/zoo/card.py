"""The card of an embedded model: what it is, how it was made, how well it does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stockpot.checkpoints.record import Record
from stockpot.results.headline import format_score
from stockpot.results.schema import CellResult, Score

_DETAILS = {"class", "corruption", "severity", "batch_size", "device", "dtype", "step"}
"""Scores under these conditions are too many for a card, or say how a cost was timed."""


def card(name: str, record: Record, cells: Sequence[CellResult]) -> str:
    """The text of a model card, from the record of the training and the cells that measured it."""
    cleans = [cell for cell in cells if cell.key.measure == "clean"]
    # What it was trained on stands first, where it was measured on several datasets.
    known = {data["name"] for data in _datasets(record)}
    clean = next((cell for cell in cleans if cell.data.name in known), cleans[0])
    lines = [
        "---",
        "library_name: transformers",
        "license: apache-2.0",
        "pipeline_tag: image-classification",
        "tags: [stockpot]",
        "---",
        f"# {name}",
        "",
        f"{clean.model.architecture}, {clean.model.parameters / 1e6:.2f} M parameters, "
        f"{format_score(clean.score('accuracy'))} on {clean.data.n:,} {clean.data.split} images of "
        f"`{clean.data.name}` ({clean.data.classes} classes).",
        "",
        "A small model that comes with Stockpot so that everything runs without a download.",
        "",
        "## How it was made",
        "",
        *_origin(record),
        "",
        "## How well it does",
        "",
        "95 % intervals; the weights measured are those of this folder.",
        "",
        "| data | n | seed | measure | value | convention |",
        "|---|---|---|---|---|---|",
        *(row for cell in cells for row in _rows(cell)),
        "",
        f"Preprocessing: {clean.model.preprocessing}.",
        "",
        "## Licence",
        "",
        "Weights: Apache-2.0. The icons it may have learned from: see `ICONS_ATTRIBUTION.md`.",
        "",
    ]
    return "\n".join(lines)


def _origin(record: Record) -> Iterator[str]:
    for data in _datasets(record):
        yield (
            f"- Data: `{data['name']}`, split `{data['split']}`, {data['n']:,} images, "
            f"fingerprint `{data['fingerprint'][:16]}`."
        )
    parameters = {
        key: value
        for key, value in (record.parameters | {"seed": record.seed}).items()
        if value not in (None, 0, 0.0, [])
    }
    settings = ", ".join(f"`{key}={value}`" for key, value in parameters.items())
    yield f"- Method: `{record.method}` with {settings}."
    yield f"- Recipe: `{record.details['recipe']}`."
    made = record.versions
    yield (
        f"- Time: {record.details['seconds']:.0f} s on {made['device']} (torch {made['torch']}), "
        f"{made['created'][:10]}."
    )


def _datasets(record: Record) -> list[dict[str, Any]]:
    data = record.details["data"]
    return data if isinstance(data, list) else [data]


def _rows(cell: CellResult) -> Iterator[str]:
    for score in cell.scores:
        if _DETAILS & score.condition.keys() or cell.key.measure == "cost":
            continue
        yield (
            f"| `{cell.data.name}` {cell.data.split} | {score.n:,} | {cell.key.seed} | "
            f"{_title(score)} | {format_score(score)} | {cell.convention} |"
        )


def _title(score: Score) -> str:
    condition = ", ".join(f"{key} {value}" for key, value in score.condition.items())
    condition = condition.replace("|", "or")  # a bar would end the cell of the table
    return score.metric.replace("_", " ") + (f" ({condition})" if condition else "")
