"""Mask validation against masks that are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from pico import make_classifier, make_dataset
from stockpot.errors import UserError
from stockpot.measure.measurement import Context
from stockpot.measure.object_masks import object_masks, points_at, rates
from stockpot.models.classifier import Classifier

TRUTH = torch.zeros(1, 4, 4, dtype=torch.bool)
TRUTH[0, :2, :] = True  # the upper half


class Centre(nn.Module):
    """Its score is the brightness of 2 x 2 cells, so Grad-CAM is that brightness."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.AvgPool2d(4)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        score = (self.scale * self.cells(pixels)).mean(dim=(1, 2, 3))
        return torch.stack([score, -score, -score, -score], dim=1)


def test_rates_counted_by_hand() -> None:
    masked = torch.tensor([[[True, False], [True, False]]])  # the left half
    found = rates(masked, TRUTH)[0]
    torch.testing.assert_close(found, torch.tensor([8 / 16, 4 / 8, 4 / 12]))
    exact = torch.tensor([[[True, True], [False, False]]])
    torch.testing.assert_close(rates(exact, TRUTH)[0], torch.tensor([0.5, 1.0, 1.0]))
    nothing = torch.zeros(1, 2, 2, dtype=torch.bool)
    torch.testing.assert_close(rates(nothing, TRUTH)[0], torch.zeros(3))


def test_pointing() -> None:
    assert points_at(torch.tensor([[[0.1, 0.9], [0.3, 0.2]]]), TRUTH).tolist() == [True]
    assert points_at(torch.tensor([[[0.1, 0.2], [0.3, 0.9]]]), TRUTH).tolist() == [False]


def bright_objects(n: int = 12) -> tuple[Classifier, object]:
    data = make_dataset(n)
    pixels = torch.zeros(n, 3, 16, 16, dtype=torch.uint8)
    pixels[:, :, :4, :4] = 250  # one bright cell, and one of half its brightness
    pixels[:, :, 4:8, :4] = 125
    masks = torch.zeros(n, 16, 16, dtype=torch.bool)
    masks[:, :4, :4] = True
    images = replace(data.images, pixels=pixels)
    labels = torch.zeros(n, dtype=torch.long)
    return make_classifier(Centre()), replace(data, images=images, labels=labels, masks=masks)


def test_a_model_that_looks_at_the_object_scores_one() -> None:
    model, data = bright_objects()
    found = object_masks(model, data, Context(batch_size=5), thresholds=(0.4, 0.6))
    by = {(s.metric, s.condition.get("threshold")): s for s in found.scores}
    assert by["mask_iou", 0.6].value == 1.0
    assert by["mask_iou", 0.4].value == 0.5
    assert by["image_masking_rate", 0.6].value == pytest.approx(1 / 16)
    assert by["object_masking_rate", 0.4].value == 1.0
    assert by["pointing", None].value == 1.0
    assert by["mask_iou", 0.6].n == 12


def test_labels_are_the_model_s_own_numbers() -> None:
    """The data has fewer classes in another order; the explained output is the one of that name."""
    model, data = bright_objects()
    few = replace(data, classes=("dog", "ant"), labels=torch.ones(len(data), dtype=torch.long))
    found = object_masks(model, few, Context(), thresholds=(0.6,))
    assert next(s.value for s in found.scores if s.metric == "mask_iou") == 1.0
    wrong = replace(few, labels=torch.zeros(len(data), dtype=torch.long))  # dog: no evidence
    found = object_masks(model, wrong, Context(), thresholds=(0.6,))
    assert next(s.value for s in found.scores if s.metric == "mask_iou") == 0.0


def test_lower_thresholds_mask_more() -> None:
    data = make_dataset(30)
    generator = torch.Generator().manual_seed(1)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(784, 4))
    for parameter in net.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) / 10
    data = replace(data, masks=torch.rand(30, 16, 16, generator=generator) < 0.3)
    found = object_masks(make_classifier(net), data, Context(), thresholds=(0.7, 0.5, 0.3, 0.1))
    for metric in ("image_masking_rate", "object_masking_rate"):
        values = [score.value for score in found.scores if score.metric == metric]
        assert values == sorted(values)


def test_what_cannot_be_measured_is_said() -> None:
    model, data = bright_objects()
    with pytest.raises(UserError, match="no object masks"):
        object_masks(model, make_dataset(), Context())
    with pytest.raises(UserError, match="thresholds"):
        object_masks(model, data, Context(), thresholds=(1.0,))
    with pytest.raises(UserError, match="label or predicted"):
        object_masks(model, data, Context(), target="truth")
