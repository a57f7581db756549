"""From latent cells to codes: the nearest one, or the one that a layer finds most probable."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Codebook(nn.Module):
    """Vectors that stand for codes; how a cell finds its code is up to each kind."""

    @property
    def book(self) -> Tensor:
        """The codes' vectors, one row each."""
        raise NotImplementedError

    def bounds(self) -> tuple[Tensor, Tensor] | None:
        """Between what latents lie that have a code, in each channel; none where nothing says."""
        raise NotImplementedError

    def nearest(self, cells: Tensor) -> Tensor:
        """The number of the code of each row of an N x size matrix."""
        raise NotImplementedError

    def codes(self, latents: Tensor) -> Tensor:
        """The code of every cell of N x size x H x W latents, as N x H x W numbers."""
        n, size, height, width = latents.shape
        rows = latents.permute(0, 2, 3, 1).reshape(-1, size)
        return self.nearest(rows).view(n, height, width)

    def look_up(self, codes: Tensor) -> Tensor:
        """The latents that stand for N x H x W codes."""
        return F.embedding(codes, self.book).permute(0, 3, 1, 2)


class Quantiser(Codebook):
    """Every cell becomes its nearest code; gradients pass straight through."""

    def __init__(self, codes: int, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(codes, size)

    @property
    def book(self) -> Tensor:
        """The codes' vectors, one row each."""
        return self.embedding.weight

    def bounds(self) -> tuple[Tensor, Tensor] | None:
        """The codebook's own range."""
        return self.book.amin(dim=0), self.book.amax(dim=0)

    def nearest(self, cells: Tensor) -> Tensor:
        """The number of the nearest code for each row of an N x size matrix."""
        book = self.book.float()
        rows = cells.float()
        # In bfloat16 near codes would be taken for each other.
        with torch.autocast(cells.device.type, enabled=False):
            # |a - b|^2 without the constant |a|^2: one matrix product for all pairs.
            return torch.addmm(book.square().sum(dim=1), rows, book.T, alpha=-2.0).argmin(dim=1)

    def forward(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """Quantised latents, whose gradient is that of the latents, and their codes."""
        codes = self.codes(latents.detach())
        exact = self.look_up(codes).to(latents.dtype)
        return latents + (exact - latents).detach(), codes


class GumbelQuantiser(Codebook):
    """Codes by their probability (arXiv:1611.01144), as in taming-transformers' `GumbelVQ`.

    A 1 x 1 convolution gives each code a logit. Training draws codes; here the most probable one is
    taken, and the gradient is that of the codes' mean under these probabilities.
    """

    def __init__(self, codes: int, size: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(size, codes, 1)
        self.embed = nn.Embedding(codes, size)

    @property
    def book(self) -> Tensor:
        """The codes' vectors, one row each."""
        return self.embed.weight

    def bounds(self) -> tuple[Tensor, Tensor] | None:
        """Latents and codes lie in different spaces: there are none."""
        return None

    def nearest(self, cells: Tensor) -> Tensor:
        """The number of the most probable code for each row of an N x size matrix."""
        with torch.autocast(cells.device.type, enabled=False):
            weight = self.proj.weight.flatten(1).float()
            return F.linear(cells.float(), weight, self.proj.bias).argmax(dim=1)

    def forward(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """The most probable codes' vectors, with the gradient of their mean, and the codes."""
        codes = self.codes(latents.detach())
        shares = self.proj(latents).softmax(dim=1)
        mean = torch.einsum("nkhw,kd->ndhw", shares, self.book.to(shares.dtype))
        return mean + (self.look_up(codes).to(mean.dtype) - mean).detach(), codes
