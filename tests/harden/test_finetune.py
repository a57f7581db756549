"""Fine-tuning baselines: heads, probes, penalties, schedules and what is held out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pico import make_dataset
from stockpot.errors import UserError
from stockpot.fuse.run import fuse, sweep
from stockpot.harden import hardeners
from stockpot.harden.counterfactual.distil import soft_gap
from stockpot.harden.loop import Step, train
from stockpot.harden.optimise import set_rate
from stockpot.harden.probe import best_probe, probe_loss, probe_path
from stockpot.harden.run import harden
from stockpot.harden.selection import hold_out
from stockpot.models.fine_tuned import FineTunedNetwork, with_trained_head
from stockpot.models.load import load_model
from towers import CLASSES, FAMILIES, dual, two_towers


def pictures(n: int = 6) -> torch.Tensor:
    return torch.rand(n, 3, 16, 16, generator=torch.Generator().manual_seed(3))


def step_of(model, n: int = 6) -> Step:
    generator = torch.Generator().manual_seed(0)
    return Step(model, pictures(n), torch.arange(n) % 4, generator, 0)


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_the_zero_shot_head_is_the_cosine_classifier(kind: str) -> None:
    model = dual(kind)
    network = model.network
    with torch.no_grad():
        images = network.features(model.seen(pictures()))
        torch.testing.assert_close(images.norm(dim=1), torch.ones(6))
        cosines = images @ network.head.T
        bias = getattr(network.model, "logit_bias", torch.zeros(1))
        expected = network.model.logit_scale.exp() * cosines + bias
        before = model(pictures())
        with_trained_head(model)
        after = model(pictures())
    torch.testing.assert_close(after, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(after, before, atol=1e-5, rtol=1e-5)
    head = model.network.classifier
    assert head.bias.requires_grad
    assert head.weight.requires_grad
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_a_fine_tuned_folder_comes_back(kind: str, tmp_path: Path) -> None:
    data = make_dataset(classes=CLASSES)
    model = harden("vanilla", dual(kind), data, out=tmp_path / "m", epochs=1, batch_size=8)
    assert isinstance(model.network, FineTunedNetwork)
    again = load_model(tmp_path / "m")
    assert again.classes == CLASSES
    with torch.inference_mode():
        assert torch.equal(model.eval()(pictures()), again.eval()(pictures()))


def test_zero_epochs_write_the_zero_shot_classifier_and_wise_ft_has_exact_ends(
    tmp_path: Path,
) -> None:
    from safetensors.torch import load_file

    data = make_dataset(classes=CLASSES)
    zero = harden("vanilla", dual("clip"), data, out=tmp_path / "zero", epochs=0)
    tuned = harden(
        "vanilla", dual("clip"), data, out=tmp_path / "tuned", epochs=1, batch_size=8, lr=0.01
    )
    found = sweep(
        "wise_ft", [tmp_path / "zero", tmp_path / "tuned"], key="alpha", values=[0.0, 0.5, 1.0],
        out=tmp_path / "wise",
    )  # fmt: skip
    for label, end in (("alpha=0.0", "zero"), ("alpha=1.0", "tuned")):
        ours = load_file(found[label] / "model.safetensors")
        theirs = load_file(tmp_path / end / "model.safetensors")
        assert ours.keys() == theirs.keys()
        assert "classifier.weight" in ours
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    with torch.inference_mode():
        assert torch.equal(load_model(found["alpha=0.0"])(pictures()), zero(pictures()))
        assert torch.equal(load_model(found["alpha=1.0"])(pictures()), tuned(pictures()))
    middle = load_model(found["alpha=0.5"]).network.classifier.weight
    expected = (zero.network.classifier.weight + tuned.network.classifier.weight) / 2
    torch.testing.assert_close(middle, expected)
    soup = fuse("uniform_soup", [tmp_path / "zero", tmp_path / "tuned"], out=tmp_path / "soup")
    torch.testing.assert_close(load_model(soup).network.classifier.weight, expected)


def toy_features() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(120) % 3
    centres = torch.randn(3, 6, generator=generator)
    return 5 + 3 * (centres[labels] + torch.randn(120, 6, generator=generator)), labels


def test_every_probe_of_the_path_is_a_minimum() -> None:
    """The loss is convex: a vanishing gradient in the solver's own coordinates is the proof."""
    features, labels = toy_features()
    rows = features.double()
    centre = rows.mean(dim=0)
    spread = (rows - centre).std(unbiased=False)
    for probe in probe_path(features, labels, 3, strengths=[1e-4, 1e-2, 1.0, 100.0]):
        weight = (probe.weight * spread).requires_grad_()
        bias = (probe.bias + probe.weight @ centre).requires_grad_()
        loss = probe_loss((rows - centre) / spread, labels, weight, bias, probe.strength)
        loss.backward()
        assert float(weight.grad.abs().max()) < 1e-6
        assert float(bias.grad.abs().max()) < 1e-6


def test_the_path_runs_from_the_prior_to_a_fit() -> None:
    features, labels = toy_features()
    path = probe_path(features, labels, 3)
    norms = [float(probe.weight.norm()) for probe in path]
    assert norms == sorted(norms)
    weakest = F.linear(features.double(), path[0].weight, path[0].bias).softmax(dim=1)
    torch.testing.assert_close(weakest, torch.full_like(weakest, 1 / 3), atol=1e-3, rtol=0)

    def right(logits: Tensor) -> Tensor:
        return logits.argmax(dim=1) == labels

    chosen = best_probe(path, features, right)
    rates = [float(right(probe.logits(features)).float().mean()) for probe in path]
    assert float(right(chosen.logits(features)).float().mean()) == max(rates)
    assert chosen.strength == path[rates.index(max(rates))].strength


