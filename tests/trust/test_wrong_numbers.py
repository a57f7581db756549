"""Numbers that were once wrong, each asked for as a user would ask.

Only what has long been public is called (`attack`, `measure`, `season`, `harden`, result files), so
that a test can be run on earlier sources and fails there by its number. How each is made right is
tested where it is made; `docs/trust.md` has the table of what was printed and what is.
"""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import stockpot
from pico import CLASSES, ReadsLabel, make_classifier, make_dataset
from season.toys import linear_member, norm_member, toy_images
from stockpot.datasets.load import load_dataset
from stockpot.dynamic.oracles import networks
from stockpot.errors import UserError
from stockpot.harden import hardeners
from stockpot.harden.loop import Step
from stockpot.models.fine_tuned import with_trained_head
from stockpot.results.schema import CellResult
from towers import CLASSES as TOWER_CLASSES
from towers import dual

SEARCH: dict[str, Any] = {
    "generator": "colour", "oracle": "none", "budget": 4, "step": 0.1, "pictures": 0,
    "per_class": False,
}  # fmt: skip


class Slope(nn.Module):
    """A seeded linear classifier of the toy pictures; counts those that it is asked about."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(768, 4, generator=generator) / 8)
        self.asked: Counter[str] = Counter()

    def forward(self, pixels: Tensor) -> Tensor:
        self.asked["pictures"] += len(pixels)
        return (pixels.flatten(1) - 0.5) @ self.weight


class Rounded(Slope):
    def forward(self, pixels: Tensor) -> Tensor:
        return super().forward(torch.round(pixels * 255) / 255)


def searched(network: nn.Module, oracle: nn.Module | None = None, **asked: Any) -> CellResult:
    """A dynamic search against a network on 24 pictures."""
    data = make_dataset(24)
    run = {key: asked.pop(key) for key in ("out", "progress", "batch_size") if key in asked}
    params = {**SEARCH, **asked}
    if oracle is not None:
        params |= {"oracle": "classifier", "oracle_params": {"model": "judge"}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "load_for", lambda *a, **k: make_classifier(oracle))
        return stockpot.measure(make_classifier(network), {"dynamic": params}, data=data, **run)[0]


# Models that hide


def test_rounding_changes_no_picture_and_no_fmr() -> None:
    plain = searched(Slope(), step=0.01).score("fmr").value
    assert searched(Rounded(), step=0.01).score("fmr").value == plain
    assert 0 < plain < 1


def test_an_image_in_bfloat16_stays_in_the_ball() -> None:
    images = torch.rand(8, 3, 16, 16, generator=torch.Generator().manual_seed(2)).bfloat16()
    model = Slope().bfloat16()
    labels = model(images).argmax(dim=1)
    found = stockpot.attack(model, images, labels, eps=8 / 255, method="pgd", steps=3, goal="loss")
    assert float((found.images.double() - images.double()).abs().max()) <= 8 / 255 * (1 + 1e-5)


def test_a_radius_keeps_its_digits() -> None:
    model, pixels = Slope(), next(make_dataset(4).batches(4)).images.float() / 255
    labels = model(pixels).argmax(dim=1)
    ask = {"method": "pgd", "steps": 2, "goal": "loss", "start": "clean", "step_size": 1.0}
    number, text = (
        stockpot.attack(model, pixels, labels, eps=eps, **ask).images for eps in (8 / 255, "8/255")
    )
    assert torch.equal(number, text)


def warned(model: Any, **asked: Any) -> str:
    pixels = next(make_dataset(4).batches(4)).images.float() / 255
    labels = model(pixels).argmax(dim=1)
    return "; ".join(stockpot.attack(model, pixels, labels, **asked).flags.warnings())


def test_a_module_in_training_mode_behind_a_callable_is_told() -> None:
    net = nn.Sequential(Slope(), nn.Dropout(0.0)).train()
    assert "eval()" in warned(lambda pixels: net(pixels), steps=1)
    net.eval()
    assert "eval()" not in warned(lambda pixels: net(pixels), steps=1)


def test_optimisation_in_the_forward_pass_is_told() -> None:
    class Purifies(Slope):
        def forward(self, pixels: Tensor) -> Tensor:
            with torch.enable_grad():
                seen = pixels.detach().clone().requires_grad_()
                torch.logsumexp(super().forward(seen), dim=1).sum().backward()
            assert seen.grad is not None
            return super().forward(pixels - 0.1 * seen.grad)

    assert "optimis" in warned(Purifies(), steps=1)


def test_autoattack_tells_that_classes_are_few() -> None:
    class Two(Slope):
        def forward(self, pixels: Tensor) -> Tensor:
            return super().forward(pixels)[:, :2]

    assert "few classes" in warned(Two(), method="autoattack", steps=2, queries=2, eps=0.001)


def test_fab_averages_and_counts_as_often_as_it_looks() -> None:
    model, pixels = Slope(), next(make_dataset(12).batches(12)).images.float() / 255
    labels = model(pixels).argmax(dim=1)
    model.asked.clear()
    ask = {"method": "fab", "eps": 0.004, "steps": 4, "targets": 2, "forward": "plain"}
    found = stockpot.attack(model, pixels, labels, eot=3, check=False, **ask)
    assert int(found.queries.sum()) == model.asked["pictures"]
    alone = stockpot.attack(model, pixels, labels, check=False, **ask)
    assert torch.equal(found.queries, 3 * alone.queries)


# What a model has seen


def flat_file(folder: Path) -> str:
    """Sixty pictures without splits."""
    data, path = make_dataset(60), folder / "photos.npz"
    pixels = torch.cat([batch.images for batch in data.batches()]).permute(0, 2, 3, 1).numpy()
    np.savez(path, images=pixels, labels=data.labels.numpy(), classes=np.array(CLASSES))
    return str(path)


def test_a_flat_set_is_not_train_and_test_at_once(pico_vit: Path, tmp_path: Path) -> None:
    photos = flat_file(tmp_path)
    parts = [load_dataset(photos, split=split) for split in ("train", "val", "test")]
    assert sum(map(len, parts)) == 60
    trained = stockpot.harden("nominal", str(pico_vit), photos, epochs=1)
    (cell,) = stockpot.measure(trained, "clean", data=photos)
    assert cell.data.split == "all"
    assert cell.score("unseen_accuracy").n == 60 - len(parts[0])
    assert any(f"{len(parts[0])} of 60 images were seen" in note for note in cell.notes)


def test_a_soup_of_forty_of_sixty_is_told_on_all_sixty(pico_vit: Path, tmp_path: Path) -> None:
    photos = flat_file(tmp_path)
    soup = stockpot.season("greedy", {"a": str(pico_vit)}, photos, shots=40).model
    (cell,) = stockpot.measure(soup, "clean", data=photos)
    assert {score.metric: score.n for score in cell.scores}.get("unseen_accuracy") == 20


def test_classes_by_position_are_told() -> None:
    numbered = make_classifier(Slope(), tuple(f"LABEL_{k}" for k in range(4)))
    (cell,) = stockpot.measure(numbered, "clean", data=make_dataset(8))
    assert any("does not name them" in note for note in cell.notes)


def test_a_calibration_error_lies_in_its_interval() -> None:
    """Labels are drawn from what the model says, so that it is calibrated by making."""
    for seed in (3, 10):
        model, images = linear_member(seed), toy_images(200)
        with torch.inference_mode():
            logits = model.eval()(next(images.batches(200)).images)
        draws = torch.Generator().manual_seed(seed)
        labels = torch.multinomial(logits.softmax(dim=1), 1, generator=draws).flatten()
        (cell,) = stockpot.measure(model, "clean", data=replace(images, labels=labels))
        found = cell.score("ece")
        assert found.ci_low is not None
        assert found.ci_high is not None
        assert found.ci_low <= found.value <= found.ci_high


# FMR


def test_readings_rates_and_vocabulary_are_named() -> None:
    judged = searched(Slope(), ReadsLabel(4))
    metrics = {score.metric for score in judged.scores}
    assert {"reconstruction_rate", "perturbation_rate", "perturbed_accuracy_of_moved"} <= metrics
    assert "first candidate the reconstruction" in judged.convention
    assert "oracle vocabulary data (4 classes)" in judged.convention


def test_an_oracle_weaker_than_its_model_is_told_with_the_number() -> None:
    right = searched(Slope()).score("accuracy").value
    notes = searched(ReadsLabel(4), Slope()).notes
    assert any("weaker" in note and f"{100 * right:.1f} %" in note for note in notes)


def test_kin_is_known_by_function() -> None:
    """Half precision changes the bits of every weight, and hardly an answer."""
    other = Slope()
    other.weight.data = other.weight.data.half().float()
    with pytest.raises(UserError, match="the same function"):
        searched(Slope(), other)


def test_cost_counts_restarts() -> None:
    """By hand: the picture before and after, and three climbs of four candidates each."""
    assert searched(Slope(), restarts=3).cost.images == 24 * (2 + 3 * 4)


class KilledError(Exception):
    """Stands for a process that ends."""


def test_a_killed_cell_goes_on_inside(tmp_path: Path) -> None:
    """What is told of the progress after the kill is about the last batch alone."""
    told = []

    def kill(what: str, done: int, total: int) -> None:
        if done == 18:
            raise KilledError

    with pytest.raises(KilledError):
        searched(Slope(), batch_size=6, out=tmp_path, progress=kill)
    searched(Slope(), batch_size=6, out=tmp_path, progress=lambda what, done, n: told.append(done))
    assert told == [24]


def test_a_search_holds_one_batch_of_pictures() -> None:
    held = []

    def look(what: str, done: int, total: int) -> None:
        if done in (8, 24):  # of the batches that were searched, those that are still somewhere
            size = (3, 16, 16)
            tensors = [o for o in gc.get_objects() if type(o) is Tensor and o.shape[1:] == size]
            stores = {t.data_ptr(): t.numel() for t in tensors if t.dtype == torch.uint8}
            held.append(sum(stores.values()))

    searched(Slope(), batch_size=4, progress=look)
    assert held[1] <= held[0]


# Soups


def test_an_extrapolated_soup_is_not_adapted_to_the_target() -> None:
    members = [norm_member(seed) for seed in (1, 2)]
    images = toy_images(60, members[1], noise=0.3)
    found = stockpot.season("wise_ft", members, images, shots=20, alphas=(1.4,))
    first, second, soup = (m.network[1].running_mean for m in (*members, found.model))
    torch.testing.assert_close(soup, -0.4 * first + 1.4 * second, rtol=1e-5, atol=1e-6)


def test_ties_do_not_favour_the_first() -> None:
    member = linear_member(1)
    found = stockpot.season(
        "grid", {"a": member, "b": linear_member(1)}, toy_images(60, member), shots=20,
        low=0.0, high=1.0, step=0.5,
    )  # fmt: skip
    assert list(found.weights) == [0.5, 0.5]


def test_what_threats_chose_is_scored_under_them_with_losses() -> None:
    members = [linear_member(seed) for seed in (1, 2)]
    asked = {"low": 0.0, "high": 1.0, "step": 1.0, "shots": 20, "attack_steps": 3}
    found = stockpot.season("grid", members, toy_images(60, members[1]), threats="linf:1",
                            ties="loss", full_matrix=True, **asked)  # fmt: skip
    # The ball holds every picture: nobody withstands it.
    assert found.accuracy.value == 0.0
    assert found.matrix is not None
    assert found.matrix.accuracy().tolist() == [0.0, 0.0]
    assert np.isfinite(found.matrix.loss).all()


def test_copies_of_an_image_are_no_further_evidence() -> None:
    data = make_dataset(20)
    copies = replace(
        data.take(list(range(20)) * 9),
        columns={"original": tuple(str(row) for row in list(range(20)) * 9)},
    )
    for measure in ("clean", {"adversarial": {"norms": "linf", "method": "fgsm", "eps": "0.001"}}):
        one, nine = (
            stockpot.measure(make_classifier(Slope()), measure, data=each)[0].scores
            for each in (data, copies)
        )
        for score, other in zip(one, nine, strict=True):
            if score.metric in ("accuracy", "robust_accuracy"):
                assert (other.ci_low, other.ci_high) == pytest.approx((score.ci_low, score.ci_high))


# Training


def test_the_teacher_sees_the_masked_picture_too() -> None:
    """Student and teacher are one function: there is nothing between their predictions."""
    model = dual("clip")
    with_trained_head(model)
    pixels, labels = next(make_dataset(6).batches(6)).images / 255, torch.arange(6) % 4
    objective = hardeners.get("counterfactual")(
        mask="random", fill="none", beta=0.0, logit_weight=1e4, temperature=1.0, logits_on="masked"
    )
    objective.begin(model, make_dataset(classes=TOWER_CLASSES), None)
    plain = nn.functional.cross_entropy(model(pixels), labels).item()
    found = objective(Step(model, pixels, labels, torch.Generator().manual_seed(0), 0))
    assert found.item() == pytest.approx(plain, abs=1e-3)


def test_advprop_keeps_adversarial_images_from_the_norms_that_are_saved() -> None:
    """All of the loss is on adversarial images, so that nothing moves the main norms' scales."""
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.LayerNorm(784), nn.Linear(784, 4)
    )
    stockpot.harden("advprop", make_classifier(network), make_dataset(16), share=1.0, steps=1,
                    epochs=1, batch_size=8, lr=0.1, weight_decay=0.0)  # fmt: skip
    for norm in (network[1], network[3]):
        assert torch.equal(norm.weight, torch.ones_like(norm.weight))
        assert torch.equal(norm.bias, torch.zeros_like(norm.bias))
