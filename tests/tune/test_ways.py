"""Samplers and pruners from outside; every objective beside a direct call of its measure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import stockpot
from pico import make_dataset
from stockpot.tune.study import sqlite_in
from toy_tuning import levels, parted, toy

optuna = pytest.importorskip("optuna")


@pytest.mark.parametrize("sampler", ["cma", "nsga2"])  # the others search in other tests
def test_every_sampler_is_reached_and_keeps_to_the_range(tmp_path: Path, sampler: str) -> None:
    several = sampler == "nsga2"
    found = toy(
        tmp_path, sampler=sampler, points=4, trials=4, test_split=None,
        space={"scale": "0.1:0.6"}, objectives="clean,calibration" if several else "clean",
    )  # fmt: skip
    scales = [trial.params["scale"] for trial in found.trials]
    assert len(set(scales)) == 4
    assert all(0.1 <= scale <= 0.6 for scale in scales)


@pytest.mark.parametrize("prune", ["median", "halving"])  # racing: test_tune.py
def test_who_is_given_up_was_behind(tmp_path: Path, prune: str) -> None:
    """By numpy, from what the storage holds: behind the median, or the best third."""
    found = toy(tmp_path, points=12, prune=prune, test_split=None)
    study = optuna.load_study(study_name="stockpot", storage=sqlite_in(tmp_path))
    reports = {t.number: t.intermediate_values for t in study.trials}
    whole = {t.number for t in found.trials if t.state == "complete"}
    given_up = [t.number for t in found.trials if t.state == "pruned"]
    assert given_up
    assert 0 < found.trial(found.chosen or 0).params["scale"] < 0.6
    for number in given_up:
        step, own = max(reports[number].items())
        before = [r[step] for n, r in reports.items() if n < number and step in r]
        if prune == "median":  # the best so far, against those that were judged in full
            ended = [reports[n][step] for n in whole if n < number]
            assert max(reports[number].values()) < np.median(ended)
            assert len(ended) >= 5
        else:
            assert sum(other > own for other in before) >= max(1, (len(before) + 1) // 3)


def direct(measure: str, metric: str, scale: float, data: Any, **params: Any) -> float:
    """What the measure itself says of the same merge."""
    (cell,) = stockpot.measure({"m": levels(4 * scale)}, {measure: params}, data=data)
    found = [score for score in cell.scores if score.metric == metric]
    whole = [score.value for score in found if not score.condition] or [found[0].value]
    assert len(whole) == 1, "one number of all conditions"
    return whole[0]


CORRUPTION = {"corruptions": ["brightness"], "severities": [3]}
ATTACKS = {"norms": "linf,l2", "method": "pgd", "steps": 2}


def test_objectives_are_what_their_measures_say(tmp_path: Path) -> None:
    seen, _ = parted()
    other = make_dataset(20).take(range(5, 20))
    common: dict[str, Any] = {"space": {"scale": "0.1:0.4"}, "points": 3, "test_split": None}
    base, members = levels(0.0), {"far": levels(4.0)}
    tasks = stockpot.tune(
        "task_arithmetic", members, [seen, other], base=base, out=tmp_path / "tasks",
        sampler="grid", objectives="worst_task,unseen,calibration", unseen=other.take(range(9)),
        **common,
    )  # fmt: skip
    for trial in tasks.trials:
        scale = trial.params["scale"]
        parts = [direct("clean", "accuracy", scale, data) for data in (seen, other)]
        assert trial.values["worst_task"] == pytest.approx(min(parts))
        unseen = direct("clean", "accuracy", scale, other.take(range(9)))
        assert trial.values["unseen"] == pytest.approx(unseen)
        errors = [direct("clean", "ece", scale, data) for data in (seen, other)]
        assert trial.values["calibration"] == pytest.approx(np.mean(errors))
    hard = toy(
        tmp_path / "hard", objectives="corruption,robust",
        measure_params={"corruption": CORRUPTION, "adversarial": ATTACKS}, **common,
    )  # fmt: skip
    for trial in hard.trials:
        scale = trial.params["scale"]
        found = direct("corruption", "mean_corruption_accuracy", scale, seen, **CORRUPTION)
        assert trial.values["corruption"] == pytest.approx(found)
        found = direct("adversarial", "union_accuracy", scale, seen, **ATTACKS)
        assert trial.values["robust"] == pytest.approx(found)
    assert len({trial.values["corruption"] for trial in hard.trials}) > 1


def test_criteria_without_labels_are_their_formulas(tmp_path: Path) -> None:
    """Mean entropy in nats, and the nuclear norm of all answers over its largest possible value."""
    found = toy(tmp_path, objectives="entropy,nuclear_norm", points=3, test_split=None)
    seen, _ = parted()
    pixels = torch.cat([batch.images for batch in seen.batches(64)])
    for trial in found.trials:
        with torch.no_grad():
            answers = levels(4 * trial.params["scale"])(pixels).double().softmax(dim=1).numpy()
        surprise = -(answers * np.log(np.maximum(answers, 1e-300))).sum(axis=1).mean()
        assert trial.values["entropy"] == pytest.approx(surprise, rel=1e-4)
        norm = np.linalg.svd(answers, compute_uv=False).sum()
        most = np.sqrt(min(answers.shape) * len(answers))
        assert trial.values["nuclear_norm"] == pytest.approx(norm / most, rel=1e-4)
