"""Sparse masks: a planted subset is found, and the published confound is visible."""

from __future__ import annotations

import pytest
import torch

from stockpot.dynamic.masks import PUBLISHED_STRENGTH, fit_mask, latents_of
from stockpot.errors import UserError

pytest.importorskip("sklearn")


def planted(n: int = 400, size: int = 60) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Latents of which a search moved six coordinates and left the others as they were."""
    generator = torch.Generator().manual_seed(0)
    before = torch.randn(n, 3, size // 3, generator=generator)
    moved = torch.zeros(3, size // 3, dtype=torch.bool)
    moved[0, :2] = moved[1, 5:7] = moved[2, 11:13] = True
    after = before + 2.0 * moved
    return before, after, moved


def test_a_planted_subset_is_recovered() -> None:
    before, after, moved = planted()
    mask = fit_mask(before, after)
    assert torch.equal(mask.kept, moved)
    assert mask.sparsity == pytest.approx(1 - 6 / 60)
    assert mask.score > 0.9
    assert mask.n == 400


def test_nothing_to_tell_gives_an_empty_mask() -> None:
    before, _, _ = planted()
    assert fit_mask(before, before.clone()).sparsity == 1.0


def test_a_weaker_penalty_keeps_more() -> None:
    before, after, _ = planted()
    noisy = after + 0.3 * torch.randn(after.shape, generator=torch.Generator().manual_seed(1))
    strong = fit_mask(before, noisy, strength=PUBLISHED_STRENGTH)
    weak = fit_mask(before, noisy, strength=1 / PUBLISHED_STRENGTH)
    assert weak.kept.sum() > strong.kept.sum()


def test_the_published_comparison_keys_on_quantisation_alone() -> None:
    class Rounding:
        def settled(self, latents: torch.Tensor) -> torch.Tensor:
            return latents.round()

    generator = torch.Generator().manual_seed(2)
    # Latents near 0.3 that no search moved at all: rounding alone takes them to 0.
    start = 0.3 + 0.05 * torch.randn(200, 10, generator=generator)
    paper = fit_mask(*latents_of("paper", Rounding(), start, start))
    fair = fit_mask(*latents_of("settled", Rounding(), start, start))
    assert paper.score == 1.0
    assert paper.sparsity < 1.0
    assert fair.sparsity == 1.0


def test_too_few_latents_are_refused() -> None:
    with pytest.raises(UserError, match="at least 10"):
        fit_mask(torch.zeros(4, 3), torch.zeros(4, 3))
