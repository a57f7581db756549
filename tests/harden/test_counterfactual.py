"""Masks, fills and distances of counterfactual fine-tuning against their definitions."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pico import make_classifier, make_dataset
from stockpot.errors import BadParameterError, UserError
from stockpot.explain.attention import find_tower
from stockpot.harden import hardeners
from stockpot.harden.counterfactual.distil import (
    Teacher,
    feature_gap,
    outputs,
    soft_gap,
)
from stockpot.harden.counterfactual.masks import (
    dropping,
    filled,
    hiding,
    object_cells,
    random_cells,
)
from stockpot.harden.counterfactual.partners import (
    Bank,
    batch_partners,
    by_cell,
    by_picture,
    chosen_partners,
)
from stockpot.harden.loop import Step, train
from stockpot.harden.record import hardening_record
from stockpot.harden.state import Resume
from stockpot.models.classifier import Classifier
from stockpot.models.fine_tuned import with_trained_head
from towers import CLASSES, FAMILIES, dual


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(n: int = 6, size: int = 16) -> torch.Tensor:
    return torch.rand(n, 3, size, size, generator=generator(3))


def step_of(model, n: int = 6, number: int = 0) -> Step:
    labels = torch.arange(n) % 4
    return Step(model, pictures(n), labels, generator(number), number)


def test_masks_by_their_rules() -> None:
    relevance = torch.tensor([[[0.0, 1.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]])
    objects = object_cells(relevance, 0.25)
    assert objects[0].tolist() == [[False, False], [True, True]]  # 1/4 is not above 1/4
    assert not objects[1].any()  # no relevance: no object, all context
    fixed = random_cells((50, 4, 4), 0.7, generator(), fixed=True)
    assert set(fixed.flatten(1).sum(1).tolist()) == {16 - math.floor(16 * (1 - 0.7))}
    chance = random_cells((400, 8, 8), 0.25, generator(), fixed=False)
    assert chance.float().mean() == pytest.approx(0.25, abs=4 * math.sqrt(0.1875 / 25600))
    assert len(set(chance.flatten(1).sum(1).tolist())) > 3


def test_thresholds_nest_the_objects() -> None:
    relevance = torch.rand(20, 8, 8, generator=generator())
    masks = [object_cells(relevance, t) for t in (0.7, 0.5, 0.3, 0.2)]
    for smaller, larger in itertools.pairwise(masks):
        assert not (smaller & ~larger).any()
    assert masks[0].flatten(1).any(dim=1).all()  # the largest is always part of the object


def test_partners_by_the_published_rules() -> None:
    for seed in range(30):
        multi = batch_partners(5, 64, "multi", generator(seed), derange=False)
        assert not (multi == torch.arange(5)[:, None]).any()  # never its own patch
        assert set(multi.flatten().tolist()) == set(range(5))
        single = batch_partners(5, 64, "single", generator(seed), derange=False)
        assert sorted(single[:, 0].tolist()) == list(range(5))
        moved = batch_partners(5, 64, "single", generator(seed), derange=True)
        assert sorted(moved[:, 0].tolist()) == list(range(5))
        assert not (moved[:, 0] == torch.arange(5)).any()
    own = [batch_partners(5, 1, "single", generator(s), derange=False) for s in range(400)]
    kept = sum(int((p[:, 0] == torch.arange(5)).sum()) for p in own) / 400
    assert kept == pytest.approx(1.0, abs=0.2)  # a random permutation keeps one on average
    with pytest.raises(UserError, match="second picture"):
        batch_partners(1, 4, "single", generator(), derange=True)


def draws(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=generator(), dtype=torch.float64)


def test_draws_follow_their_weights() -> None:
    weights = torch.tensor([[0.0, 1.0, 3.0, 0.0]], dtype=torch.float64)
    drawn = by_picture(weights, draws(1, 20000))
    assert set(drawn.flatten().tolist()) == {1, 2}
    assert float((drawn == 2).float().mean()) == pytest.approx(0.75, abs=0.015)
    assert by_picture(weights, torch.ones(1, 1, dtype=torch.float64)).item() == 2
    nothing = by_picture(torch.zeros(3, 3, dtype=torch.float64), draws(3, 50))
    assert not (nothing == torch.arange(3)[:, None]).any()
    assert set(nothing[0].tolist()) == {1, 2}


def test_draws_by_cell_are_even_among_the_others_that_suit() -> None:
    """Against the count of every picture: each suited other one equally often, itself never."""
    cells = 30000
    allowed = torch.tensor([True, False, True, True, False, True])[:, None].expand(-1, cells)
    drawn = by_cell(allowed, draws(3, cells))
    for picture, suited in ((0, {2, 3, 5}), (1, {0, 2, 3, 5}), (2, {0, 3, 5})):
        counts = drawn[picture].bincount(minlength=6)
        assert set(counts.nonzero()[:, 0].tolist()) == suited
        shares = counts[counts > 0] / cells
        torch.testing.assert_close(shares, torch.full_like(shares, 1 / len(suited)), atol=0.012,
                                   rtol=0)  # fmt: skip
    alone = torch.tensor([True, False, False])[:, None].expand(-1, cells)
    drawn = by_cell(alone, draws(3, cells))
    assert (drawn[1:] == 0).all()
    assert set(drawn[0].tolist()) == {1, 2}  # nothing suits but itself: any other


def test_fills_from_other_classes_and_from_contexts() -> None:
    labels = torch.tensor([0, 0, 1, 1])
    pool_labels = torch.tensor([0, 0, 1, 1, 1, 0])
    masked = torch.ones(4, 9, dtype=torch.bool)
    for fill, count in (("single", 1), ("multi", 9)):
        for source in ("any", "other_class"):
            drawn = chosen_partners(source, fill, masked, labels, pool_labels, None, generator())
            assert drawn.shape == (4, count)
            assert not (drawn == torch.arange(4)[:, None]).any()
        assert (pool_labels[drawn] != labels[:, None]).all()
    objects = torch.zeros(6, 9, dtype=torch.bool)
    objects[:, :4] = True
    objects[5] = False
    known = (labels, pool_labels, objects, generator())
    drawn = chosen_partners("low_relevance", "multi", masked, *known)
    assert (drawn[:, :4] == 5).all()  # the only picture without an object there
    assert not (drawn == torch.arange(4)[:, None]).any()
    half = torch.zeros(4, 9, dtype=torch.bool)
    half[:, :4] = True  # only picture 5 shows context where these are masked
    assert (chosen_partners("low_relevance", "single", half, *known)[:, 0] == 5).all()


def test_filled_pixels_come_from_the_partner_s_same_place() -> None:
    pixels = pictures(4)
    masked = torch.zeros(4, 4, 4, dtype=torch.bool)
    masked[:, 1, 2] = masked[:, 3, 0] = True
    partners = torch.tensor([[1], [2], [3], [0]])
    single = filled(pixels, pixels, masked, partners)
    inside = torch.zeros(16, 16, dtype=torch.bool)
    inside[4:8, 8:12] = inside[12:16, 0:4] = True
    for i, j in enumerate(partners[:, 0].tolist()):
        assert torch.equal(single[i][:, inside], pixels[j][:, inside])
        assert torch.equal(single[i][:, ~inside], pixels[i][:, ~inside])
    spread = batch_partners(4, 16, "multi", generator(), derange=False)
    multi = filled(pixels, pixels, masked, spread)
    for i in range(4):
        for row, column in ((1, 2), (3, 0)):
            box = (slice(None), slice(4 * row, 4 * row + 4), slice(4 * column, 4 * column + 4))
            source = pixels[spread[i, 4 * row + column]]
            assert torch.equal(multi[i][box], source[box])
        assert torch.equal(multi[i][:, ~inside], pixels[i][:, ~inside])


@pytest.mark.parametrize("family", ["vit", "deit", "clip zero-shot", "siglip zero-shot"])
def test_hiding_keys_equals_dropping_tokens(family: str) -> None:
    model = FAMILIES[family]()
    masked = random_cells((6, 4, 4), 0.6, generator(), fixed=True).flatten(1)
    with torch.no_grad():
        with dropping(model.network, masked):
            dropped = model(pictures())
        with hiding(model.network, masked):
            hidden = model(pictures())
        plain = model(pictures())
    torch.testing.assert_close(hidden, dropped, atol=1e-5, rtol=1e-5)
    assert float((plain - hidden).abs().max()) > 1e-3


def test_dropping_refuses_unequal_counts_and_hiding_a_mean() -> None:
    masked = torch.zeros(6, 16, dtype=torch.bool)
    masked[0, 0] = True
    vit, mean = FAMILIES["vit"](), FAMILIES["clip classifier"]()
    with pytest.raises(UserError, match="same number"), dropping(vit.network, masked):
        pass
    with pytest.raises(UserError, match="averages"), hiding(mean.network, masked):
        pass


def test_distances_by_their_formulas() -> None:
    student = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    teacher = torch.tensor([[1.0, 0.0], [0.0, 4.0]])
    assert float(feature_gap(student, teacher)) == pytest.approx((4 + 9) / 4)
    assert float(feature_gap(student, teacher, "normalised")) == pytest.approx(13 / 17)
    scaled = feature_gap(10 * student, 10 * teacher, "normalised")
    assert float(scaled) == pytest.approx(13 / 17)  # whatever the scale of a backbone
    p = (teacher / 3).softmax(dim=1)
    q = (student / 3).softmax(dim=1)
    expected = 9 * (p * (p / q).log()).sum(dim=1).mean()
    assert float(soft_gap(student, teacher, 3.0)) == pytest.approx(float(expected), rel=1e-5)


def test_temperature_squared_keeps_the_gradient() -> None:
    """For logits near each other the gradient of T^2 KL tends to (z - t) / (n K) at large T."""
    teacher = torch.tensor([[0.3, -0.1, -0.2]])
    for temperature in (20.0, 80.0):
        student = torch.tensor([[0.1, 0.1, -0.2]], requires_grad=True)
        soft_gap(student, teacher, temperature).backward()
        expected = (student.detach() - teacher) / 3
        torch.testing.assert_close(student.grad, expected, atol=2e-3, rtol=0.05)


def test_features_are_the_projected_embedding_before_unit_length() -> None:
    model = dual("clip")
    with torch.no_grad():
        unit = model.features(pictures())
        with_trained_head(model)
        seen = outputs(model, pictures())
        torch.testing.assert_close(seen.logits, model(pictures()))
    torch.testing.assert_close(F.normalize(seen.features, dim=1), unit)
    assert not torch.allclose(seen.features.norm(dim=1), torch.ones(6))


COMBINATIONS = list(itertools.product(("random", "context", "object"), ("none", "single", "multi")))


@pytest.mark.parametrize(("mask", "fill"), COMBINATIONS)
def test_the_loss_is_cross_entropy_plus_beta_distances(mask: str, fill: str) -> None:
    """At the start student and teacher agree; after a change the loss is linear in beta."""
    model = dual("clip")
    with_trained_head(model)
    plain = float(F.cross_entropy(model(pictures()), torch.arange(6) % 4).detach())
    losses = {}
    for beta in (0.0, 1.0, 3.0):
        objective = hardeners.get("counterfactual")(mask=mask, fill=fill, beta=beta)
        objective.begin(model, make_dataset(classes=CLASSES), None)
        # Teacher and student are the same function, but for the last bits of masked attention.
        assert float(objective(step_of(model)).detach()) == pytest.approx(plain, abs=1e-4)
        with torch.no_grad():
            model.network.tower.visual_projection.weight.mul_(1.1)
        losses[beta] = float(objective(step_of(model)).detach())
        with torch.no_grad():
            model.network.tower.visual_projection.weight.div_(1.1)
    slope = losses[1.0] - losses[0.0]
    assert slope > 0
    assert losses[3.0] - losses[0.0] == pytest.approx(3 * slope, rel=1e-3)


def test_no_mask_distils_on_the_clean_pictures() -> None:
    model = dual("clip")
    with_trained_head(model)
    objective = hardeners.get("counterfactual")(mask="none", beta=2.0)
    objective.begin(model, make_dataset(classes=CLASSES), None)
    with torch.no_grad():
        before = outputs(model, pictures()).features
        model.network.tower.visual_projection.weight.mul_(1.5)
        logits = model(pictures())
    expected = F.cross_entropy(logits, torch.arange(6) % 4) + 2 * (0.5 * before).square().mean()
    assert float(objective(step_of(model)).detach()) == pytest.approx(float(expected), rel=1e-4)


def test_the_counterfactual_has_no_label_and_the_teacher_no_gradient() -> None:
    model = dual("clip")
    with_trained_head(model)
    objective = hardeners.get("counterfactual")(beta=5.0)
    objective.begin(model, make_dataset(classes=CLASSES), None)
    objective(step_of(model)).backward()
    head = model.network.classifier.weight.grad.clone()
    model.zero_grad()
    F.cross_entropy(model(pictures()), torch.arange(6) % 4).backward()
    # The head learns from clean pictures alone.
    torch.testing.assert_close(head, model.network.classifier.weight.grad, atol=1e-5, rtol=1e-4)
    assert all(p.grad is None for p in objective.start.parameters())


def test_logits_can_be_held_too() -> None:
    model = dual("clip")
    with_trained_head(model)
    for where in ("clean", "masked"):
        objective = hardeners.get("counterfactual")(
            beta=0.0, logit_weight=1.0, temperature=2.0, logits_on=where
        )
        objective.begin(model, make_dataset(classes=CLASSES), None)
        with torch.no_grad():
            model.network.classifier.weight.mul_(0.9)
        held = float(objective(step_of(model)).detach())
        plain = float(F.cross_entropy(model(pictures()), torch.arange(6) % 4).detach())
        assert held > plain + 1e-5
        with torch.no_grad():
            model.network.classifier.weight.div_(0.9)


@pytest.mark.parametrize("mask", ["random", "object"])
def test_the_teacher_of_logits_sees_no_hidden_patches_either(mask: str) -> None:
    """Where student and teacher are one function, the distance of their predictions is zero."""
    model = dual("clip")
    with_trained_head(model)
    plain = float(F.cross_entropy(model(pictures()), torch.arange(6) % 4).detach())
    objective = hardeners.get("counterfactual")(
        mask=mask, fill="none", beta=0.0, logit_weight=1e4, temperature=1.0, logits_on="masked"
    )
    objective.begin(model, make_dataset(classes=CLASSES), None)
    assert float(objective(step_of(model)).detach()) == pytest.approx(plain, abs=1e-3)
    objective.adviser = Teacher(model, model.classes)  # a teacher of its own
    assert float(objective(step_of(model)).detach()) == pytest.approx(plain, abs=1e-3)


def linear(classes: tuple[str, ...], places: list[int]) -> Classifier:
    """A linear network whose outputs stand in this order."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 5))
    with torch.no_grad():
        network[1].weight.copy_(torch.randn(5, 768, generator=generator(5))[places])
        network[1].bias.copy_(torch.arange(5.0)[places])
    return make_classifier(network, classes)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("wise_kd", {"gamma": 1.0}),
        ("counterfactual", {"beta": 0.0, "mask": "none", "logit_weight": 1.0}),
        (
            "counterfactual",
            {"beta": 0.0, "mask": "none", "logit_weight": 1.0, "logits_on": "masked"},
        ),
    ],
)
def test_a_teacher_is_read_by_the_names_of_its_classes(
    method: str, settings: dict[str, Any]
) -> None:
    """A teacher that is the student with its outputs in another order holds it where it is."""
    names = ("ant", "bee", "cat", "dog", "eel")
    model = linear(names, [0, 1, 2, 3, 4])
    data = make_dataset(classes=names)
    objective: Any = hardeners.get(method)(temperature=1.0, **settings)
    objective.teacher = linear(("Eel", "dog", "ant", "cat", "bee"), [4, 3, 0, 2, 1])
    objective.begin(model, data, None)
    plain = F.cross_entropy(model(pictures()), torch.arange(6) % 4)
    assert objective(step_of(model)).item() == pytest.approx(plain.item(), abs=1e-6)
    objective.teacher = linear(("ant", "bee", "cat", "dog", "fly"), [0, 1, 2, 3, 4])
    with pytest.raises(BadParameterError, match="teacher: expected a model with the 5 classes"):
        objective.begin(model, data, None)


