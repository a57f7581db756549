"""The boards as data: `leaderboard.json`, whose schema lies beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from stockpot.board.boards import Board, Row, facets
from stockpot.board.gather import Contender
from stockpot.board.submission import AboutModel
from stockpot.results.schema import DataFacts, Scalar, Verdict


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class ListedModel(_Closed):
    """One model."""

    id: str = Field(description="In links: `models/ID.html`.")
    name: str
    fingerprint: str = Field(description="Of its weights.")
    architecture: str
    parameters: int
    options: dict[str, Any] = Field(description="How it was loaded.")
    authors: list[str]
    licence: str
    about: AboutModel
    audit: Verdict | None = Field(description="The verdict of its audits; null where it has none.")
    signed_by: list[str] = Field(description="Public keys (Ed25519, hex).")
    wholly_signed: bool = Field(description="Whether all of its results come from signed folders.")
    notes: list[str]


class ListedColumn(_Closed):
    """What a score is."""

    metric: str
    condition: dict[str, Scalar]
    title: str
    unit: str
    higher_is_better: bool | None


class ListedScore(_Closed):
    """One number; fractions are fractions."""

    value: float
    low: float | None = Field(description="The lower end of its 95 % interval.")
    high: float | None
    n: int = Field(description="Images that it stands on.")


class ListedRow(_Closed):
    """One model's answer."""

    model: str = Field(description="The id of the model.")
    label: str
    rank: tuple[int, int] | None = Field(
        description="The best and the worst place that the intervals leave open; null where no "
        "direction is better."
    )
    scores: list[ListedScore | None] = Field(description="In the order of the board's columns.")
    facets: dict[str, str] = Field(description="Seed, precision, ...: what may differ.")
    commit: str
    created: str


class ListedBoard(_Closed):
    """One question: a dataset by its content, a threat, a convention."""

    id: str = Field(description="In links: `boards/ID.html`.")
    title: str
    data: DataFacts
    measure: str
    threat: str
    convention: str
    params: dict[str, Any]
    main: int = Field(description="The column that ranks, counted from 0.")
    columns: list[ListedColumn]
    varies: dict[str, list[str]] = Field(description="What is not the same for all rows.")
    rows: list[ListedRow] = Field(description="The best first.")


class Document(_Closed):
    """A leaderboard."""

    format: Literal["stockpot-leaderboard/1"] = "stockpot-leaderboard/1"
    title: str
    version: int = Field(description="Of the results; a higher one has other results.")
    results: str = Field(description="The CSV file of this version, beside this document.")
    sha256: str = Field(description="Of that file.")
    date: str = Field(description="When the last of the results was measured.")
    boards: list[ListedBoard]
    models: list[ListedModel]


def listed_model(one: Contender) -> ListedModel:
    """A model as the document has it."""
    return ListedModel(
        id=one.slug,
        name=one.name,
        fingerprint=one.facts.fingerprint,
        architecture=one.facts.architecture,
        parameters=one.facts.parameters,
        options=one.options,
        authors=one.authors,
        licence=one.licence,
        about=one.about,
        audit=one.audit,
        signed_by=one.keys,
        wholly_signed=bool(one.keys) and not one.unsigned,
        notes=one.notes,
    )


def listed_board(board: Board) -> ListedBoard:
    """A board as the document has it."""
    return ListedBoard(
        id=board.slug,
        title=board.title,
        data=board.data,
        measure=board.measure,
        threat=board.threat,
        convention=board.convention,
        params=board.params,
        main=board.main,
        columns=[_column(board, at) for at in range(len(board.columns))],
        varies=board.varies,
        rows=[_row(row) for row in board.rows],
    )


def _column(board: Board, at: int) -> ListedColumn:
    column = board.columns[at]
    sample = next((score for row in board.rows if (score := row.scores[at])), None)
    condition: dict[str, Any] = dict(column.condition)
    return ListedColumn(
        metric=column.metric,
        condition=condition,
        title=column.title,
        unit=sample.unit if sample else "score",
        higher_is_better=sample.higher_is_better if sample else None,
    )


def _row(row: Row) -> ListedRow:
    return ListedRow(
        model=row.contender.slug,
        label=row.label,
        rank=row.rank,
        scores=[
            ListedScore(value=s.value, low=s.ci_low, high=s.ci_high, n=s.n) if s else None
            for s in row.scores
        ],
        facets=facets(row.cell),
        commit=row.cell.provenance.commit,
        created=row.cell.provenance.created,
    )


def schema_text() -> str:
    """The JSON Schema of the document."""
    return json.dumps(Document.model_json_schema(), indent=1) + "\n"


def csv_rows(boards: Sequence[Board]) -> list[dict[str, object]]:
    """Every number of every board as a row."""
    rows: list[dict[str, object]] = []
    for board in boards:
        about = {
            "board": board.slug,
            "data": board.data.name,
            "split": board.data.split,
            "data_fingerprint": board.data.fingerprint,
            "measure": board.measure,
            "threat": board.threat,
            "convention": board.convention,
            "params": json.dumps(board.params, sort_keys=True, default=str),
        }
        for row in board.rows:
            best, worst = row.rank or ("", "")
            model = {
                "model": row.label,
                "model_fingerprint": row.contender.facts.fingerprint,
                "best_place": best,
                "worst_place": worst,
            }
            tail = {
                "audit": row.contender.audit or "",
                "signed": bool(row.contender.keys) and not row.contender.unsigned,
                **{name.replace(" ", "_"): value for name, value in facets(row.cell).items()},
                "commit": row.cell.provenance.commit,
                "created": row.cell.provenance.created,
            }
            for column, score in zip(board.columns, row.scores, strict=True):
                if score is not None:
                    number = {
                        "metric": column.metric,
                        "condition": json.dumps(dict(column.condition), sort_keys=True),
                        "value": score.value,
                        "ci_low": score.ci_low,
                        "ci_high": score.ci_high,
                        "n": score.n,
                    }
                    rows.append(about | model | number | tail)
    return rows
