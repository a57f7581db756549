"""Streams: every picture once under every corruption, in the order that the question names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import stockpot
from pico import make_classifier, make_dataset
from stockpot.defend.defended import defend
from stockpot.errors import BadParameterError, UserError
from stockpot.measure.from_outcomes import scores_from_outcomes
from stockpot.measure.stream.order import ordered, pieces
from stockpot.models.classifier import Classifier
from stockpot.results.schema import CellResult

LABELS = np.arange(60) % 4
QUICK: dict[str, Any] = {"corruptions": "contrast,jpeg_compression", "attacked": 0, "batch": 16}


def small() -> Classifier:
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(32, 4)),
    )
    return make_classifier(network).eval()


def measured(model: Classifier, defence: str = "", seed: int = 0, **params: Any) -> CellResult:
    options = {"defend": {defence: {"lr": 0.3}}} if defence else {}
    chosen = {"stream": {**QUICK, **params}}
    (found,) = stockpot.measure(
        model, chosen, data=make_dataset(40), model_options=options, seed=seed, device="cpu"
    )
    return found


@pytest.mark.parametrize("order", ["shuffled", "sorted", "dirichlet"])
@pytest.mark.parametrize("stream", ["single", "continual", "mixed"])
def test_a_stream_shows_every_picture_once_under_every_corruption(stream: Any, order: Any) -> None:
    parts = pieces(stream, order, LABELS, 3, 0, 0.1)
    rows, kinds = (np.concatenate([part[n] for part in parts]) for n in (0, 1))
    assert sorted(zip(rows, kinds, strict=True)) == [(r, k) for r in range(60) for k in range(3)]
    again = pieces(stream, order, LABELS, 3, 0, 0.1)
    assert all(np.array_equal(a.rows, b.rows) for a, b in zip(parts, again, strict=True))
    other = pieces(stream, order, LABELS, 3, 1, 0.1)
    assert not all(np.array_equal(a.rows, b.rows) for a, b in zip(parts, other, strict=True))
    fresh = {"single": [True] * 3, "continual": [True, False, False], "mixed": [True]}
    assert [part.fresh for part in parts] == fresh[stream]
    sizes = [len(rows) for part in parts for rows, _ in part.batches(16)]
    assert sizes == ([16] * 11 + [4] if stream == "mixed" else [16, 16, 16, 12] * 3)


def test_labels_come_in_runs() -> None:
    def changes(order: Any, concentration: float = 0.1) -> int:
        found = LABELS[ordered(LABELS, order, np.random.default_rng(0), concentration)]
        return int((np.diff(found) != 0).sum())

    assert changes("sorted") == 3
    # At most a run of each class in each slot; with a small concentration a class keeps to one.
    assert changes("dirichlet", 1e-3) <= changes("dirichlet", 100.0) <= 15 < changes("shuffled")
    # Where a class is not there, nothing is asked of it.
    assert len(ordered(np.array([1, 3, 3]), "dirichlet", np.random.default_rng(0), 0.1)) == 3


def test_a_model_that_does_not_adapt_is_as_good_in_any_stream() -> None:
    model = small()
    (grid,) = stockpot.measure(
        model,
        {"corruption": {"corruptions": QUICK["corruptions"], "severities": 5, "baseline": "none"}},
        data=make_dataset(40),
        device="cpu",
    )
    for params in ({"stream": "mixed"}, {"stream": "single", "order": "sorted", "batch": 7}):
        found = measured(model, **params)
        for name in QUICK["corruptions"].split(","):
            assert np.array_equal(found.outcome(f"{name}:5"), grid.outcome(f"{name}:5"))
            score = found.score("accuracy", corruption=name)
            assert score.value == pytest.approx(1 - grid.score("error", corruption=name).value)
        assert found.score("stream_accuracy").n == 80
    (clean,) = stockpot.measure(model, "clean", data=make_dataset(40), device="cpu")
    bare = measured(model, severity=0)
    assert np.array_equal(bare.outcome("correct"), clean.outcome("correct"))
    for metric in ("nll", "ece"):
        assert bare.score(metric).value == pytest.approx(clean.score(metric).value, abs=1e-6)


def test_nothing_of_one_cell_is_left_for_the_next(tmp_path: Path) -> None:
    model = small()
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    first, between = measured(model, "tent"), measured(model, "tent", stream="mixed")
    again = measured(model, "tent")
    assert first.scores == again.scores
    assert first.outcomes == again.outcomes
    assert between.score("nll").value != first.score("nll").value
    assert all(torch.equal(kept[name], value) for name, value in model.state_dict().items())
    # Before the second corruption the model begins anew, or it does not.
    alone = measured(model, "tent", stream="single")
    before, after = (f"{name}:5" for name in QUICK["corruptions"].split(","))
    assert alone.outcomes[before] == first.outcomes[before]
    assert alone.score("nll").value != first.score("nll").value
    other = measured(model, "tent", stream="single", corruptions="jpeg_compression,contrast")
    assert {before, after} == set(other.outcomes)


def test_the_stream_is_part_of_the_question() -> None:
    model = small()
    found = measured(model, "tent", batch=4, order="dirichlet", seed=3)
    assert found.score("stream_accuracy").condition == {
        "stream": "continual", "order": "dirichlet", "batch": 4,
    }  # fmt: skip
    assert found.key.params["batch"] == 4
    assert found.key.seed == 3
    assert "batches of 4, severity 5, seed 3" in found.notes[0]
    assert found.key.model_options["defend"] == {"tent": {"lr": 0.3}}
    shares = {score.condition["corruption"]: score.value for score in scores_from_outcomes(found)}
    told = {s.condition["corruption"]: s.value for s in found.scores if s.metric == "accuracy"}
    assert shares == told


def test_attacks_name_whom_they_saw() -> None:
    def shares(found: CellResult) -> dict[str, float]:
        return {score.metric: score.value for score in found.scores if score.n == 8}

    seen = shares(measured(small(), "tent", attacked=8, eps=0.2))
    assert len(seen) == 4
    for who in ("static", "adapted"):
        assert seen[f"{who}_robust_accuracy"] <= seen[f"{who}_accuracy"]
    # The model as it was given is the same one, whatever stands around it.
    plain = shares(measured(small(), attacked=8, eps=0.2))
    assert plain == {name: value for name, value in seen.items() if name.startswith("static")}


def test_other_measures_refuse_a_model_that_adapts() -> None:
    model = small()
    with pytest.raises(UserError, match=r"tent\(.*\) adapts while it is asked, so clean would"):
        stockpot.measure(model, "clean", data=make_dataset(8), model_options={"defend": "tent"})
    with pytest.raises(UserError, match="adapts while it is asked"):
        stockpot.measure(defend(model, "eata"), "corruption", data=make_dataset(8))
    with pytest.raises(BadParameterError, match="severity"):
        measured(model, severity=6)
