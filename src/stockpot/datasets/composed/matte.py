"""Cutting a drawing off its white page: how opaque each pixel of it is.

The page is the white that can be reached from the picture's edge, so that a white eye or a white
wing inside an outline stays part of the drawing. A pixel on the outline is a mixture of ink and
page; its share of ink is read off its strongest neighbour, which removes the white fringe that a
hard cut leaves on a dark background.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from scipy import ndimage
from torch import Tensor

FAINTEST_INK = 3
"""A pixel at most so many grey levels from white is page."""


def opacity(pictures: Tensor) -> Tensor:
    """The share of ink of each pixel, N x H x W in [0, 1], of uint8 pictures on white."""
    ink = 255.0 - pictures.double().amin(dim=1)
    drawn = _drawn(ink)
    page_near = F.max_pool2d((~drawn).double()[:, None], 3, stride=1, padding=1)[:, 0] > 0
    strongest = F.max_pool2d(ink[:, None], 3, stride=1, padding=1)[:, 0]
    share = (ink / strongest.clamp_min(1.0)).clamp(0, 1)
    inside = drawn & ~page_near
    return torch.where(inside, 1.0, torch.where(drawn, share, 0.0))


def _drawn(ink: Tensor) -> Tensor:
    """Everything but the white that is joined to the edge of its picture."""
    # One labelling of the whole stack: the zero planes of the structure keep pictures apart.
    structure = np.zeros((3, 3, 3), dtype=bool)
    structure[1] = ndimage.generate_binary_structure(2, 1)
    parts, count = ndimage.label((ink <= FAINTEST_INK).numpy(), structure=structure)
    outer = np.zeros(count + 1, dtype=bool)
    for edge in (parts[:, 0], parts[:, -1], parts[:, :, 0], parts[:, :, -1]):
        outer[np.unique(edge)] = True
    outer[0] = False
    return torch.from_numpy(~outer[parts])
