"""Algorithm 1 against what it gives on paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from dynamic_paper import Brightness, Linear, Scripted, Threshold, numbered
from stockpot.dynamic.search import Batch, search, search_in_parts
from stockpot.dynamic.task import Rules, Task
from stockpot.errors import BadParameterError
from stockpot.models.forward.memory import Halving

LEVEL = 1 / 255
SIGN = Rules(budget=6, step=20 * LEVEL, optimiser="sign")


def run(oracle: Any, rules: Rules = SIGN, count: int = 3, **options: Any):
    pixels, zeros = numbered(count), torch.zeros(count, dtype=torch.long)
    task = Task(Brightness(), Linear(), oracle, rules)
    return pixels, search(task, pixels, zeros, zeros, seeds=torch.arange(count), **options)


def test_refused_at_once_at_step_three_and_never() -> None:
    oracle = Scripted({0: 0, 1: 3, 2: 99})
    pixels, found = run(oracle)
    assert found.validated.tolist() == [False, True, True]
    assert found.accepted.tolist() == [0, 3, 6]
    # Not validated: the image itself. Refused at step 3: the image of step 2, 40 brighter.
    assert torch.equal(found.images[0], pixels[0])
    assert found.images[1, 0, 0, 0].item() == pytest.approx(91 * LEVEL)
    # Never refused: budget 6 is the reconstruction and five steps.
    assert found.images[2, 0, 0, 0].item() == pytest.approx(151 * LEVEL)
    # The model errs once the pixel is above 127.5: at step 3 it is 111, at step 4 131.
    assert found.fooled_at.tolist()[:2] == [-1, -1]
    assert found.fooled_at[2].item() == 4
    assert found.confidence.tolist() == pytest.approx([0, 0.9, 0.9])


def test_images_that_are_refused_leave_the_batch() -> None:
    oracle = Scripted({0: 0, 1: 3, 2: 99})
    run(oracle)
    assert oracle.asked == [[0, 1, 2], [1, 2], [1, 2], [1, 2], [2], [2]]


def test_a_large_batch_shrinks_in_few_sizes_and_gives_what_each_image_gives_alone() -> None:
    # Image k is refused once it has been accepted k times; the number is read from its last pixel.
    count, budget = 70, 20
    pixels = numbered(count)
    pixels[:, :, 1, 1] = (torch.arange(count) / 100)[:, None]

    class Patient(Threshold):
        """Accepts image k as long as it is not brighter than k % 17 steps make it."""

        def judge(self, images: torch.Tensor) -> torch.Tensor:
            sizes.append(len(images))
            limit = 0.2 + 5 * LEVEL * ((images[:, 0, 1, 1] * 100).round() % 17) + 0.001
            yes = (images[:, 0, 0, 0] <= limit).float()
            return torch.stack([yes, 1 - yes], dim=1)

    sizes: list[int] = []
    zeros = torch.zeros(count, dtype=torch.long)
    rules = replace(SIGN, budget=budget, step=5 * LEVEL)
    oracle = Patient(lambda pixel: pixel > 0)
    task = Task(Brightness(), Linear(), oracle, rules)
    found = search(task, pixels, zeros, zeros, seeds=zeros)
    assert found.accepted.tolist() == [k % 17 + 1 for k in range(count)]
    reached = 0.2 + 5 * LEVEL * (torch.arange(count) % 17)
    assert torch.allclose(found.images[:, 0, 0, 0], reached, atol=1e-5)
    assert torch.allclose(found.final[:, 0, 0, 0], reached, atol=1e-5)
    assert sizes == sorted(sizes, reverse=True)
    assert all(size % 5 == 0 for size in sizes)  # 70 images in steps of a sixteenth
    assert sizes[-1] <= 5
    for row in (0, 16, 69):
        alone = search(task, pixels[row : row + 1], zeros[:1], zeros[:1], seeds=zeros[:1])
        assert torch.equal(alone.images[0], found.images[row])
        assert alone.loss[0] == found.loss[row]


def test_only_what_the_model_sees_moves() -> None:
    pixels, found = run(None)
    moved = (found.images - pixels).abs() > 1e-6
    assert moved[:, 0, 0, 0].all()
    assert moved.sum() == 3  # one entry of each image: the gradient of all others is zero


def test_the_loss_is_that_of_the_returned_image() -> None:
    _, found = run(None)
    gap = 20 * (151 * LEVEL - 0.5)
    expected = torch.log1p(torch.exp(torch.tensor(gap)))
    assert found.loss[0].item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize(("backtrack", "reached"), [(0, 91), (2, 106), (1, 101)])
def test_backtracking_halves_a_refused_step(backtrack: int, reached: int) -> None:
    # The oracle accepts up to 107. From 91 the step to 111 is refused; halved once it reaches 101
    # (accepted), and from there steps of 10 and less follow.
    oracle = Threshold(lambda pixel: pixel <= 107.4 * LEVEL)
    _, found = run(oracle, replace(SIGN, budget=5 if backtrack == 1 else 7, backtrack=backtrack))
    assert found.images[0, 0, 0, 0].item() == pytest.approx(reached * LEVEL)


def test_best_loss_never_returns_less_than_the_last() -> None:
    class Hill(torch.nn.Module):
        """The loss peaks at 0.35 and falls again; steps of 30 levels overshoot it."""

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            gap = -40 * (pixels[:, 0, 0, 0] - 0.35).square()
            return torch.stack([torch.zeros_like(gap), gap], dim=1)

    pixels, zeros = numbered(1), torch.zeros(1, dtype=torch.long)
    found = {
        keep: search(
            Task(Hill(), Linear(), None, replace(SIGN, step=30 * LEVEL, keep=keep)),
            pixels,
            zeros,
            zeros,
            seeds=zeros,
        )
        for keep in ("last", "best_loss")
    }
    assert found["best_loss"].loss.item() >= found["last"].loss.item()
    # From 51: 81 is the nearest to the peak (89) that steps of 30 meet.
    assert found["best_loss"].images[0, 0, 0, 0].item() == pytest.approx(81 * LEVEL)


def test_reencoding_a_lossless_generator_is_the_same_as_a_trajectory() -> None:
    _, one = run(None)
    _, other = run(None, replace(SIGN, reading="reencode"))
    assert torch.allclose(one.images, other.images, atol=1e-6)


def test_restarts_never_lower_the_loss() -> None:
    _, once = run(None)
    _, often = run(None, restarts=4)
    assert (often.loss >= once.loss).all()
    assert torch.equal(often.validated, once.validated)


def test_a_start_from_fgsm_is_that_much_brighter() -> None:
    _, found = run(None, replace(SIGN, budget=1), fgsm=8 * LEVEL)
    assert found.images[0, 0, 0, 0].item() == pytest.approx(59 * LEVEL)


def test_a_mask_keeps_latents_where_they_are() -> None:
    pixels, zeros = numbered(2), torch.zeros(2, dtype=torch.long)
    mask = torch.zeros(3, 2, 2)
    task = Task(Brightness(), Linear(), None, SIGN, mask=mask)
    found = search(task, pixels, zeros, zeros, seeds=zeros)
    assert torch.equal(found.images, pixels)


@pytest.mark.parametrize("rule", ["adam", "sign", "normalised"])
def test_an_image_does_not_depend_on_its_company(rule: Any) -> None:
    rules = replace(SIGN, optimiser=rule)
    _, together = run(Threshold(lambda pixel: pixel <= 0.48), rules, count=5)
    pixels, zeros = numbered(5), torch.zeros(1, dtype=torch.long)
    for row in range(5):
        oracle = Threshold(lambda pixel: pixel <= 0.48)
        task = Task(Brightness(), Linear(), oracle, rules)
        alone = search(task, pixels[row : row + 1], zeros, zeros, seeds=torch.tensor([row]))
        assert torch.equal(alone.images[0], together.images[row])


def test_adam_moves_by_its_rate_at_first() -> None:
    _, found = run(None, Rules(budget=2, step=0.1, optimiser="adam"))
    assert found.images[0, 0, 0, 0].item() == pytest.approx(0.3, abs=LEVEL)


def test_memory_that_runs_out_halves_the_batch() -> None:
    class Hungry(Brightness):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            if len(pixels) > 3:
                raise torch.OutOfMemoryError("too many")
            return super().forward(pixels)

    pixels, zeros = numbered(9), torch.zeros(9, dtype=torch.long)
    halving = Halving(8)
    task = Task(Hungry(), Linear(), None, SIGN)
    batch = Batch(pixels, zeros, zeros, torch.arange(9))
    parts = search_in_parts(task, batch, halving, seeds=torch.arange(9))
    assert sum(len(part.images) for part in parts) == 9
    assert halving.size == 2
    assert halving.notes == [
        "out of memory: the batch was halved to 4 images",
        "out of memory: the batch was halved to 2 images",
    ]
    whole = search(Task(Brightness(), Linear(), None, SIGN), pixels, zeros, zeros, seeds=zeros)
    assert torch.equal(torch.cat([part.images for part in parts]), whole.images)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(BadParameterError, match="budget >= 1"):
        run(None, replace(SIGN, budget=0))


def test_a_model_without_a_gradient_is_marked_and_leaves_images_as_they_are() -> None:
    pixels, zeros = numbered(1), torch.zeros(1, dtype=torch.long)
    task = Task(lambda x: torch.eye(2)[:1].expand(len(x), 2), Linear(), None, SIGN)
    found = search(task, pixels, zeros, zeros, seeds=zeros, fgsm=0.1)
    assert found.zero.tolist() == [True]
    assert torch.equal(found.images, pixels)
    _, seen = run(None, count=1)
    assert (seen.zero | seen.faint).tolist() == [False]


def test_what_is_judged_is_what_would_be_saved() -> None:
    class Exact(Threshold):
        """Accepts pictures of whole levels only."""

        def judge(self, pixels: torch.Tensor) -> torch.Tensor:
            yes = torch.equal(pixels, (pixels * 255).round() / 255)
            return torch.tensor([[1.0, 0.0] if yes else [0.0, 1.0]]).expand(len(pixels), 2)

    # Steps of a tenth lie between levels; the oracle and the model see the rounded picture.
    _, found = run(Exact(lambda pixel: pixel), replace(SIGN, step=0.1))
    assert found.accepted.tolist() == [6, 6, 6]
    assert torch.equal(found.images, (found.images * 255).round() / 255)
    gap = 20 * (found.images[0, 0, 0, 0] - 0.5)
    assert found.loss[0].item() == pytest.approx(torch.log1p(gap.exp()).item(), rel=1e-5)


def test_both_readings_of_the_first_candidate() -> None:
    # Image 0 is refused as reconstruction (pixel 51), image 1 as first perturbation (71).
    def oracle() -> Threshold:
        return Threshold(lambda pixel: (pixel - 51 * LEVEL).abs() > 0.001)

    _, plain = run(oracle(), count=1)
    _, moved = run(oracle(), replace(SIGN, first="perturbation"), count=1)
    # The reconstruction decides in one reading and is only written down in the other.
    assert plain.validated.tolist() == plain.reconstructed.tolist() == [False]
    assert plain.perturbed.tolist() == [False]
    assert moved.validated.tolist() == moved.perturbed.tolist() == [True]
    assert moved.reconstructed.tolist() == [False]
    # All six candidates are perturbations: six steps of 20 from 51.
    assert moved.images[0, 0, 0, 0].item() == pytest.approx(171 * LEVEL)
    _, refused = run(
        Threshold(lambda pixel: pixel < 60 * LEVEL), replace(SIGN, first="perturbation"), count=1
    )
    assert refused.reconstructed.tolist() == [True]
    assert refused.validated.tolist() == [False]
    _, either = run(Threshold(lambda pixel: pixel < 80 * LEVEL), count=1)
    assert (either.reconstructed & either.perturbed).tolist() == [True]
    assert either.moved.tolist() == [True]
    _, stays = run(Threshold(lambda pixel: pixel < 60 * LEVEL), count=1)
    assert stays.validated.tolist() == [True]
    assert stays.perturbed.tolist() == stays.moved.tolist() == [False]


class Counting(Brightness):
    """Writes down how many images it was asked about."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        self.seen += len(pixels)
        return super().forward(pixels)


