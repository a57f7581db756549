"""Models that hide from a dynamic search: each is flagged, and beaten where its answers allow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pico import make_classifier, make_dataset
from stockpot.attack.straight_through import StraightThrough
from stockpot.dynamic.generators.colour import ColourGenerator
from stockpot.measure.dynamic import measure as dynamic_measure
from stockpot.measure.run import measure
from stockpot.report.page import render
from stockpot.results.schema import CellResult

COUNT = 24
SETTINGS: dict[str, Any] = {
    "generator": "colour",
    "oracle": "none",
    "budget": 12,
    "step": 0.03,
    "pictures": 0,
    "per_class": False,
}


class Plain(nn.Module):
    """A linear classifier fitted to the toy pictures: right, and led astray by colours."""

    def __init__(self) -> None:
        super().__init__()
        data = make_dataset(COUNT)
        pixels = next(data.batches(COUNT)).images.float() / 255
        flat = pixels.flatten(1) - 0.5
        self.weight = nn.Parameter(torch.linalg.pinv(flat) @ (8.0 * torch.eye(4)[data.labels]))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return (pixels.flatten(1) - 0.5) @ self.weight


class Rounded(Plain):
    def forward(self, pixels):
        return super().forward(torch.round(pixels * 255) / 255)


class Whole(Plain):
    def forward(self, pixels):
        return super().forward((pixels * 255 + 0.5).byte().float() / 255)


class Detached(Plain):
    def forward(self, pixels):
        return super().forward(pixels.detach())


class WithoutGradients(Plain):
    def forward(self, pixels):
        with torch.no_grad():
            return super().forward(pixels)


class Hot(Plain):
    def forward(self, pixels):
        return super().forward(pixels) / 1e-6


class Probabilities(Plain):
    def forward(self, pixels):
        return super().forward(pixels).softmax(dim=1)


class Saturated(Plain):
    def forward(self, pixels):
        return (1e4 * super().forward(pixels)).softmax(dim=1)


class Backwards(Plain):
    """The right answers, and a gradient of its own making that points the wrong way."""

    def forward(self, pixels):
        logits = super().forward(pixels)
        return 2 * logits.detach() - logits


class Opaque(Plain):
    """The right logits by a road that no gradient can be led along."""

    def forward(self, pixels):
        return torch.from_numpy(super().forward(pixels).detach().clone().numpy().copy())


class Cut(Plain):
    """An honest gradient; past the cut, which a straight-through one stands aside for, it turns."""

    def forward(self, pixels):
        logits = super().forward(pixels)
        return logits - 3 * ((logits + 100).clamp(max=5) - 5)


class Random(Plain):
    def forward(self, pixels):
        logits = super().forward(pixels)
        return logits + 0.1 * torch.randn_like(logits)


class Counting(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, pixels):
        self.calls += 1
        return super().forward(pixels)


class Tiring(Plain):
    """Nothing is odd about it until it has been asked often."""

    calls = 0

    def forward(self, pixels):
        self.calls += 1
        return super().forward(pixels) * (1 if self.calls < 14 else -1)


def run(network: nn.Module, **params: Any) -> CellResult:
    settings = {**SETTINGS, **params}
    model, data = make_classifier(network), make_dataset(COUNT)
    torch.manual_seed(0)  # of the draws of a random model
    return measure(model, {"dynamic": settings}, data=data, device="cpu")[0]


@pytest.fixture(scope="module")
def plain() -> CellResult:
    return run(Plain())


def names(result: CellResult) -> set[str]:
    return {flag.name for flag in result.flags}


def test_an_honest_model_gets_no_flag(plain: CellResult) -> None:
    assert plain.flags == []
    assert plain.score("perturbed_accuracy").value < plain.score("accuracy").value == 1


def test_a_cut_of_its_own_does_not_make_a_model_hide(plain: CellResult) -> None:
    found = run(Cut())
    assert found.flags == []
    assert found.score("model_queries").value == plain.score("model_queries").value
    assert found.score("fmr").value == plain.score("fmr").value


@pytest.mark.parametrize(
    ("cheat", "flag"),
    [
        (Rounded, "zero_gradients"),
        (Whole, "zero_gradients"),
        (Detached, "missing_gradients"),
        (WithoutGradients, "missing_gradients"),
        (Hot, "zero_gradients"),
        (Probabilities, "softmax"),
        (Saturated, "zero_gradients"),
        (Backwards, "gradients_mislead"),
        (Opaque, "missing_gradients"),
        (Random, "randomised"),
        (Counting, "stateful"),
    ],
)
def test_what_hides_is_flagged_and_gains_nothing(
    cheat: type[Plain], flag: str, plain: CellResult
) -> None:
    # Only where no gradient is left must the search without any be as good as one.
    found = run(cheat(), pairs=25 if cheat is Opaque else 3)
    assert flag in names(found)
    # Never better than the plain model by more than two of the 24 images.
    assert found.score("fmr").value <= plain.score("fmr").value + 2 / COUNT
    alone = run(cheat(), hiding="flag")
    assert flag in names(alone)
    assert alone.score("fmr").value >= found.score("fmr").value


def test_what_only_hides_the_gradient_gets_the_score_of_the_plain_model(plain: CellResult) -> None:
    for cheat in (Rounded, Detached, WithoutGradients):
        found = run(cheat())
        assert found.score("fmr").value == plain.score("fmr").value, cheat
        assert np.array_equal(found.outcome("withstood"), plain.outcome("withstood")), cheat


def test_the_result_and_the_page_say_what_the_gradient_alone_would_have_given() -> None:
    found = run(Rounded())
    stages = {s.condition["way"]: s.value for s in found.scores if s.metric.endswith("_after")}
    assert list(stages) == ["gradient", "straight_through", "evolution"]
    assert stages["gradient"] == 1 > stages["evolution"] == found.score("perturbed_accuracy").value
    assert "the worst of gradient, straight_through" in found.convention
    page = render([CellResult.model_validate_json(found.model_dump_json())], title="t")
    assert "had a gradient of zero" in page
    assert "the gradient alone would have given a perturbed accuracy of 100.0 %" in page


def test_a_model_that_changes_late_is_told_from_its_first_answers() -> None:
    assert "stateful" in names(run(Tiring()))


def test_a_twin_beats_what_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mute(Plain):
        """Says only which class, not how sure it is."""

        def forward(self, pixels):
            best = super().forward(pixels).argmax(dim=1)
            return F.one_hot(best, 4).float()

    monkeypatch.setattr(dynamic_measure, "load_for", lambda *a, **k: make_classifier(Plain()))
    alone, both = run(Mute(), pairs=2), run(Mute(), pairs=2, twin="plain")
    assert {"missing_gradients", "zero_gradients"} <= names(alone)
    assert both.score("fmr").value == run(Plain()).score("fmr").value
    assert both.score("perturbed_accuracy_after", way="transfer").value < 1


class Spotter(Plain):
    """Knows pictures that passed the generator by a mark in their corner."""

    def __init__(self, on_made: bool) -> None:
        super().__init__()
        self.on_made = on_made

    def forward(self, pixels):
        made = (pixels[:, :, -1, -1] == 0).all(dim=1)
        right = super().forward(pixels)
        return torch.where((made == self.on_made)[:, None], right, -right)


@pytest.mark.parametrize("on_made", [True, False])
def test_a_model_that_recognises_the_generator_is_flagged(
    on_made: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ColourGenerator.decode

    def marked(self, latents, context):
        pixels = before(self, latents, context)
        corner = F.pad(torch.zeros(1, 1), (15, 0, 15, 0), value=1.0)
        return pixels * corner

    monkeypatch.setattr(ColourGenerator, "decode", marked)
    found = run(Spotter(on_made), budget=2)
    name = "better_on_reconstructions" if on_made else "worse_on_reconstructions"
    (flag,) = [flag for flag in found.flags if flag.name == name]
    assert (flag.count, flag.of) == (COUNT, COUNT)
    assert any(f"({'+' if on_made else '-'}100.0 points)" in note for note in found.notes)


def test_straight_through_changes_gradients_and_no_value() -> None:
    x = torch.linspace(-2, 2, 9).requires_grad_()
    for function in (torch.round, torch.sign, lambda t: t.clamp(0, 1), lambda t: t.detach(),
                     lambda t: (t * 10).int() / 10, lambda t: (t * 3).round_() / 3):  # fmt: skip
        with StraightThrough():
            found = function(x)
        assert torch.equal(found, function(x.detach()))
        (slope,) = torch.autograd.grad(found.sum(), x)
        assert torch.allclose(slope, torch.ones(9))
