"""A change of geometry: an affine map and a smooth elastic field."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.dynamic.generator import Encoded, Generator, Parametric
from stockpot.dynamic.generators import generators
from stockpot.errors import BadParameterError
from stockpot.types import Count


class WarpGenerator(Parametric):
    """Six latents of an affine map, and two per knot of a coarse grid of displacements."""

    name = "warp"
    step = 0.03

    def __init__(self, affine: float, elastic: float, knots: int) -> None:
        if affine < 0 or elastic < 0 or knots < 2:
            raise BadParameterError(
                "warp: expected affine >= 0, elastic >= 0 and knots >= 2, "
                f"got {affine}, {elastic} and {knots}."
            )
        super().__init__()
        self.affine, self.elastic, self.knots = affine, elastic, knots

    def to(self, device: torch.device) -> WarpGenerator:
        """Nothing to move."""
        return self

    def encode(self, pixels: Tensor, seeds: Tensor) -> Encoded:
        """No displacement."""
        return Encoded(pixels.new_zeros(len(pixels), 6 + 2 * self.knots * self.knots), pixels)

    def decode(self, latents: Tensor, context: Tensor) -> Tensor:
        """Sample the image where the field points; what lies outside repeats the border."""
        height, width = context.shape[-2:]
        change = self.affine * latents[:, :6].view(-1, 2, 3)
        matrix = change + torch.eye(2, 3).to(latents)
        grid = F.affine_grid(matrix, list(context.shape), align_corners=False)
        coarse = latents[:, 6:].view(-1, 2, self.knots * self.knots)
        field = coarse @ _spline(self.knots, height, width, latents.device).to(latents.dtype)
        field = field.view(-1, 2, height, width)
        grid = grid + self.elastic * field.permute(0, 2, 3, 1)
        return F.grid_sample(
            context.to(latents.dtype), grid, padding_mode="border", align_corners=False
        )


@lru_cache(maxsize=16)
def _spline(knots: int, height: int, width: int, device: torch.device) -> Tensor:
    """Bicubic interpolation from knots to pixels as a matrix: one product for all images."""
    with torch.inference_mode(False):
        units = torch.eye(knots * knots, device=device).view(-1, 1, knots, knots)
        fields = F.interpolate(units, size=(height, width), mode="bicubic", align_corners=True)
        return fields.view(knots * knots, height * width)


@generators.register("warp", holds=("elastic_transform",))
def warp(*, affine: float = 0.25, elastic: float = 0.12, knots: Count = 5) -> Generator:
    """Turn, shear, scale, shift and bend an image.

    Args:
        affine: the largest change of an entry of the affine map; 1 is half the image's side.
        elastic: the largest displacement of a knot, in the same unit.
        knots: on each side of the grid of displacements.
    """
    return WarpGenerator(affine, elastic, knots)
