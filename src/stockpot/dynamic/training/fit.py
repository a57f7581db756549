"""The training of an autoencoder, with a codebook or with a Gaussian latent: one readable loop."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from stockpot.dynamic.training.codebook import CodebookKeeper, commitment
from stockpot.dynamic.training.corpus import Corpus
from stockpot.dynamic.training.losses import (
    Critic,
    FeatureDistance,
    balance,
    critic_loss,
    divergence,
)
from stockpot.errors import BadParameterError, UserError
from stockpot.models.autoencoder.model import Autoencoder

Said = Callable[[int, dict[str, float]], None]
"""Called now and then with the step and what was seen."""
_PARTS = ("pixels", "features", "commit", "divergence", "fooling", "critic")
"""What is added up; `made` beside them are the pictures."""


@dataclass(frozen=True)
class Plan:
    """How long, how large and how strongly weighted.

    Args:
        steps: of the optimiser; each takes one batch of every size.
        minutes: ends the training early; the learning rate falls by whichever comes first.
        batch: pictures of the smallest size per step; of a size twice as large, a quarter.
        lr: the peak learning rate of Adam.
        features: weight of the distance in a classifier's features.
        commit: weight of the distance between cells and their codes; with a codebook only.
        divergence: weight of the divergence of the latents from the standard normal distribution
            (arXiv:1312.6114), in nats per number of the latents; without a codebook only.
        fooling: weight of the critic, relative to an equal pull at the last layer.
        fooling_from: the share of the training after which the critic joins.
        precision: `bf16` runs the networks in bfloat16.
        seed: of everything random.
    """

    steps: int = 6000
    minutes: float = 0.0
    batch: int = 192
    lr: float = 6e-4
    features: float = 1.0
    commit: float = 0.25
    divergence: float = 1e-3
    fooling: float = 0.2
    fooling_from: float = 0.35
    precision: str = "fp32"
    seed: int = 0


def fit(
    model: Autoencoder,
    corpus: Corpus,
    distance: FeatureDistance | None,
    plan: Plan,
    *,
    said: Said | None = None,
    every: int = 200,
) -> dict[str, float]:
    """Train the autoencoder in place and say how it went; without a distance, by pixels alone."""
    if plan.steps < 1 or plan.batch < 1 or plan.lr <= 0:
        raise BadParameterError(
            "expected steps >= 1, batch >= 1 and lr > 0, "
            f"got {plan.steps}, {plan.batch} and {plan.lr}."
        )
    device = next(model.parameters()).device
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(plan.seed)
        critic = Critic().to(device)
    keeper = None
    if model.is_quantised:
        _start_codebook(model, corpus, plan)
        keeper = CodebookKeeper(model.quantize)
    # The codebook follows its cells and not a gradient.
    own = [p for p in model.parameters() if keeper is None or p is not model.quantize.book]
    optimiser = torch.optim.Adam(own, lr=plan.lr, betas=(0.5, 0.95))
    opponent = torch.optim.Adam(critic.parameters(), lr=plan.lr / 2, betas=(0.5, 0.95))
    smallest = corpus.sides[0]
    seen: dict[str, float] = {}
    model.train()
    began, step, progress = time.perf_counter(), 0, 0.0
    while step < plan.steps and progress < 1.0:
        generator = _generator(plan.seed, step)
        if step % 20 == 0 and plan.minutes:
            progress = (time.perf_counter() - began) / 60 / plan.minutes
        progress = max(progress, step / plan.steps)
        rate = min(1.0, progress / 0.02 + 0.01) * (1 + math.cos(math.pi * progress)) / 2
        optimiser.param_groups[0]["lr"] = rate * plan.lr
        opponent.param_groups[0]["lr"] = rate * plan.lr / 2
        with_critic = plan.fooling > 0 and progress >= plan.fooling_from
        optimiser.zero_grad(set_to_none=True)
        opponent.zero_grad(set_to_none=True)
        for side in corpus.sides:
            count = max(1, plan.batch * smallest * smallest // (side * side))
            pixels = corpus.sample(side, count, generator)
            losses = _losses(model, pixels, distance, keeper, plan, generator, device)
            if with_critic:
                losses |= _compete(model, critic, pixels, losses, plan)
            total = torch.stack([losses[name] for name in _PARTS if name in losses]).sum()
            total.backward()  # type: ignore[no-untyped-call]
            if step % every == 0 or step + 1 == plan.steps:
                seen |= {
                    f"{name} {side}": float(value.detach())
                    for name, value in losses.items()
                    if value.ndim == 0
                }
        nn.utils.clip_grad_norm_(own, 1.0)
        optimiser.step()
        opponent.step()
        if step % every == 0:
            if not all(torch.isfinite(torch.tensor(value)) for value in seen.values()):
                raise UserError(f"a loss is no longer a number after {step} steps.")
            if keeper:
                seen["codebook use"] = keeper.usage()
            if said:
                said(step, seen)
        step += 1
    model.eval()
    return {"steps": float(step), "seconds": time.perf_counter() - began, **seen}


@torch.no_grad()
def _start_codebook(model: Autoencoder, corpus: Corpus, plan: Plan) -> None:
    """Put the codes onto cells of real pictures, where the encoder's output is at the start."""
    generator = _generator(plan.seed, -1)
    cells = []
    for side in corpus.sides:
        latents = model.encode(corpus.sample(side, min(plan.batch, 64), generator))
        cells.append(latents.permute(0, 2, 3, 1).reshape(-1, latents.shape[1]))
    rows = torch.cat(cells)
    chosen = torch.randint(len(rows), (model.shape.codes,), generator=generator)
    model.quantize.book.copy_(rows[chosen.to(rows.device)])


