"""Which results may stand beside each other: one board for each question.

A question is a dataset by its content, a measure with its parameters and its convention, and of
attacks one threat. What does not change the question but may matter (seed, precision, the words of
a text tower, the version of the code) is shown as columns where it differs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stockpot.board.gather import Contender
from stockpot.errors import UserError
from stockpot.report.design.table import slug
from stockpot.results.headline import Column, headline_columns, headline_rows
from stockpot.results.schema import CellResult, DataFacts, Score
from stockpot.results.summary.best import best_beyond_noise, entrant

_MAIN = {
    "clean": "accuracy",
    "corruption": "mean_corruption_accuracy",
    "adversarial": "robust_accuracy",
    "dynamic": "fmr",
    "published": "fmr",
    "calibration": "ece",
    "cost": "parameters",
    "shift": "mean_outside_accuracy",
    "audit": "audited_accuracy",
}
"""By which score the models of a measure are ranked; by their first one where none is named."""
_UNION = "union_accuracy"


@dataclass
class Row:
    """One answer: a model's scores in the order of the columns."""

    contender: Contender
    cell: CellResult
    label: str
    scores: list[Score | None]
    rank: tuple[int, int] | None = None
    """The best and the worst place that the intervals leave open."""


@dataclass
class Board:
    """One question and all answers to it, the best first."""

    data: DataFacts
    measure: str
    threat: str
    convention: str
    params: dict[str, Any]
    columns: list[Column]
    main: int
    """Which column ranks."""
    rows: list[Row]
    slug: str
    differs: dict[str, str] = field(default_factory=dict)
    """What other boards of the same data and threat have otherwise."""
    varies: dict[str, list[str]] = field(default_factory=dict)
    """What is not the same for all rows, and the values of each."""

    @property
    def title(self) -> str:
        """The data and the threat, and what tells the board from its siblings."""
        name = f"{self.data.name} ({self.data.split})" if self.data.split else self.data.name
        told = ", ".join(f"{key} {value}" for key, value in self.differs.items())
        return f"{name}: {self.threat}" + (f" [{told}]" if told else "")

    @property
    def higher_is_better(self) -> bool | None:
        """Of the score that ranks."""
        return next(
            (score.higher_is_better for row in self.rows if (score := row.scores[self.main])), True
        )


def boards(contenders: Sequence[Contender]) -> list[Board]:
    """Every board that these models stand on, by data and measure."""
    asked: dict[str, list[tuple[Contender, CellResult]]] = {}
    for contender in contenders:
        for cell in contender.cells:
            asked.setdefault(_question(cell), []).append((contender, cell))
    found = [board for question, pairs in asked.items() for board in _split(question, pairs)]
    found.sort(key=lambda b: (b.data.name.lower(), b.data.split, b.measure, b.threat, b.slug))
    _say_differences(found)
    return found


def refuse_several(found: Sequence[Board]) -> None:
    """An error where one dataset and threat was asked in several ways."""
    for same in _siblings(found):
        if len(same) > 1:
            ways = "; ".join(
                f"{', '.join(f'{k} {v}' for k, v in board.differs.items())} "
                f"({', '.join(dict.fromkeys(row.contender.name for row in board.rows))})"
                for board in same
            )
            raise UserError(
                f"{same[0].data.name}, {same[0].threat}: results of {len(same)} conventions do not "
                f"belong on one board: {ways}.",
                hint="Measure alike, or leave --one-convention out: each gets its own board.",
            )


def _question(cell: CellResult) -> str:
    """A text that is the same for results that may be compared."""
    data = cell.data
    about: list[object] = [data.name, data.split, data.n, data.fingerprint]
    about += [cell.key.measure, cell.convention, cell.key.params]
    if cell.key.measure == "cost":  # how long something takes says nothing beside other hardware
        about.append(cell.cost.device)
    return json.dumps(about, sort_keys=True, default=str)


def _split(question: str, pairs: Sequence[tuple[Contender, CellResult]]) -> list[Board]:
    """The boards of one question: of attacks one for each threat, and one for all together."""
    columns = headline_columns([cell for _, cell in pairs])
    if not columns:
        return []
    facts = pairs[0][1]
    rows = []
    for contender, cell in pairs:
        shown = headline_rows([cell], columns)[cell.key.model]
        rows.append(Row(contender, cell, contender.name, [one.score for one in shown]))
    made = []
    for threat, chosen, main in _threats(facts.key.measure, columns):
        own = [columns[at] for at in chosen]
        kept = [
            Row(row.contender, row.cell, row.label, [row.scores[at] for at in chosen])
            for row in rows
        ]
        mark = hashlib.sha256(f"{question}{threat}".encode()).hexdigest()[:6]
        board = Board(
            data=facts.data,
            measure=facts.key.measure,
            threat=threat,
            convention=facts.convention,
            params=facts.key.params,
            columns=own,
            main=chosen.index(main),
            rows=[row for row in kept if row.scores[chosen.index(main)] is not None],
            slug=f"{slug(f'{facts.data.name} {threat}')[:60]}-{mark}",
        )
        if board.rows:
            _rank(board)
            _facets(board)
            made.append(board)
    return made