def test_lp_ft_starts_from_the_probe() -> None:
    model = FAMILIES["vit"]()
    data = make_dataset(n=80, classes=CLASSES)
    objective = hardeners.get("lp_ft")(points=4, weakest=1e-3, strongest=10.0)
    tower = model.network.model.vit.embeddings.cls_token.clone()
    objective.begin(model, data, data)
    head = model.network.model.classifier
    torch.testing.assert_close(head.weight.double(), objective.probe.weight, atol=1e-6, rtol=1e-5)
    assert torch.equal(model.network.model.vit.embeddings.cls_token, tower)
    with torch.no_grad():
        right = model(data.images.pixels).argmax(1) == data.labels
    assert float(right.float().mean()) > 0.5  # the features of a random tower carry the label
    loss = objective(step_of(model))
    assert float(loss.detach()) == pytest.approx(
        float(F.cross_entropy(model(pictures()), torch.arange(6) % 4).detach()), rel=1e-6
    )


def test_l2_sp_measures_the_way_from_the_start() -> None:
    model = dual("clip")
    with_trained_head(model)
    objective = hardeners.get("l2_sp")(strength=0.4)
    objective.begin(model, make_dataset(classes=CLASSES), None)
    plain = float(F.cross_entropy(model(pictures()), torch.arange(6) % 4).detach())
    assert float(objective(step_of(model)).detach()) == pytest.approx(plain, rel=1e-6)
    with torch.no_grad():
        model.network.classifier.bias.add_(0.5)  # the same for every class: logits shift alike
    moved = float(objective(step_of(model)).detach())
    assert moved == pytest.approx(plain + 0.4 / 2 * 4 * 0.25, rel=1e-5)


def test_wise_kd_adds_the_teacher_s_divergence(tmp_path: Path) -> None:
    data = make_dataset(classes=CLASSES)
    harden("vanilla", dual("clip"), data, out=tmp_path / "teacher", epochs=1, batch_size=8, lr=0.01)
    teacher = load_model(tmp_path / "teacher")
    model = dual("clip")
    with_trained_head(model)
    objective = hardeners.get("wise_kd")(
        teacher=str(tmp_path / "teacher"), gamma=0.7, temperature=4.0
    )
    objective.begin(model, data, None)
    with torch.no_grad():
        logits, advice = model(pictures()), teacher.eval()(pictures())
        expected = F.cross_entropy(logits, torch.arange(6) % 4)
        expected = expected + 0.7 * soft_gap(logits, advice, 4.0)
    assert float(objective(step_of(model)).detach()) == pytest.approx(float(expected), rel=1e-5)


def test_flyp_trains_both_towers_by_the_contrastive_loss() -> None:
    model = two_towers()
    loss = hardeners.get("flyp")(collisions="ignored")(step_of(model, 4))  # four classes, once each
    network = model.network
    with torch.no_grad():
        images = model.features(pictures(4))
        logits = network.scale().clamp(max=100) * images @ network.head.T  # one prompt per class
        right = torch.arange(4)
        expected = (F.cross_entropy(logits, right) + F.cross_entropy(logits.T, right)) / 2
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-4)
    shared = hardeners.get("flyp")()(step_of(model, 4))
    assert float(shared.detach()) == pytest.approx(float(expected), rel=1e-4)
    loss.backward()
    for tower in (network.model.text_model, network.model.vision_model):
        assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in tower.parameters())


def test_the_published_code_s_schedule_is_torch_s_one_cycle() -> None:
    weight = torch.nn.Parameter(torch.zeros(2, 2))
    ours = torch.optim.AdamW([weight], lr=3e-5)
    theirs = torch.optim.AdamW([weight], lr=3e-5)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        theirs, max_lr=3e-5, total_steps=200, pct_start=0.1
    )
    for step in range(200):
        set_rate(ours, 3e-5, "cosine_cycle", step, 200, 20)
        expected = theirs.param_groups[0]
        group = ours.param_groups[0]
        assert group["lr"] == pytest.approx(expected["lr"], rel=1e-6, abs=1e-15), step
        assert group["betas"][0] == pytest.approx(expected["betas"][0], rel=1e-6), step
        theirs.step()
        if step < 199:
            schedule.step()


def test_what_is_held_out_is_the_same_share_of_every_class() -> None:
    data = make_dataset(n=80)
    kept, held = hold_out(data, 0.25, seed=3)
    assert (len(kept), len(held)) == (60, 20)
    assert torch.bincount(held.labels).tolist() == [5, 5, 5, 5]
    pixels = torch.cat([kept.images.pixels, held.images.pixels]).flatten(1).float()
    assert len(pixels.unique(dim=0)) == 80
    other = hold_out(data, 0.25, seed=4)[1]
    assert other.fingerprint != held.fingerprint
    with pytest.raises(UserError, match="between 0 and 1"):
        hold_out(data, 1.5, seed=0)


def test_training_stops_when_the_best_epoch_lies_too_far_back() -> None:
    data = make_dataset(n=40, classes=CLASSES)
    model = FAMILIES["vit"]()
    seen = train(
        model, data, hardeners.get("vanilla")(), epochs=50, batch_size=8, lr=1e-12,
        keep="best", holdout=0.2, patience=2,
    )  # fmt: skip
    assert seen["steps"] == 3 * 4  # the first epoch is the best, two more are waited for
    with pytest.raises(UserError, match="keep=best"):
        train(model, data, hardeners.get("vanilla")(), patience=2)
    with pytest.raises(UserError, match=r"holdout=0\.1"):
        train(model, data, hardeners.get("vanilla")(), keep="best")


def test_models_with_a_head_of_their_own_keep_it() -> None:
    model = FAMILIES["vit"]()
    network = model.network
    with_trained_head(model)
    assert model.network is network
