"""Signs of hiding: gradients past hard steps are followed only where the plain ones do not lead."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pico import CLASSES, make_classifier
from stockpot.dynamic.task import Rules, Task
from stockpot.dynamic.ways.straight_through import StraightThroughGradient
from stockpot.measure.dynamic import signs


@pytest.mark.parametrize(("leads", "ways"), [(True, [False]), (False, [False, True])])
def test_hard_steps_are_looked_past_only_where_the_gradient_does_not_lead(
    monkeypatch: pytest.MonkeyPatch, leads: bool, ways: list[bool]
) -> None:
    past: list[bool] = []

    def followed(task: Task, few: torch.Tensor) -> tuple[bool, bool, bool]:
        past.append(isinstance(task.way, StraightThroughGradient))
        return (False, False, leads) if len(past) == 1 else (False, True, False)

    monkeypatch.setattr(signs, "_followed", followed)
    model = make_classifier(nn.Sequential(nn.Flatten(), nn.Linear(768, len(CLASSES)))).eval()
    few = torch.rand(4, 3, *model.preprocess.size)
    found = signs.look_for_signs(model, Task(model, None, None, Rules()), few)  # type: ignore[arg-type]
    assert past == ways
    assert found.no_way_through is not leads