def _losses(
    model: Autoencoder,
    pixels: Tensor,
    distance: FeatureDistance | None,
    keeper: CodebookKeeper | None,
    plan: Plan,
    generator: Generator,
    device: torch.device,
) -> dict[str, Tensor]:
    half = plan.precision == "bf16"
    with torch.autocast(device.type, torch.bfloat16, enabled=half):
        if keeper:
            latents = model.encode(pixels).float()
            settled, codes = model.quantize(latents)
        else:
            mean, spread = (part.float() for part in model.distribution(pixels))
            noise = torch.randn(mean.shape, generator=generator).to(device)
            settled = mean + spread * noise
        made = model.decode(settled).float()
        features = distance(pixels, made) if distance else None
    losses = {"pixels": F.l1_loss(made, pixels), "made": made}
    if features is not None:
        losses["features"] = plan.features * features
    if keeper:
        keeper.update(latents.detach(), codes, generator)
        losses["commit"] = plan.commit * commitment(latents, settled)
    else:
        losses["divergence"] = plan.divergence * divergence(mean, spread)
    return losses


def _compete(
    model: Autoencoder, critic: Critic, pixels: Tensor, losses: dict[str, Tensor], plan: Plan
) -> dict[str, Tensor]:
    """The loss of being told apart, and that of the critic who tells.

    Both are added up and differentiated at once, so each must reach its own network only.
    """
    made = losses["made"]
    half = plan.precision == "bf16"
    with torch.autocast(pixels.device.type, torch.bfloat16, enabled=half):
        for parameter in critic.parameters():
            parameter.requires_grad_(False)
        fooling = -critic(made).float().mean()
        for parameter in critic.parameters():
            parameter.requires_grad_(True)
        verdicts = critic(torch.cat([pixels, made.detach()])).float().chunk(2)
    near = losses["pixels"] + losses.get("features", 0)
    weight = plan.fooling * balance(near, fooling, model.decoder.conv_out.weight)
    return {"fooling": weight * fooling, "critic": critic_loss(*verdicts)}


def _generator(seed: int, step: int) -> Generator:
    digest = hashlib.sha256(f"autoencoder:{seed}:{step}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