@pytest.mark.parametrize(
    ("rules", "options"),
    [
        ({}, {"restarts": 3}),
        ({"first": "perturbation"}, {}),
        ({"reading": "reencode"}, {"fgsm": 0.01}),
        ({"backtrack": 2}, {"restarts": 2}),
    ],
)
def test_every_query_is_counted(rules: dict[str, Any], options: dict[str, Any]) -> None:
    class Asked(Threshold):
        seen = 0

        def judge(self, pixels: torch.Tensor) -> torch.Tensor:
            self.seen += len(pixels)
            return super().judge(pixels)

    # Up to 16 images leave the batch one by one, so that nothing is computed in vain.
    pixels, zeros = numbered(5), torch.zeros(5, dtype=torch.long)
    model, oracle = Counting(), Asked(lambda pixel: pixel <= 0.48)
    task = Task(model, Linear(), oracle, replace(SIGN, **rules))
    found = search(task, pixels, zeros, zeros, seeds=torch.arange(5), **options)
    assert int(found.asked.sum()) == oracle.seen
    expected = model.seen
    if rules.get("reading") == "reencode":
        # Refused images are encoded along with the accepted ones and thrown away.
        refused = int((found.asked - found.accepted).sum())
        expected -= refused
    assert int(found.model_queries.sum()) == expected