def _threats(measure: str, columns: Sequence[Column]) -> list[tuple[str, list[int], int]]:
    """The threat in words, its columns, and the one that ranks."""
    balls: dict[str, list[int]] = {}
    for at, column in enumerate(columns):
        condition = dict(column.condition)
        if "norm" in condition:
            ball = f"{condition['norm']} {condition.get('eps', '')}".strip()
            balls.setdefault(ball, []).append(at)
    everything = list(range(len(columns)))
    if not balls or measure == "audit":
        wanted = _MAIN.get(measure, columns[0].metric)
        main = next((at for at in everything if columns[at].metric == wanted), 0)
        return [(measure, everything, main)]
    shared = [at for at in everything if not any(at in own for own in balls.values())]
    union = next((at for at in shared if columns[at].metric == _UNION), None)
    found = [
        (ball, sorted([*(at for at in shared if at != union), *own]), _main_of(own, columns))
        for ball, own in balls.items()
    ]
    return found if union is None else [*found, ("union", everything, union)]


def _main_of(own: Sequence[int], columns: Sequence[Column]) -> int:
    return next((at for at in own if columns[at].metric == "robust_accuracy"), own[0])


def _rank(board: Board) -> None:
    """Order the rows, and say between which places the intervals leave each.

    One is surely better than another where they differ by more than both half-widths, added in
    squares. Who is best beyond noise by the answers to single images is first without them.
    """
    if board.higher_is_better is None:
        board.rows.sort(key=lambda row: row.label.lower())
        return
    sign = 1.0 if board.higher_is_better else -1.0
    board.rows.sort(key=lambda row: (-sign * _score(board, row).value, row.label.lower()))
    scores = [_score(board, row) for row in board.rows]
    values = sign * np.array([score.value for score in scores])
    ends = [
        sign * np.array([s.value if end is None else end for s, end in pairs])
        for pairs in (
            [(s, s.ci_low) for s in scores],
            [(s, s.ci_high) for s in scores],
        )
    ]
    down, up = values - np.minimum(*ends), np.maximum(*ends) - values
    better = values[:, None] - values > np.hypot(down[:, None], up)
    first = best_beyond_noise(
        {str(at): entrant(row.cell, scores[at]) for at, row in enumerate(board.rows)}
    )
    if first is not None:
        better[int(first), :] = np.arange(len(scores)) != int(first)
    above, below = better.sum(axis=0), better.sum(axis=1)
    for at, row in enumerate(board.rows):
        row.rank = (1 + int(above[at]), len(scores) - int(below[at]))


def _score(board: Board, row: Row) -> Score:
    score = row.scores[board.main]
    if score is None:
        raise ValueError(f"{row.label} has no place on {board.title}")
    return score


def facets(cell: CellResult) -> dict[str, str]:
    """What may differ between rows of one board, in words."""
    return {
        "seed": str(cell.key.seed),
        "precision": cell.key.precision,
        "words": cell.key.words,
        "class space": cell.model.class_space,
        "stockpot": cell.provenance.stockpot,
    }


def _facets(board: Board) -> None:
    values: dict[str, dict[str, None]] = {}
    for row in board.rows:
        for name, value in facets(row.cell).items():
            values.setdefault(name, {})[value] = None
    board.varies = {name: sorted(own) for name, own in values.items() if len(own) > 1}
    rows_of: dict[str, list[Row]] = {}
    for row in board.rows:
        rows_of.setdefault(row.contender.slug, []).append(row)
    for same in rows_of.values():
        for row in same if len(same) > 1 else ():
            own = facets(row.cell)
            told = [f"{name} {own[name]}" for name in board.varies if len(own[name]) < 24]
            row.label = f"{row.contender.name}, {', '.join(told)}" if told else row.label


def _siblings(found: Sequence[Board]) -> list[list[Board]]:
    groups: dict[tuple[str, str, str], list[Board]] = {}
    for board in found:
        groups.setdefault((board.data.name, board.measure, board.threat), []).append(board)
    return list(groups.values())


def _say_differences(found: Sequence[Board]) -> None:
    for same in _siblings(found):
        if len(same) < 2:
            continue
        told = [_told(board) for board in same]
        known = dict.fromkeys(name for one in told for name in one)
        names = [n for n in known if len({one.get(n, "-") for one in told}) > 1]
        # The long ones go where the others tell the boards apart already.
        for long in ("convention", "content"):
            rest = [name for name in names if name != long]
            if len({tuple(one.get(name, "-") for name in rest) for one in told}) == len(same):
                names = rest
        for board, one in zip(same, told, strict=True):
            board.differs = {name: one.get(name, "-") for name in names}


def _told(board: Board) -> dict[str, str]:
    """The question in words, by what may differ."""
    told = {name: _short(value) for name, value in board.params.items()}
    told |= {"images": f"{board.data.n:,}", "split": board.data.split}
    told |= {"content": board.data.fingerprint[:8], "convention": board.convention}
    if board.measure == "cost":
        told["device"] = board.rows[0].cell.cost.device
    return told


def _short(value: object) -> str:
    text = "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
