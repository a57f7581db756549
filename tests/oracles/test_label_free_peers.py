"""Estimates without labels and active selection against recorded outputs of their authors' code."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from stockpot.score.without_labels.active_testing import (
    chances,
    expected_losses,
    lure_risk,
    lure_weights,
)
from stockpot.score.without_labels.coda import Coda
from stockpot.score.without_labels.confidence import (
    atc_accuracy,
    doc_accuracy,
    entropy,
    nuclear_norm,
)
from stockpot.score.without_labels.transport import transport

PEERS = json.loads((Path(__file__).parent / "data/label_free/peers.json").read_text("utf-8"))
ODDS = torch.tensor(PEERS["logits"], dtype=torch.float64).softmax(dim=2)
LABELS = torch.tensor(PEERS["labels"])


@pytest.mark.parametrize("recorded", PEERS["coda"], ids=lambda row: f"{row['rate']}-{row['asked']}")
def test_coda_is_that_of_its_authors(recorded: dict[str, list[float]]) -> None:
    found = Coda(ODDS.numpy(), rate=recorded["rate"])  # type: ignore[arg-type]
    for image in map(int, recorded["asked"]):
        found.add(image, int(LABELS[image]))
    candidates = found.candidates()
    assert candidates.tolist() == recorded["images"]
    assert found.gains(candidates) == pytest.approx(recorded["gains"], rel=1e-9)
    assert found.best() == pytest.approx(recorded["best"], rel=1e-9)
    assert found.frequency == pytest.approx(recorded["frequency"], rel=1e-9)


def test_active_testing_is_that_of_the_paper() -> None:
    picks = PEERS["lure"]["picks"]
    images, drawn_with = [pick[0] for pick in picks], np.array([pick[1] for pick in picks])
    expected = expected_losses(ODDS.numpy())
    for place, (image, chance) in enumerate(picks):
        found = chances(expected, np.array(images[:place], dtype=np.int64))
        assert found[image] == pytest.approx(chance, rel=1e-9)
        assert found.sum() == pytest.approx(1)
    assert lure_weights(drawn_with, len(LABELS)) == pytest.approx(PEERS["lure"]["weights"])
    losses = (ODDS.argmax(dim=2) != LABELS)[:, images].double().numpy()
    assert lure_risk(losses, drawn_with, len(LABELS)) == pytest.approx(PEERS["lure"]["risk"])


def test_scores_without_labels_are_those_of_the_papers() -> None:
    recorded = PEERS["scores"]
    source, right = ODDS[recorded["model"]], ODDS[recorded["model"]].argmax(dim=1) == LABELS
    target = torch.tensor(recorded["target"], dtype=torch.float64).softmax(dim=1)
    sure = source.amax(dim=1), right, target.amax(dim=1)
    assert float(atc_accuracy(*sure)) == pytest.approx(recorded["atc_confidence"])
    spread = -entropy(source), right, -entropy(target)
    assert float(atc_accuracy(*spread)) == pytest.approx(recorded["atc_entropy"])
    assert float(doc_accuracy(*sure)) == pytest.approx(recorded["doc"])
    moved = transport(np.array(recorded["cot_labels"]), target.numpy())
    assert 1 - moved.accuracy == pytest.approx(recorded["cot_error"])
    assert float(nuclear_norm(target)) * (3 * 11) ** 0.5 == pytest.approx(recorded["nuclear"])
