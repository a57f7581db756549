"""Detectors, certificates and calibration equal other programs' (`data/unknown/README.md`)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from stockpot.measure.unknown.conformal_sets import Regular, strangeness
from stockpot.measure.unknown.detection import rates
from stockpot.measure.unknown.detectors import ALL, Settings, detector
from stockpot.measure.unknown.penultimate import Head
from stockpot.measure.unknown.smoothing import certify, predict
from stockpot.results.calibration import calibration_error
from unknown.tables import answers_from

DATA = Path(__file__).parent / "data" / "unknown"
OPENOOD = json.loads((DATA / "openood.json").read_text())
PROBABILITIES = json.loads((DATA / "probabilities.json").read_text())


@pytest.mark.parametrize("name", ALL)
def test_detectors_say_what_openood_says(name: str) -> None:
    stored = np.load(DATA / "openood.npz")
    given = {key: torch.from_numpy(stored[key]) for key in ("weight", "bias", "train")}
    features = torch.from_numpy(np.concatenate([stored["inside"], stored["outside"]]))
    head = Head(given["weight"], given["bias"], "")
    function, _ = detector(name, Settings(k=7, dim=6, percentile=65), head, given["train"])
    scores = function(head.logits(features), features).double().numpy()
    np.testing.assert_allclose(scores, stored[f"score_{name}"], rtol=2e-5, atol=2e-6)
    want = OPENOOD["metrics"][name]
    assert rates(scores[:14], scores[14:]) == pytest.approx(want, abs=1e-9)


def test_ties_are_told_as_scikit_learn_tells_them() -> None:
    want = dict(OPENOOD["tied"])
    inside, outside = np.array(want.pop("inside")), np.array(want.pop("outside"))
    assert rates(inside, outside) == pytest.approx(want, abs=1e-12)


def test_certificates_are_those_of_the_smoothing_paper() -> None:
    rows = json.loads((DATA / "smoothing.json").read_text())["rows"]
    assert {row[4] for row in rows} == {-1, 0, 1}  # some abstain
    for sigma, alpha, chosen, counted, best, radius, said in rows:
        classes, radii = certify(np.array([chosen]), np.array([counted]), sigma, alpha)
        assert (classes[0], radii[0]) == (best, pytest.approx(radius, abs=1e-9))
        assert predict(np.array([counted]), alpha).tolist() == [said]


def test_calibration_error_nll_and_brier() -> None:
    from stockpot.measure.unknown.calibration import brier
    from stockpot.measure.unknown.temperature import nll

    answers = answers_from(np.array(PROBABILITIES["logits"]), np.array(PROBABILITIES["labels"]))
    ece = calibration_error(answers.confidence(), answers.correct, 10)
    assert ece == pytest.approx(PROBABILITIES["ece_netcal"], abs=1e-7)
    assert ece == pytest.approx(PROBABILITIES["ece_torchmetrics"], abs=1e-6)
    assert nll(answers).mean() == pytest.approx(PROBABILITIES["log_loss"], abs=1e-9)
    found = brier(answers, answers.probabilities()).mean()
    assert found == pytest.approx(PROBABILITIES["brier"], abs=1e-9)


@pytest.mark.parametrize("method", ["lac", "aps", "raps"])
def test_conformal_scores_are_those_of_torchcp(method: str) -> None:
    logits = np.array(PROBABILITIES["logits"])[:12]
    answers = answers_from(logits, np.zeros(12, dtype=np.int64))
    found = strangeness(answers.probabilities(), method, None, Regular(0.1, 1))  # type: ignore[arg-type]
    # Its penalty is a float32.
    np.testing.assert_allclose(found, PROBABILITIES["conformal"][method], atol=1e-6)
