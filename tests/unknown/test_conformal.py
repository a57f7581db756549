"""Conformal sets keep their promise, and held-out images are never those that are scored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import softmax

from pico import CLASSES, make_classifier, make_dataset
from stockpot.checkpoints.seen import seen_as
from stockpot.datasets.by_content.image_hashes import image_hashes
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.errors import BadDataError
from stockpot.measure.measurement import Context
from stockpot.measure.unknown.conformal import conformal
from stockpot.measure.unknown.conformal_sets import Regular, strangeness, threshold
from stockpot.measure.unknown.held_out import held_out_answers
from unknown.tables import Table


@pytest.mark.parametrize("method", ["lac", "aps", "raps"])
def test_coverage_is_what_the_theorem_says(method: str) -> None:
    """Over draws of n held-out images the mean is ceil((n + 1) (1 - alpha)) / (n + 1)."""
    generator = np.random.default_rng(0)
    n, alpha, draws = 23, 0.2, 400
    chances = softmax(generator.normal(size=(draws, n + 40, 6)), axis=2)
    labels = generator.integers(0, 6, (draws, n + 40))
    covered = []
    for own, right in zip(chances, labels, strict=True):
        strange = strangeness(own, method, generator.random(n + 40), Regular())  # type: ignore[arg-type]
        of_right = strange[np.arange(n + 40), right]
        covered.append((of_right[n:] <= threshold(of_right[:n], alpha)).mean())
    want = np.ceil((n + 1) * (1 - alpha)) / (n + 1)
    assert 1 - alpha <= want <= 1 - alpha + 1 / (n + 1)
    assert np.mean(covered) == pytest.approx(want, abs=3 * np.std(covered) / np.sqrt(draws))


def test_thresholds_by_hand() -> None:
    strange = np.array([0.9, 0.1, 0.5, 0.3])
    assert threshold(strange, 0.4) == 0.5  # rank 3 of 4
    assert threshold(strange, 0.2) == 0.9  # rank 4
    assert threshold(strange, 0.1) == np.inf  # rank 5 is not there: every class is in


def test_sets_by_hand() -> None:
    """Half of the images sets the threshold, the others have sets of one class or of two."""
    data = spelled(make_dataset(120))
    chances = torch.tensor([0.6, 0.3, 0.05, 0.05]).repeat(120, 1)
    rows = torch.arange(120)
    second = rows % 3 == 0  # a third of the images shows the second best
    logits = torch.zeros(120, 4)
    for row in rows.tolist():
        label = int(data.labels[row])
        order = [(label + 3) % 4, label] if second[row] else [label, (label + 1) % 4]
        order += [number for number in range(4) if number not in order]
        logits[row, order] = chances[row].log()
    model = make_classifier(Table(logits), CLASSES)
    found = conformal(model, data, Context(), methods=("lac",), alpha=0.2)
    coverage, size = (score(found, metric) for metric in ("coverage", "set_size"))
    # A third misses with one class, so the threshold takes two: all are covered.
    assert (coverage.value, size.value, size.unit) == (1.0, 2.0, "classes")
    few = conformal(model, data, Context(), methods=("lac",), alpha=0.6)
    assert score(few, "set_size").value == 1.0
    assert score(few, "coverage").value == pytest.approx(2 / 3, abs=0.12)
    assert score(few, "accuracy").value == pytest.approx(2 / 3)
    many = conformal(model, data, Context(), methods=("aps",), alpha=0.001)
    assert score(many, "set_size").value == 4.0
    assert any("too few for alpha" in note for note in many.notes)


def score(found, metric: str):
    return next(each for each in found.scores if each.metric == metric)


def spelled(data: Dataset) -> Dataset:
    pixels = next(data.batches(len(data))).images.clone()
    pixels[:, :, 0, 0] = torch.arange(len(data)).to(torch.uint8)[:, None]
    return replace(data, images=TensorImages(pixels))


def reader() -> torch.nn.Module:
    return Table(torch.arange(800.0).reshape(200, 4))


def test_halves_by_content_are_apart_and_keep_originals_together() -> None:
    data = spelled(make_dataset(120))
    originals = tuple(str(row // 4) for row in range(120))
    data = replace(data, columns={**data.columns, "original": originals})
    model = make_classifier(reader())
    parts = held_out_answers(model, data, Context(), "content", "all")
    fit, scored = (set(part.logits[:, 0].tolist()) for part in (parts.fit, parts.scored))
    assert not fit & scored
    assert len(fit) + len(scored) == len(parts.whole) == 120
    assert 20 < len(fit) < 100
    assert parts.fit.groups is not None
    assert not set(parts.fit.groups.tolist()) & set(parts.scored.groups.tolist())
    # What is in a half does not depend on the order of the images.
    turned = held_out_answers(
        model, data.take(list(range(119, -1, -1))), Context(), "content", "all"
    )
    assert set(turned.fit.logits[:, 0].tolist()) == fit


def test_what_is_measured_or_was_trained_on_is_not_held_out() -> None:
    data = spelled(make_dataset(150))
    measured, val = data.take(range(50)), data.take(range(40, 150))
    model = make_classifier(reader())
    model.history = seen_as("training", image_hashes(val.images)[20:50])
    context = Context(sibling={"val": val}.__getitem__)
    parts = held_out_answers(model, measured, context, "val", "all")
    # Ten of 110 are measured, and rows 60 to 89 were trained on.
    rows = (parts.fit.logits[:, 0] / 4).astype(int).tolist()
    assert rows == [*range(50, 60), *range(90, 150)]
    assert (parts.flags[0].count, parts.flags[0].of) == (40, 110)
    assert len(parts.scored) == 50
    assert parts.words.startswith("70 of toy:test")


def test_without_a_val_split_half_of_the_images_is_held_out() -> None:
    data = spelled(make_dataset(60))
    model = make_classifier(reader())

    def missing(split: str) -> Dataset:
        raise BadDataError(f"toy has no {split}.")

    for context in (Context(), Context(sibling=missing), Context(sibling=lambda _: data)):
        parts = held_out_answers(model, data, context, "val", "all")
        assert len(parts.fit) + len(parts.scored) == 60
        assert "no val split to use" in parts.notes[0]
    with pytest.raises(BadDataError, match="by content none of 1"):
        held_out_answers(model, data.take([0]), Context(), "content", "all")
