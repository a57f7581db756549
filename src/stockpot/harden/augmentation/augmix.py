"""AugMix: mixtures of short chains of simple changes, and agreement on them (arXiv:1912.02781)."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from stockpot.errors import BadParameterError
from stockpot.harden import hardeners
from stockpot.harden.augmentation.simple_changes import one_change
from stockpot.harden.many.layers import stacked
from stockpot.harden.objective import Objective, Step
from stockpot.types import Count, Natural, NonNegative


@hardeners.register("augmix", paper="arXiv:1912.02781", holds=("contrast",))
def augmix(
    *,
    severity: float = 3.0,
    width: Count = 3,
    depth: Natural = 0,
    alpha: float = 1.0,
    weight: NonNegative = 12.0,
) -> Objective:
    """Cross-entropy on clean images plus the divergence of predictions on two mixtures of them.

    None of the changes is one of the fifteen benchmark corruptions; two of them (autocontrast,
    equalize) come near contrast, which the model's record says.

    Args:
        severity: how strong the changes may be, up to 10; 3 for small images, 1 for large ones.
        width: chains that are mixed.
        depth: changes in a chain; 0 draws 1 to 3.
        alpha: of the Dirichlet and Beta distributions of the mixing shares.
        weight: of the divergence.
    """
    if not 0 < severity <= 10 or width < 1 or depth < 0 or alpha <= 0 or weight < 0:
        raise BadParameterError(
            "augmix: expected 0 < severity <= 10, width >= 1, depth >= 0, alpha > 0 and "
            f"weight >= 0, got {severity}, {width}, {depth}, {alpha} and {weight}."
        )

    def objective(step: Step) -> Tensor:
        views = [step.pixels]
        for _ in range(2):
            changed = mixture(step.whole.pixels, step.generator, severity, width, depth, alpha)
            views.append(step.own(changed))
        with stacked(len(views)):
            logits = step.model(torch.cat(views)).chunk(3)
        return F.cross_entropy(logits[0], step.labels) + weight * disagreement(list(logits))

    return objective


def mixture(
    pixels: Tensor, generator: Generator, severity: float, width: int, depth: int, alpha: float
) -> Tensor:
    """Each image mixed with a mixture of its own changed copies."""
    n = len(pixels)
    shares, keep = _shares(n, width, alpha, generator)
    mixed = torch.zeros_like(pixels)
    for chain in range(width):
        changed = pixels
        lengths = torch.randint(1, 4, (n,), generator=generator)
        lengths = torch.full_like(lengths, depth) if depth else lengths
        for place in range(int(lengths.max())):
            changed = one_change(changed, lengths > place, generator, severity)
        mixed = mixed + shares[:, chain].to(pixels).view(-1, 1, 1, 1) * changed
    share = keep.to(pixels).view(-1, 1, 1, 1)
    return (1 - share) * pixels + share * mixed


def _shares(n: int, width: int, alpha: float, generator: Generator) -> tuple[Tensor, Tensor]:
    # torch's Dirichlet and Beta take no generator; numpy's are seeded from ours.
    seed = int(torch.randint(0, 2**62, (), generator=generator))
    numbers = np.random.default_rng(seed)
    shares = numbers.dirichlet([alpha] * width, n)
    return torch.from_numpy(shares), torch.from_numpy(numbers.beta(alpha, alpha, n))


def disagreement(logits: list[Tensor]) -> Tensor:
    """The Jensen-Shannon divergence of several predictions, averaged over images."""
    chances = [each.float().softmax(dim=1) for each in logits]
    middle = torch.stack(chances).mean(dim=0).clamp(1e-7, 1).log()
    gaps = [F.kl_div(middle, each, reduction="batchmean") for each in chances]
    return torch.stack(gaps).mean()
