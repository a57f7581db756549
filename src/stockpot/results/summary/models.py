"""One row for each model of the few numbers that matter, and what was not measured.

A column is one kind of number (clean, under corruption, ...) of one comparable group of cells, so
that what stands below one another may be compared. Several datasets of one kind are averaged where
their scores may be (accuracy); otherwise each has its column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from stockpot.results.schema import CellResult, Score
from stockpot.results.score_tables import mean_score
from stockpot.results.summary.best import Entrant, best_beyond_noise, entrant
from stockpot.results.summary.comparable import Comparable, comparable
from stockpot.results.tables import overall
from stockpot.results.trust import is_ranked

_MOST = 3
"""Columns of one kind; the tables have the others."""


class SummaryColumn(NamedTuple):
    """One kind of number, by model."""

    kind: str
    title: str
    about: str
    """Which data, how many images, under what."""
    scores: dict[str, Score]
    said: dict[str, str]
    """What a model's number is about, where that differs by model: the worst of several sets."""
    best: str | None
    """The model that is best beyond noise."""
    left_out: int = 0
    """Further groups of the same kind that have no column."""


class Summary(NamedTuple):
    """The rows of all models, by column, and the kinds that no column stands for."""

    models: list[str]
    columns: list[SummaryColumn]
    missing: list[str]


class _Kind(NamedTuple):
    name: str
    measures: tuple[str, ...]
    pick: Callable[[CellResult], Score | None]
    title: Callable[[Score], str]
    averaged: bool = False


def _corruption(cell: CellResult) -> Score | None:
    """mCE where it is the published one; accuracy is easier to read where it is not."""
    score = overall(cell, "mce")
    published = score is not None and str(score.condition.get("baseline")).startswith("alexnet")
    return score if published else overall(cell, "mean_corruption_accuracy")


def _attack(cell: CellResult) -> Score | None:
    robust = [score for score in cell.scores if score.metric == "robust_accuracy"]
    union = overall(cell, "union_accuracy")
    return union if union is not None and len(robust) > 1 else next(iter(robust), union)


def _attack_title(score: Score) -> str:
    union = score.metric == "union_accuracy"
    return "under attack, union" if union else f"under attack, {score.condition.get('norm')}"


def _worst(cell: CellResult) -> Score | None:
    sets = [score for score in cell.scores if score.metric == "outside_accuracy"]
    return min(sets, key=lambda score: score.value, default=None)


_KINDS = (
    _Kind("clean", ("clean",), lambda cell: overall(cell, "accuracy"), lambda _: "clean", True),
    _Kind("corruptions", ("corruption",), _corruption,
          lambda score: "mCE" if score.metric == "mce" else "under corruption", True),
    _Kind("attacks", ("adversarial",), _attack, _attack_title),
    _Kind("images made against the model", ("dynamic",),
          lambda cell: overall(cell, "matched_fmr") or overall(cell, "fmr"),
          lambda score: "FMR matched" if score.metric == "matched_fmr" else "FMR"),
    _Kind("shifts", ("shift", "imagenet_variants"), _worst, lambda _: "worst shift"),
    _Kind("calibration", ("calibration", "clean"), lambda cell: overall(cell, "ece"),
          lambda _: "calibration error"),
    _Kind("cost", ("cost",), lambda cell: overall(cell, "images_per_second"),
          lambda _: "images per second"),
)  # fmt: skip


def summary(results: Sequence[CellResult]) -> Summary:
    """The few numbers that matter of every model; the best clean accuracy comes first."""
    models = list(dict.fromkeys(cell.key.model for cell in results))
    groups = comparable(results)
    columns: list[SummaryColumn] = []
    missing: list[str] = []
    for kind in _KINDS:
        found = _columns(kind, groups)
        columns += found
        if not found:
            missing.append(kind.name)
    if columns:
        first = columns[0]
        sign = -1.0 if next(iter(first.scores.values())).higher_is_better else 1.0
        models.sort(
            key=lambda m: sign * first.scores[m].value if m in first.scores else float("inf")
        )
    return Summary(models, columns, missing)


def _columns(kind: _Kind, groups: Sequence[Comparable]) -> list[SummaryColumn]:
    # Of two measures that tell the same, the one that more models went through.
    by_measure = [_filled(kind, groups, measure) for measure in kind.measures]
    filled = max(by_measure, key=lambda found: len({m for _, scores in found for m in scores}))
    if not filled:
        return []
    many = kind.averaged and len({group.data for group, _ in filled}) > 1
    if many and (column := _mean_column(kind, filled)):
        return [column]
    most = sorted(filled, key=lambda pair: -len(pair[1]))
    columns = [_column(kind, *pair, several=len(filled) > 1) for pair in most[:_MOST]]
    return [columns[0]._replace(left_out=len(filled) - len(columns)), *columns[1:]]


def _filled(
    kind: _Kind, groups: Sequence[Comparable], measure: str
) -> list[tuple[Comparable, dict[str, tuple[CellResult, Score]]]]:
    picked = [(group, _picked(kind, group)) for group in groups if group.measure == measure]
    return [(group, scores) for group, scores in picked if scores]


def _picked(kind: _Kind, group: Comparable) -> dict[str, tuple[CellResult, Score]]:
    found = ((cell, kind.pick(cell)) for cell in group.cells)
    return {cell.key.model: (cell, score) for cell, score in found if score is not None}


def _column(
    kind: _Kind, group: Comparable, scores: dict[str, tuple[CellResult, Score]], *, several: bool
) -> SummaryColumn:
    score = next(iter(scores.values()))[1]
    where = f" ({group.apart or group.data})" if several else ""
    unlike = len({str(s.condition.get("set")) for _, s in scores.values()}) > 1
    told = {m: str(s.condition["set"]) for m, (_, s) in scores.items() if "set" in s.condition}
    entrants = {model: entrant(*pair) for model, pair in scores.items() if is_ranked(pair[0])}
    return SummaryColumn(
        kind.name,
        kind.title(score) + where,
        _about(group, score),
        {model: own for model, (_, own) in scores.items()},
        told,
        None if unlike else best_beyond_noise(entrants),
    )


def _mean_column(
    kind: _Kind, filled: Sequence[tuple[Comparable, dict[str, tuple[CellResult, Score]]]]
) -> SummaryColumn | None:
    """The plain mean over datasets, of the models that were measured on all of them."""
    shared = [m for m in filled[0][1] if all(m in scores for _, scores in filled)]
    metrics = {score.metric for _, scores in filled for _, score in scores.values()}
    if not shared or len(metrics) > 1:
        return None
    means = {m: mean_score([scores[m][1] for _, scores in filled]) for m in shared}
    known = {model: mean for model, mean in means.items() if mean is not None}
    names = ", ".join(group.data for group, _ in filled)
    first = next(iter(filled[0][1].values()))[1]
    return SummaryColumn(
        kind.name,
        f"{kind.title(first)}, mean of {len(filled)}",
        f"{filled[0][0].measure} on {names}",
        known,
        {},
        best_beyond_noise({model: Entrant(score) for model, score in known.items()}),
    )


def _about(group: Comparable, score: Score) -> str:
    condition = score.condition
    threat = condition.get("threats") or " ".join(
        str(condition[name]) for name in ("norm", "eps") if name in condition
    )
    under = f", {threat}" if threat else ""
    return f"{group.measure} on {group.data}{under}, {score.n:,} {_counted(score)}"


def _counted(score: Score) -> str:
    return "repeats" if score.unit == "per_second" else "images"
