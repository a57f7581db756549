"""Models x tasks: means, their intervals, and what is left out."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from pico import ReadsLabel as Perfect
from pico import make_classifier, make_dataset
from stockpot.measure.run import measure
from stockpot.report.sections.tasks import task_sections
from stockpot.results.schema import CellResult, Score
from stockpot.results.score_tables import (
    TaskRow,
    corruption_means,
    mean_score,
    score_rows,
    table_of_rows,
    task_tables,
)


def score(value: float, half: float) -> Score:
    return Score(metric="accuracy", value=value, n=100, ci_low=value - half, ci_high=value + half)


def test_the_mean_has_the_interval_of_independent_tasks() -> None:
    mean = mean_score([score(0.4, 0.03), score(0.6, 0.04)])
    assert mean is not None
    assert mean.value == pytest.approx(0.5)
    assert mean.ci_low == pytest.approx(0.5 - 0.025)
    assert mean.ci_high == pytest.approx(0.5 + 0.025)
    assert mean.n == 200
    assert mean_score([score(0.4, 0.03), None]) is None


def test_tasks_on_the_same_images_are_no_further_evidence() -> None:
    wrong = make_dataset(16)
    labels = torch.where(torch.arange(16) < 6, (wrong.labels + 1) % 4, wrong.labels)
    data = replace(wrong, labels=labels)
    model = make_classifier(Perfect(4))
    (table,) = task_tables(measure({"a": model}, "clean", data={"one": data, "again": data}))
    (row,) = table.rows
    assert row.mean is not None
    alone = row.scores[0]
    assert alone is not None
    assert 0 < row.mean.value < 1
    assert (row.mean.ci_low, row.mean.ci_high) == pytest.approx((alone.ci_low, alone.ci_high))


def test_a_hole_in_the_table_leaves_no_mean() -> None:
    models = {"a": make_classifier(Perfect(4)), "b": make_classifier(Perfect(4))}
    results = measure(models, "clean", data={"first": make_dataset(16), "second": make_dataset(24)})
    (table,) = task_tables(results)
    assert table.tasks == ["first", "second"]
    assert [row.mean.value for row in table.rows if row.mean] == [1.0, 1.0]
    (holed,) = task_tables(results[:-1])
    assert [row.mean is None for row in holed.rows] == [False, True]
    assert task_tables([cell for cell in results if cell.key.data == "first"]) == []
    (section,) = task_sections(results[:-1])
    assert re.findall(r'data-label="(\w+)">([-.\d]+)', section.table)[3:] == [
        ("mean", "-"), ("first", "100.0"), ("second", "-")
    ]  # fmt: skip


def test_corruptions_are_averaged_over_tasks() -> None:
    data = {"first": make_dataset(16), "second": make_dataset(24)}
    settings = {"corruptions": ("contrast",), "severities": (1, 5), "baseline": "none"}
    results: list[CellResult] = measure(
        {"a": make_classifier(Perfect(4))}, {"corruption": settings}, data=data
    )
    means = corruption_means(results)
    assert means is not None
    assert means.conditions == [("contrast", 1), ("contrast", 5)]
    for severity, found in zip((1, 5), means.rows[0].scores, strict=True):
        errors = [cell.score("error", corruption="contrast", severity=severity) for cell in results]
        assert found is not None
        assert found.value == pytest.approx(1 - sum(e.value for e in errors) / 2)
    assert corruption_means(results[:1]) is None


def test_a_table_comes_back_from_its_rows() -> None:
    rows = [
        TaskRow("a", [score(0.5, 0.1), score(0.7, 0.2)], None),
        TaskRow("b", [score(0.25, 0.125), None], None),
    ]
    found = table_of_rows(score_rows(["x", "y"], rows))
    assert found.tasks == ["x", "y"]
    assert [row.model for row in found.rows] == ["a", "b"]
    assert [[s and (s.value, s.ci_low, s.n) for s in row.scores] for row in found.rows] == [
        [s and (s.value, pytest.approx(s.ci_low), s.n) for s in row.scores] for row in rows
    ]
    assert found.rows[0].mean.value == pytest.approx(0.6)
    assert found.rows[1].mean is None
