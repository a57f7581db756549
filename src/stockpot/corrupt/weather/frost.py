"""Frost: a random crop of an icy texture mixed over the picture."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from stockpot.corrupt import corruptions
from stockpot.corrupt.constants import Constants
from stockpot.corrupt.draws import Draws
from stockpot.corrupt.levels import truncate
from stockpot.corrupt.weather import crystals
from stockpot.errors import MissingDependencyError

Overlays = Literal["procedural", "photographs"]

# Quirk kept: six photographs exist, but the original chooses with randint(5), never the last.
_PHOTOGRAPHS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")


class Sheet(NamedTuple):
    """All overlays in one flat list of pixels, with what is needed to crop from each."""

    pixels: Tensor
    starts: Tensor
    widths: Tensor
    free: Tensor


@corruptions.register("frost", paper="arXiv:1903.12261", group="weather", benchmark=True)
def frost(
    pixels: Tensor, constants: Constants, draws: Draws, *, overlays: Overlays = "procedural"
) -> Tensor:
    """Mix a random part of an ice texture over the picture.

    Args:
        overlays: `procedural` are textures of our own; `photographs` are the original ones, read
            from an installed `imagecorruptions` package.
    """
    height, width = pixels.shape[2:]
    sheet = overlay_sheet(overlays, constants[2], height, width, pixels.device)
    chosen = draws.integers(0, len(sheet.starts), ()).long()
    corner = (draws.uniform((2,), stream=1) * sheet.free.index_select(0, chosen)).long()
    return lay_over(pixels, constants, sheet, chosen, corner)


def lay_over(
    pixels: Tensor, constants: Constants, sheet: Sheet, chosen: Tensor, corner: Tensor
) -> Tensor:
    """Frost from given draws: each image's overlay (N), and its crop's row and column (N x 2)."""
    weight, ice_weight, _ = constants
    height, width = pixels.shape[2:]
    lines = sheet.widths.index_select(0, chosen)[:, None]
    rows = corner[:, :1] + torch.arange(height, device=pixels.device)
    columns = corner[:, 1:] + torch.arange(width, device=pixels.device)
    origin = sheet.starts.index_select(0, chosen)[:, None] + rows * lines
    place = (origin[:, :, None] + columns[:, None, :]).flatten()
    ice = sheet.pixels.index_select(0, place).view(len(pixels), height, width, 3)
    mixed = pixels.float().mul_(weight)
    return truncate(mixed.add_(ice.permute(0, 3, 1, 2), alpha=ice_weight))


@lru_cache(maxsize=16)
def overlay_sheet(
    overlays: Overlays, scale: float, height: int, width: int, device: torch.device
) -> Sheet:
    """The overlays at a scale, enlarged where they would not cover a picture of this size."""
    originals = crystals.overlays() if overlays == "procedural" else _photographs()
    pictures = [_scaled(picture, scale, height, width) for picture in originals]
    areas = [picture.shape[1] * picture.shape[2] for picture in pictures]
    starts = np.cumsum([0, *areas[:-1]])
    free = [[picture.shape[1] - height, picture.shape[2] - width] for picture in pictures]
    return Sheet(
        torch.cat([picture.flatten(1).T for picture in pictures]).float().to(device),
        torch.from_numpy(starts).to(device),
        torch.tensor([picture.shape[2] for picture in pictures], device=device),
        torch.tensor(free, device=device),
    )


def frost_ahead(overlays: Overlays) -> None:
    """Begin to make what frost is made of, for who will want it in a while."""
    if overlays == "procedural":
        crystals.draw_ahead()


def _scaled(picture: Tensor, scale: float, height: int, width: int) -> Tensor:
    rows, columns = picture.shape[1:]
    # At least one pixel of room in each direction, as the original's random crop needs.
    scale = max(scale, (height + 1.01) / rows, (width + 1.01) / columns)
    if scale == 1:
        return picture
    resized = F.interpolate(picture[None].float(), scale_factor=scale, mode="bilinear")
    return resized[0].round().to(torch.uint8)


def _photographs() -> tuple[Tensor, ...]:
    spec = find_spec("imagecorruptions")
    if spec is None or spec.origin is None:
        raise MissingDependencyError(
            "frost's photographs come with the package imagecorruptions, which is not installed.",
            hint="pip install imagecorruptions, or use overlays=procedural.",
        )
    folder = Path(spec.origin).parent / "frost"
    pictures = []
    for name in _PHOTOGRAPHS:
        try:
            picture = Image.open(folder / name).convert("RGB")
        except OSError:
            raise MissingDependencyError(
                f"expected frost's photograph {name} in the installed imagecorruptions, found none."
            ) from None
        pictures.append(torch.from_numpy(np.array(picture).transpose(2, 0, 1).copy()))
    return tuple(pictures)
