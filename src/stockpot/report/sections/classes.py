"""Accuracy of every class under every model, hardest first, with pictures where there are some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from stockpot.report.design import Cell, Column, score_cell, table
from stockpot.results.headline import split_by_data
from stockpot.results.schema import CellResult, Score

_FEWEST = 3
"""Images per class, on average, from which on accuracy per class is worth a table."""
_BESIDE = 8
"""Models side by side."""
_SHOWN = 12
WORST = 6
"""Classes of which pictures are shown."""


class ClassSection(NamedTuple):
    """One dataset."""

    data: str
    tables: list[Markup]
    worst: list[tuple[str, str, list[str]]]
    """Of the hardest classes: name, accuracy in words, and pictures that most models get wrong."""


def class_sections(
    results: Sequence[CellResult], pictures: Mapping[str, Mapping[str, list[str]]] | None = None
) -> list[ClassSection]:
    """Where there are enough images to speak of classes.

    Args:
        results: of the page.
        pictures: by dataset and class, pictures as data URIs.
    """
    found = []
    for data, by_class in class_scores(results).items():
        models = list(dict.fromkeys(model for scores in by_class.values() for model in scores))
        ordered = sorted(by_class.items(), key=lambda item: mean_accuracy(item[1]))
        tables = [
            _table(f"classes-{data}-{start}", models[start : start + _BESIDE], ordered)
            for start in range(0, len(models), _BESIDE)
        ]
        known = (pictures or {}).get(data, {})
        worst = [
            (name, f"{100 * mean_accuracy(scores):.0f} % on average", known[name])
            for name, scores in ordered[:WORST]
            if known.get(name)
        ]
        found.append(ClassSection(data, tables, worst))
    return found


def class_scores(results: Sequence[CellResult]) -> dict[str, dict[str, dict[str, Score]]]:
    """By dataset and class, the accuracy of each model: once, whichever measures told it."""
    found: dict[str, dict[str, dict[str, Score]]] = {}
    for data, cells in split_by_data(results).items():
        by_class: dict[str, dict[str, Score]] = {}
        # What `clean` says comes first: other measures may look at a part of the images.
        for cell in sorted(cells, key=lambda cell: cell.key.measure != "clean"):
            for score in cell.scores:
                if score.metric == "class_accuracy":
                    place = by_class.setdefault(str(score.condition["class"]), {})
                    place.setdefault(cell.key.model, score)
        counts = [next(iter(scores.values())).n for scores in by_class.values()]
        if by_class and sum(counts) >= _FEWEST * len(counts):
            found[data] = by_class
    return found


def mean_accuracy(scores: Mapping[str, Score]) -> float:
    """Of one class over all models."""
    return sum(score.value for score in scores.values()) / len(scores)


def _table(
    name: str, models: Sequence[str], ordered: Sequence[tuple[str, Mapping[str, Score]]]
) -> Markup:
    columns = [Column("class", number=False), Column("n"),
               *(Column(model, fold=max(0, place - 2)) for place, model in enumerate(models))
               ]  # fmt: skip
    rows = []
    for label, scores in ordered:
        count = next(iter(scores.values())).n
        cells = [score_cell(scores.get(model), share=True) for model in models]
        rows.append([Cell(label), Cell(f"{count:,}", count), *cells])
    return table(name, columns, rows, most=_SHOWN)
