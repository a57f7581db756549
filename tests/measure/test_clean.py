"""The clean measure against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import stockpot
from pico import CLASSES, make_classifier, make_dataset
from stockpot.errors import BadDataError
from stockpot.measure import measures
from stockpot.measure.measurement import Context
from stockpot.results.calibration import calibration_error
from stockpot.score.class_space import match_classes
from stockpot.score.predictions import best_columns


class Fixed(nn.Module):
    """Logits that depend on nothing but the row of a table."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.table = nn.Parameter(logits)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.table[: len(pixels)]


def score(result, metric: str, **condition):
    for found in result.scores:
        if found.metric == metric and condition.items() <= found.condition.items():
            return found
    raise KeyError(metric)


def test_a_perfect_model_scores_one(perfect, toy_data) -> None:
    result = measures.get("clean")(perfect, toy_data, Context(batch_size=7))
    accuracy = score(result, "accuracy")
    assert accuracy.value == 1.0
    assert accuracy.n == 40
    assert accuracy.ci_high == 1.0
    assert accuracy.ci_low == pytest.approx(40 / (40 + 1.959964**2))  # Wilson at k = n
    assert result.outcomes["correct"].all()


def test_a_random_model_scores_one_in_classes() -> None:
    data = make_dataset(n=2000)
    logits = torch.randn(2000, 4, generator=torch.Generator().manual_seed(0))
    result = measures.get("clean")(make_classifier(Fixed(logits)), data, Context(batch_size=2000))
    accuracy = score(result, "accuracy")
    assert accuracy.ci_low < 0.25 < accuracy.ci_high


def test_every_number_by_hand() -> None:
    data = make_dataset(n=4)
    # Labels are 0, 1, 2, 3. Probabilities are chosen, logits are their logs.
    chances = torch.tensor(
        [[0.7, 0.1, 0.1, 0.1], [0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.6, 0.1], [0.5, 0.2, 0.2, 0.1]]
    )
    model = make_classifier(Fixed(chances.log()))
    result = measures.get("clean")(model, data, Context(batch_size=4), top=2, bins=10)
    assert score(result, "accuracy").value == 0.5
    assert score(result, "top2_accuracy").value == 0.75
    expected = -np.log([0.7, 0.3, 0.6, 0.1]).mean()
    assert score(result, "nll").value == pytest.approx(expected, rel=1e-6)
    gaps = np.array([0.7 - 1, 0.4 - 0, 0.6 - 1, 0.5 - 0])  # each in a bin of its own
    assert score(result, "ece").value == pytest.approx(np.abs(gaps).mean(), abs=1e-6)
    assert score(result, "class_accuracy", **{"class": "bee"}).value == 0.0
    assert score(result, "class_accuracy", **{"class": "cat"}).n == 1


def test_equal_outputs_are_the_same_answer_to_every_measure() -> None:
    class Undecided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, pixels):
            return self.weight.expand(len(pixels), len(CLASSES))

    data = make_dataset(40).take(range(3, 40))
    model = make_classifier(Undecided())
    first = [(data.labels < count).double().mean().item() for count in (1, 3)]
    (found,) = stockpot.measure(model, {"clean": {"top": 3}}, data=data)
    assert found.score("accuracy").value == first[0]
    assert found.score("top3_accuracy").value == first[1]
    outputs = torch.zeros(5, 60).index_fill_(1, torch.tensor([20, 30]), 1.0)
    assert best_columns(outputs, 4).tolist() == [[20, 30, 0, 1]] * 5


def test_the_interval_of_ece_knows_that_a_calibrated_model_may_be_calibrated() -> None:
    """On sixty images chance makes 12.9 % of 0; bootstrapped, the interval began at 11.8 %."""
    data = make_dataset(n=60)
    generator = torch.Generator().manual_seed(5)
    sure = torch.rand(60, generator=generator) * 0.7 + 0.3
    right = torch.rand(60, generator=generator) < sure
    chances = ((1 - sure) / 3)[:, None].repeat(1, 4)
    chances[torch.arange(60), torch.where(right, data.labels, (data.labels + 1) % 4)] = sure
    result = measures.get("clean")(make_classifier(Fixed(chances.log())), data, Context())
    ece = score(result, "ece")
    assert ece.value > 0.1
    assert ece.ci_low == 0.0
    assert ece.ci_low <= ece.value <= ece.ci_high


def test_calibration_error_is_zero_when_calibrated() -> None:
    confidence = np.repeat(0.75, 400)
    correct = np.arange(400) % 4 != 0
    assert calibration_error(confidence, correct, 15) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("batch", [1, 3, 64])
def test_batch_size_changes_nothing(perfect, toy_data, batch: int) -> None:
    whole = measures.get("clean")(perfect, toy_data, Context(batch_size=40))
    parts = measures.get("clean")(perfect, toy_data, Context(batch_size=batch))
    assert parts.scores == whole.scores


def test_shards_sum_to_the_whole(toy_data) -> None:
    logits = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))
    run = measures.get("clean")
    whole = run(make_classifier(Fixed(logits)), toy_data, Context(batch_size=40))
    first = run(
        make_classifier(Fixed(logits[:15])), toy_data.take(range(15)), Context(batch_size=40)
    )
    rest = run(
        make_classifier(Fixed(logits[15:])), toy_data.take(range(15, 40)), Context(batch_size=40)
    )
    right = sum(score(part, "accuracy").value * score(part, "accuracy").n for part in (first, rest))
    assert right == pytest.approx(score(whole, "accuracy").value * 40)


def test_classes_are_matched_by_name() -> None:
    mapping = match_classes(("Polar bear", "ant", "bee"), ("bee", "polar_bear"))
    assert mapping.outputs.tolist() == [2, 0]
    logits = torch.tensor([[0.0, 9.0, 1.0]])
    everything, target = mapping.project(logits, torch.tensor([0]))
    assert (int(everything.argmax()), int(target)) == (1, 2)  # wrong among all outputs
    subset = match_classes(("Polar bear", "ant", "bee"), ("bee", "polar_bear"), "subset")
    logits, target = subset.project(logits, torch.tensor([0]))
    assert int(logits.argmax()) == int(target) == 0  # right among the data's classes
    assert "ant" in mapping.note


def test_unnamed_outputs_match_by_position() -> None:
    assert match_classes(("0", "1"), ("yes", "no")).outputs.tolist() == [0, 1]


def test_unknown_classes_are_named() -> None:
    with pytest.raises(BadDataError, match=r"1 of 2 classes that the model does not know: eel"):
        match_classes(CLASSES, ("ant", "eel"))


def test_cost_counts_what_is_there() -> None:
    from stockpot.measure.cost import cost

    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4))
    result = cost(make_classifier(network), make_dataset(8), Context(), batch=4, repeats=3)
    assert score(result, "parameters").value == 768 * 4 + 4
    assert score(result, "flops_per_image").value == 2 * 768 * 4
    assert score(result, "images_per_second").value > 0
    assert score(result, "latency").condition["batch"] == 1


def test_peak_memory_is_what_the_layers_hold() -> None:
    from stockpot.measure.cost import cost

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(768, 4096), nn.Linear(4096, 4)

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return self.down(self.up(pixels.flatten(1)))

    result = cost(make_classifier(Wide()), make_dataset(64), Context(), batch=64, repeats=3)
    hidden = 64 * 4096 * 4
    # The hidden layer dominates; the normalised pixels (twice at most) come on top.
    assert hidden <= score(result, "peak_memory").value <= hidden + 4 * 64 * 768 * 4
