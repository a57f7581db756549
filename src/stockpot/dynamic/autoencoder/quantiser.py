"""The vector quantiser: every latent cell becomes its nearest code."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Quantiser(nn.Module):
    """A codebook, and the step from cells to codes that lets gradients pass straight through."""

    def __init__(self, codes: int, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(codes, size)

    def nearest(self, cells: Tensor) -> Tensor:
        """The number of the nearest code for each row of an N x size matrix."""
        book = self.embedding.weight.float()
        rows = cells.float()
        # In bfloat16 near codes would be taken for each other.
        with torch.autocast(cells.device.type, enabled=False):
            # |a - b|^2 without the constant |a|^2: one matrix product for all pairs.
            return torch.addmm(book.square().sum(dim=1), rows, book.T, alpha=-2.0).argmin(dim=1)

    def codes(self, latents: Tensor) -> Tensor:
        """The code of every cell of N x size x H x W latents, as N x H x W numbers."""
        n, size, height, width = latents.shape
        rows = latents.permute(0, 2, 3, 1).reshape(-1, size)
        return self.nearest(rows).view(n, height, width)

    def look_up(self, codes: Tensor) -> Tensor:
        """The latents that stand for N x H x W codes."""
        return torch.as_tensor(self.embedding(codes)).permute(0, 3, 1, 2)

    def forward(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """Quantised latents, whose gradient is that of the latents, and their codes."""
        codes = self.codes(latents.detach())
        exact = self.look_up(codes).to(latents.dtype)
        return latents + (exact - latents).detach(), codes
