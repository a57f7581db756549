"""Laws that every attack obeys; a new attack needs a row in `QUICK`."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import nn

from stockpot.attack import attacks
from stockpot.attack.losses import cross_entropy
from stockpot.attack.projection import norm_of
from stockpot.attack.run import AttackResult, attack

# Parameters that make each attack quick; `more` is the same attack with a larger budget.
QUICK = {
    "apgd": ({"steps": 8}, {"steps": 30}),
    "pgd": ({"steps": 8}, {"steps": 30}),
    "fgsm": ({}, {}),
    "fab": ({"steps": 8, "targets": 2}, {"steps": 25, "targets": 3}),
    "square": ({"steps": 60}, {"steps": 150}),
    "autoattack": ({"steps": 6, "queries": 40}, {"steps": 12, "queries": 100}),
}
BALLS = [("linf", 0.03), ("l2", 0.35), ("l1", 2.0)]
GRID = [(name, norm, eps) for name in QUICK for norm, eps in BALLS]


def network() -> nn.Module:
    generator = torch.Generator().manual_seed(3)
    # Double precision: the laws about batches hold bit for bit only where rounding cannot matter.
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(96, 4)
    ).double()
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator).double() / 2
    return model.eval()


MODEL = network()
IMAGES = torch.rand(24, 3, 8, 8, generator=torch.Generator().manual_seed(4)).double()
with torch.no_grad():
    LABELS = MODEL(IMAGES).argmax(dim=1)
    LABELS[:4] = (LABELS[:4] + 1) % 4  # the first four are wrong from the start


@cache
def plain(name: str, norm: str, eps: float) -> AttackResult:
    """What several laws look at, and none changes."""
    return run(name, norm, eps)


def run(name: str, norm: str, eps, *, more: bool = False, rows=slice(None), **extra):
    params = QUICK[name][more]
    seeds = list(range(100, 124))[rows] if isinstance(rows, slice) else [100 + r for r in rows]
    return attack(
        MODEL, IMAGES[rows], LABELS[rows], method=name, norm=norm, eps=eps, seed=seeds,
        **{**params, **extra},
    )  # fmt: skip


def test_every_attack_has_a_row() -> None:
    assert set(QUICK) == set(attacks.names())


@pytest.mark.parametrize(("name", "norm", "eps"), GRID)
def test_inside_the_ball_and_the_box_and_judged_by_the_model(name, norm, eps) -> None:
    result = plain(name, norm, eps)
    assert float(norm_of(norm, result.images - IMAGES).max()) <= eps * (1 + 1e-5)
    assert float(result.images.min()) >= 0
    assert float(result.images.max()) <= 1
    with torch.no_grad():
        right = MODEL(result.images).argmax(dim=1) == LABELS
    assert torch.equal(right, result.robust)
    assert result.robust.shape == result.loss.shape == result.queries.shape == (24,)
    assert 0 < int(result.robust.sum()) < 20, "a case that shows nothing"


@pytest.mark.parametrize(("name", "norm", "eps"), GRID)
def test_radius_zero_is_the_identity(name, norm, eps) -> None:
    result = run(name, norm, 0)
    assert torch.equal(result.images, IMAGES)
    assert torch.equal(result.robust, result.correct)


@pytest.mark.parametrize(("name", "norm", "eps"), GRID)
def test_wrong_points_stay_untouched(name, norm, eps) -> None:
    result = plain(name, norm, eps)
    assert torch.equal(result.images[:4], IMAGES[:4])
    assert not result.robust[:4].any()
    assert result.queries[:4].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(("name", "norm", "eps"), GRID)
def test_batches_and_order_do_not_matter(name, norm, eps) -> None:
    whole = plain(name, norm, eps)
    state = torch.get_rng_state()
    back = list(reversed(range(24)))
    turned = run(name, norm, eps, rows=back)
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(turned.images[back], whole.images, rtol=0, atol=1e-6)
    parts = [run(name, norm, eps, rows=rows, piece=5) for rows in (slice(7), slice(7, 24))]
    torch.testing.assert_close(
        torch.cat([p.images for p in parts]), whole.images, rtol=0, atol=1e-6
    )
    assert torch.equal(torch.cat([p.queries for p in parts]), whole.queries)


@pytest.mark.parametrize(("name", "norm", "eps"), GRID)
def test_more_work_or_more_room_is_not_weaker(name, norm, eps) -> None:
    base = int(plain(name, norm, eps).robust.sum())
    assert int(run(name, norm, eps, more=True).robust.sum()) <= base + 1
    # One-step attacks may overshoot in a larger ball; they are not held to it.
    slack = 3 if name == "fgsm" else 1
    assert int(run(name, norm, 1.5 * eps).robust.sum()) <= base + slack


@torch.no_grad()
def loss_of(images: torch.Tensor) -> torch.Tensor:
    return cross_entropy(MODEL(images), LABELS).float()


@pytest.mark.parametrize(("norm", "eps"), BALLS)
def test_the_best_loss_never_falls(norm, eps) -> None:
    start = last = loss_of(IMAGES)
    for steps in (1, 2, 5, 9):
        options = {"goal": "loss", "start": "clean", "steps": steps}
        # With a fixed step a longer run extends a shorter one, and its best can only be better.
        fixed = run("pgd", norm, eps, step_size=0.2, **options)
        assert (fixed.loss >= last - 1e-6).all()
        last = fixed.loss
        # An adaptive run plans for its length; it never ends below where it began.
        adaptive = run("apgd", norm, eps, **options)
        assert (adaptive.loss >= start - 1e-6).all()
        for result in (fixed, adaptive):
            torch.testing.assert_close(loss_of(result.images), result.loss, rtol=1e-4, atol=1e-5)
    assert float(last.mean()) > float(start.mean())


@pytest.mark.parametrize(("norm", "eps"), BALLS)
def test_apgd_is_no_weaker_than_pgd(norm, eps) -> None:
    adaptive = run("apgd", norm, eps, steps=20, goal="loss", start="clean")
    fixed = run("pgd", norm, eps, steps=20, goal="loss", start="clean")
    assert float(adaptive.loss.mean()) >= 0.99 * float(fixed.loss.mean())