def test_convolutional_nets_have_no_tokens_to_hide() -> None:
    from test_training import network

    model = make_classifier(network())
    for mask in ("random", "object"):
        objective = hardeners.get("counterfactual")(mask=mask, fill="none")
        with pytest.raises(UserError, match="needs a vision transformer"):
            objective(step_of(model))
    assert find_tower(model.network) is None
    for mask in ("random", "context"):
        loss = hardeners.get("counterfactual")(mask=mask, feature_scale="normalised")(
            step_of(model)
        )
        assert torch.isfinite(loss)


def test_the_bank_keeps_the_last_pictures() -> None:
    bank = Bank(5)
    pixels = (pictures(4, 4) * 255).round() / 255
    bank.add(pixels, torch.arange(4), None)
    bank.add(1 - pixels, torch.arange(4) + 10, None)
    pool, labels, _ = bank.pool(pixels, torch.arange(4), None)
    assert labels.tolist() == [0, 1, 2, 3, 3, 10, 11, 12, 13]
    torch.testing.assert_close(pool[5:], 1 - pixels, atol=1e-6, rtol=0)
    again = Bank(5)
    again.load_state_dict(bank.state_dict())
    assert torch.equal(again.pool(pixels, labels[:4], None)[0], pool)


def test_a_run_with_a_bank_resumes_to_the_same_weights(tmp_path, monkeypatch) -> None:
    from test_training import StopError, augment, same, weights

    data = make_dataset(classes=CLASSES)
    params = {"bank": 11, "source": "low_relevance", "fill": "multi", "logit_weight": 0.5}
    settings = {"epochs": 2, "batch_size": 8, "lr": 0.001, "seed": 1}

    def fresh():
        model = dual("clip")
        with_trained_head(model)
        return model, hardeners.get("counterfactual")(**params)

    whole, objective = fresh()
    train(whole, data, objective, **settings)
    resume = Resume(tmp_path / "state.pt", every=1)
    steps = 0

    def interrupted(*args):
        nonlocal steps
        steps += 1
        if steps == 6:
            raise StopError
        return augment(*args)

    model, objective = fresh()
    with monkeypatch.context() as patch:
        patch.setattr("stockpot.harden.loop.augment", interrupted)
        with pytest.raises(StopError):
            train(model, data, objective, resume=resume, **settings)
    again, objective = fresh()
    train(again, data, objective, resume=resume, **settings)
    assert same(weights(whole), weights(again))


