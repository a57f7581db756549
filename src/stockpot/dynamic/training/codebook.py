"""Keeping a codebook alive: codes follow the cells they stand for, and idle codes start anew."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from stockpot.models.autoencoder.quantiser import Codebook


class CodebookKeeper:
    """Moves each code to the running mean of its cells (arXiv:1711.00937, appendix A.1).

    A code that hardly any cell chose for a while is put onto a random cell of the batch: without
    this most of a codebook is never used.
    """

    def __init__(self, quantiser: Codebook, *, decay: float = 0.98, idle: float = 0.05) -> None:
        self.quantiser = quantiser
        self.decay = decay
        self.idle = idle
        book = quantiser.book
        book.requires_grad_(False)
        self.counts = torch.ones(len(book), device=book.device)
        self.sums = book.detach().clone()

    @torch.no_grad()
    def update(self, latents: Tensor, codes: Tensor, generator: Generator) -> None:
        """Follow one batch of cells and the codes they were given."""
        size = latents.shape[1]
        cells = latents.permute(0, 2, 3, 1).reshape(-1, size).float()
        flat = codes.reshape(-1)
        book = self.quantiser.book
        counts = torch.bincount(flat, minlength=len(book)).float()
        sums = torch.zeros_like(self.sums).index_add_(0, flat, cells)
        self.counts.lerp_(counts, 1 - self.decay)
        self.sums.lerp_(sums, 1 - self.decay)
        average = float(len(flat)) / len(book)
        dead = self.counts < self.idle * average
        rows = torch.randint(len(cells), (len(book),), generator=generator).to(cells.device)
        fresh = cells[rows]
        # A restarted code counts as an average one, or it would be dead again at once.
        self.counts = torch.where(dead, torch.full_like(self.counts, average), self.counts)
        self.sums = torch.where(dead[:, None], fresh * average, self.sums)
        book.copy_(self.sums / self.counts[:, None].clamp_min(1e-6))

    def usage(self) -> float:
        """The perplexity of the codes as a share of the codebook: 1 when all are used alike."""
        chances = self.counts / self.counts.sum()
        entropy = -(chances * chances.clamp_min(1e-12).log()).sum()
        return float(entropy.exp()) / len(self.counts)


def commitment(latents: Tensor, quantised: Tensor) -> Tensor:
    """How far cells lie from their codes: the encoder is asked to stay near."""
    return F.mse_loss(latents.float(), quantised.detach().float())
