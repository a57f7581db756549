"""Which few scores stand for a cell in a table, and how numbers are written for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stockpot.results.schema import CellResult, Score
from stockpot.results.summary.best import best_of

_TITLES = {
    "accuracy": "accuracy",
    "top5_accuracy": "top-5",
    "nll": "NLL",
    "ece": "ECE",
    "parameters": "parameters",
    "flops_per_image": "FLOPs/image",
    "images_per_second": "images/s",
    "latency": "latency",
    "peak_memory": "peak memory",
    "mean_corruption_accuracy": "mean corruption acc.",
    "mce": "mCE",
    "relative_mce": "relative mCE",
    "robust_accuracy": "robust",
    "union_accuracy": "union",
    "audited_accuracy": "audited",
    "fmr": "FMR",
    "matched_fmr": "matched FMR",
    "outside_accuracy": "outside",
    "mean_outside_accuracy": "mean outside",
    "same_classes_accuracy": "same classes inside",
    "adaptive_ece": "adaptive ECE",
    "classwise_ece": "classwise ECE",
    "brier": "Brier",
    "aurc": "AURC",
    "excess_aurc": "excess AURC",
}
_SEARCHING = ("corruption", "adversarial", "audit", "certified")
"""Measures whose own scores are others; their accuracy is that on the images as they are."""

# How a search went: it is in the file, and would be a column too many on a page.
_DETAILS = (
    "budget_spent",
    "steps",
    "validation_rate_of_covered",
    "reconstruction_rate",
    "perturbation_rate",
    "model_queries",
    "oracle_queries",
    "code_flip_rate",
    "empty_sets",
    "smoothed_abstention",
)


class Column(NamedTuple):
    """One score of a table: a metric under a condition."""

    measure: str
    metric: str
    condition: tuple[tuple[str, object], ...]
    title: str


class Shown(NamedTuple):
    """A score as text, with the score it came from (none where the cell is empty)."""

    text: str
    score: Score | None
    best: bool = False


def split_by_data(results: Sequence[CellResult]) -> dict[str, list[CellResult]]:
    """Cells grouped by dataset, in order of appearance."""
    groups: dict[str, list[CellResult]] = {}
    for result in results:
        groups.setdefault(result.key.data, []).append(result)
    return groups


def images_of(cells: Sequence[CellResult]) -> str:
    """How many images of which data a table of one dataset stands on, and which measures on fewer.

    A measure that looks at a part of the data must not seem to stand on all of it.
    """
    facts = cells[0].data
    fewer: dict[int, list[str]] = {}
    for measure in dict.fromkeys(cell.key.measure for cell in cells):
        own = [cell for cell in cells if cell.key.measure == measure]
        counts = [score.n for cell in own for score in cell.scores if score.unit == "fraction"]
        if counts and max(counts) < facts.n:
            fewer.setdefault(max(counts), []).append(measure)
    parts = "".join(f"; {', '.join(names)} on {count:,}" for count, names in fewer.items())
    return f"{facts.n:,} images of {facts.name} ({facts.split}){parts}"


def headline_columns(cells: Sequence[CellResult]) -> list[Column]:
    """The scores worth a column: none per class, per severity or per threshold."""
    columns: dict[tuple[str, str, tuple[tuple[str, object], ...]], Column] = {}
    # One oracle for all goes without saying; its name is long.
    several = len({s.condition.get("oracle") for cell in cells for s in cell.scores} - {None}) > 1
    for cell in cells:
        for score in cell.scores:
            if not _is_headline(score) or score.metric in _DETAILS:
                continue
            condition = _shown_condition(score)
            title = _title(score.metric, cell.key.measure)
            shown = [str(value) for key, value in condition if key != "oracle" or several]
            title = " ".join([title, *shown])
            key = (cell.key.measure, score.metric, condition)
            columns.setdefault(key, Column(cell.key.measure, score.metric, condition, title))
    return list(columns.values())


def _title(metric: str, measure: str) -> str:
    plain = metric.removeprefix("unseen_")
    title = _TITLES.get(plain, plain.replace("_", " "))
    if plain == "accuracy" and measure in _SEARCHING:
        title = "clean"
    return title if plain == metric else f"{title}, unseen images"


def headline_rows(cells: Sequence[CellResult], columns: Sequence[Column]) -> dict[str, list[Shown]]:
    """For every model its scores in the order of the columns; what is best beyond noise is marked.

    The cells must be comparable (`results/summary/comparable.py`)."""
    models = list(dict.fromkeys(cell.key.model for cell in cells))
    table: dict[str, list[Shown]] = {model: [] for model in models}
    for column in columns:
        scores = {model: _find(cells, model, column) for model in models}
        best = best_of(cells, {model: score for model, score in scores.items() if score})
        for model, score in scores.items():
            text = format_score(score) if score else "-"
            table[model].append(Shown(text, score, model == best))
    return table


def format_score(score: Score, *, interval: bool = True) -> str:
    """A number for people: percents, thousands, units, and its interval."""
    value = format_value(score.value, score.unit)
    if not interval or score.ci_low is None or score.ci_high is None or score.n <= 1:
        return value
    low = format_value(score.ci_low, score.unit, bare=True)
    high = format_value(score.ci_high, score.unit, bare=True)
    return f"{value} [{low}, {high}]"


def format_value(value: float, unit: str, *, bare: bool = False) -> str:
    """One value in its unit; `bare` leaves the unit's sign out."""
    match unit:
        case "fraction":
            return f"{100 * value:.1f}" + ("" if bare else " %")
        case "count":
            return _thousands(value)
        case "bytes":
            return f"{value / 2**20:.1f}" + ("" if bare else " MiB")
        case "seconds":
            return f"{1000 * value:.2f}" + ("" if bare else " ms")
        case "per_second":
            return f"{value:.0f}" + ("" if bare else "/s")
        case _:
            return f"{value:.3f}"


def _thousands(value: float) -> str:
    for factor, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.2f} {sign}"
    return f"{value:.0f}"


def _is_headline(score: Score) -> bool:
    parts = {"class", "corruption", "severity", "turn", "group", "curve", "detector"}
    parts |= {"perturbation", "factor"}
    return not parts & score.condition.keys()


def _shown_condition(score: Score) -> tuple[tuple[str, object], ...]:
    # How a cost was timed is a detail; the norm of an attack is not.
    kept = ("norm", "eps", "baseline", "generator", "oracle", "set", "space", "scaling",
            "method", "sigma")  # fmt: skip
    return tuple((key, score.condition[key]) for key in kept if key in score.condition)


def _find(cells: Sequence[CellResult], model: str, column: Column) -> Score | None:
    for cell in cells:
        if cell.key.model == model and cell.key.measure == column.measure:
            for score in cell.scores:
                if (
                    score.metric == column.metric
                    and _is_headline(score)
                    and _shown_condition(score) == column.condition
                ):
                    return score
    return None