def test_values_that_make_no_sense_are_refused() -> None:
    for params in ({"threshold": 1.0}, {"rate": -0.1}, {"beta": -1.0}, {"temperature": 0.0}):
        with pytest.raises(UserError, match=next(iter(params))):
            hardeners.get("counterfactual")(**params)


def test_true_masks_take_the_place_of_relevance() -> None:
    """Whatever the network finds relevant, exactly the cells on the object are replaced."""
    truth = torch.zeros(6, 32, 32, dtype=torch.bool)
    truth[:, :8, :8] = True  # one whole cell of 4 x 4
    truth[:, 8:16, 8:10] = True  # and a quarter of another
    model = dual("clip")
    with_trained_head(model)
    for threshold, cells in ((0.3, [(0, 0)]), (0.2, [(0, 0), (1, 1)])):
        for mask in ("object", "context"):
            objective = hardeners.get("counterfactual")(
                mask=mask, objects="truth", threshold=threshold
            )
            expected = torch.zeros(4, 4, dtype=torch.bool)
            for cell in cells:
                expected[cell] = True
            _, masked, _ = objective._look(replace(step_of(model), masks=truth), pictures())
            assert (masked == (expected if mask == "object" else ~expected)).all()


def test_true_masks_travel_with_their_pictures() -> None:
    data = make_dataset(n=12, classes=CLASSES)
    # Each mask says its picture's row, so that a mask of another picture shows.
    masks = torch.zeros(12, 16, 16, dtype=torch.bool)
    for row in range(12):
        masks[row, 0, :row] = True
    known = replace(data, masks=masks)
    met = []

    class Look:
        def __call__(self, step: Step) -> torch.Tensor:
            rows = [(data.images.pixels.float() / 255 - p).flatten(1).abs().sum(1).argmin().item()
                    for p in step.pixels]  # fmt: skip
            met.append((rows, None if step.masks is None else step.masks.sum((1, 2)).tolist()))
            return F.cross_entropy(step.model(step.pixels), step.labels)

    model = dual("clip")
    with_trained_head(model)
    train(model, known, Look(), epochs=1, batch_size=4, augmentations=())
    assert len(met) == 3
    assert all(rows == masks for rows, masks in met)
    train(model, known, Look(), epochs=1, batch_size=12, augmentations=("flip",))
    assert met[-1][1] is None  # a mirrored picture's mask would lie on the wrong side


