"""A model whose outputs are no numbers is wrong in every measure, and the result says so."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import stockpot
from pico import CLASSES, ReadsLabel, make_classifier, make_dataset
from season.toys import linear_member, toy_images
from stockpot.measure.corruption import corruption
from stockpot.measure.measurement import Context
from stockpot.results.schema import CellResult
from stockpot.score.predictions import finite
from stockpot.score.scorer import scorer_for
from stockpot.season.run import season

QUICK = {
    "clean": {"per_class": False},
    "corruption": {"corruptions": "brightness", "severities": "1", "baseline": "none"},
    "shape_bias": {},
    "surface": {"by": "family"},
    "calibration": {"held_out": "content"},
    "selective": {},
    "adversarial": {"steps": 2, "norms": "linf"},
    "dynamic": {
        "generator": "colour",
        "oracle": "none",
        "budget": 2,
        "pictures": 1,
        "per_class": False,
    },
}


class Silent(nn.Module):
    """Right about every image, but that a share of its images gets outputs that are no numbers."""

    def __init__(self, value: float, all_of_them: bool) -> None:
        super().__init__()
        self.inner = ReadsLabel(len(CLASSES))
        self.value, self.all_of_them = value, all_of_them

    def forward(self, pixels):
        outputs = self.inner(pixels)
        first = torch.arange(outputs.shape[1], device=outputs.device) == 0
        broken = (pixels[:, :, 0, :].mean(dim=(1, 2)) < 0.05) | self.all_of_them  # class 0
        return torch.where(broken[:, None] & first, self.value, outputs)


@pytest.mark.parametrize("measure", QUICK)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_no_measure_takes_it_for_an_answer(measure: str, value: float) -> None:
    # NaN is the largest of outputs to argmax, and so is infinity: class 0 would be right.
    data = make_dataset(16)
    model = make_classifier(Silent(value, all_of_them=False))
    (result,) = stockpot.measure(model, {measure: QUICK[measure]}, data=data)
    assert result.score("accuracy").value == 0.75
    (flag,) = [flag for flag in result.flags if flag.name == "non_finite" and not flag.condition]
    assert 4 <= flag.count < flag.of
    assert any("NaN or infinite" in note for note in result.notes)
    assert CellResult.model_validate_json(result.model_dump_json()).flags == result.flags


def test_scores_of_a_silent_model() -> None:
    data = make_dataset(16)
    silent = make_classifier(Silent(torch.nan, all_of_them=True))
    (result,) = stockpot.measure(silent, {"clean": {"top": 2}}, data=data, device="cpu")
    assert result.score("accuracy").value == result.score("top2_accuracy").value == 0
    assert result.score("ece").value == 1  # as sure and as wrong as can be
    assert not [score for score in result.scores if score.metric == "nll"]
    part = make_classifier(Silent(torch.nan, all_of_them=False))
    (result,) = stockpot.measure(part, "clean", data=data, device="cpu")
    assert result.score("nll").n == 12
    # A grid that was kept in memory would not tell of what it saw.
    for _ in range(2):
        (again,) = stockpot.measure(
            part, {"corruption": QUICK["corruption"]}, data=data, device="cpu"
        )
        assert again.flags
    assert corruption(part, data, Context(), **QUICK["corruption"]).outcomes["correct"].sum() == 12


def test_outputs_that_the_data_does_not_ask_for_count_too() -> None:
    data = make_dataset(8)
    scorer = scorer_for((*CLASSES, "eel"), data, "subset")
    outputs = torch.nn.functional.one_hot(data.labels, 5).float()
    assert scorer.correct(outputs, slice(None)).all()
    outputs[0, 4] = torch.nan
    outputs[1, 4] = torch.inf
    assert scorer.correct(outputs, slice(None)).tolist() == [False, False, *[True] * 6]
    losses = scorer.losses(scorer.logits(outputs), slice(None))
    assert losses.isinf().tolist() == [True, True, *[False] * 6]


def test_a_soup_of_nothing_is_never_chosen() -> None:
    members = [linear_member(seed) for seed in (1, 2)]
    images = toy_images(60, members[1])
    with torch.no_grad():
        next(members[0].parameters()).fill_(torch.nan)
    for method in ("greedy", "grid"):
        result = season(
            method,
            members,
            images,
            shots=20,
            **({"low": 0, "high": 1, "step": 1} if method == "grid" else {}),
        )
        assert result.weights == (0.0, 1.0)
        assert result.accuracy.value == 1
        assert result.member_accuracy[result.members[0]].value == 0
        assert "NaN or infinite" in result.record.details["notes"]["non_finite"]


def test_a_row_is_finite_where_all_its_outputs_are() -> None:
    largest = torch.finfo(torch.float32).max
    strange = [torch.nan, torch.inf, -torch.inf, largest, -largest, 0.0]
    rows = torch.tensor([[1.0, one, other] for one in strange for other in strange])
    assert torch.equal(finite(rows), rows.isfinite().all(dim=1))
    assert torch.equal(finite(rows.flip(1).bfloat16()), rows.bfloat16().isfinite().all(dim=1))