def test_true_masks_are_asked_of_data_that_have_them_and_stay_in_place() -> None:
    model = dual("clip")
    with_trained_head(model)
    data = make_dataset(n=12, classes=CLASSES)
    objective = hardeners.get("counterfactual")(objects="truth")
    with pytest.raises(UserError, match="has no object masks"):
        train(model, data, objective, epochs=1, batch_size=4, augmentations=())
    known = replace(data, masks=torch.ones(12, 16, 16, dtype=torch.bool))
    with pytest.raises(UserError, match="augmentations"):
        train(model, known, objective, epochs=1, batch_size=4, augmentations=("flip",))
    train(model, known, objective, epochs=1, batch_size=4, augmentations=())


def test_the_record_knows_true_masks_and_not_the_default() -> None:
    data = replace(make_dataset(n=12, classes=CLASSES), masks=torch.ones(12, 16, 16).bool())
    other = replace(data, masks=torch.zeros(12, 16, 16).bool())
    model = dual("clip")
    with_trained_head(model)

    def record(given, **params):
        return hardening_record("counterfactual", model, given, **params)

    # A model made before there was a choice is known again.
    assert "objects" not in record(data).parameters
    assert record(data).digest == record(other).digest
    true = record(data, objects="truth")
    assert true.parameters["objects"] == "truth"
    assert true.digest != record(other, objects="truth").digest
