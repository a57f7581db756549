"""Whose pixels replace the masked ones: for every picture, or every cell, a number in a pool.

The pool is the batch itself, followed by a bank of earlier pictures where one is kept. The paper's
rules are the two of `batch_partners`; what goes beyond it is drawn by `chosen_partners`. Draws are
made on the CPU, so that a seed means the same on every device, and number one per filled cell: what
is allowed is looked up in tables of pool by picture or pool by cell, never of all three.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Generator, Tensor

from stockpot.errors import UserError

Fill = Literal["none", "single", "multi"]
Source = Literal["any", "other_class", "low_relevance"]


def batch_partners(
    n: int, cells: int, fill: Fill, generator: Generator, *, derange: bool
) -> Tensor:
    """The published rules: [images, 1] for `single`, [images, cells] for `multi`.

    `single` is one permutation of the batch, which may leave a picture its own partner; with
    `derange` it never does. `multi` draws each cell's source among the others.
    """
    _need_others(n)
    if fill == "multi":
        offset = torch.randint(1, n, (n, cells), generator=generator)
        return (torch.arange(n)[:, None] + offset) % n
    order = torch.randperm(n, generator=generator)
    if not derange:
        return order[:, None]
    # One random cycle through all pictures: each gets its successor, so none gets itself.
    partner = torch.empty_like(order)
    partner[order] = order.roll(-1)
    return partner[:, None]


def chosen_partners(
    source: Source,
    fill: Fill,
    masked: Tensor,
    labels: Tensor,
    pool_labels: Tensor,
    pool_objects: Tensor | None,
    generator: Generator,
) -> Tensor:
    """A partner for every picture, [images, 1], or (`multi`) for every cell, [images, cells].

    Nobody is their own partner. Where nothing suits, any other picture does.

    Args:
        source: `any` other picture, one of an `other_class`, or (`low_relevance`) one that shows
            context, not an object, where the picture is masked.
        fill: `single` or `multi`.
        masked: [images, cells], what will be replaced.
        labels: of the batch.
        pool_labels: of the pool, whose first pictures are the batch.
        pool_objects: [pool, cells], where the pool's pictures show their objects.
        generator: on the CPU.
    """
    n, pool = len(labels), len(pool_labels)
    _need_others(pool)
    count = 1 if fill == "single" else masked.shape[1]
    drawn = torch.rand((n, count), generator=generator, dtype=torch.float64).to(labels.device)
    others = 1 - torch.eye(n, pool, dtype=torch.float64, device=labels.device)
    if source == "low_relevance" and pool_objects is not None:
        if fill == "multi":
            return by_cell(~pool_objects, drawn)
        share = masked.double() @ (~pool_objects).double().T
        return by_picture(others * share, drawn)
    if source == "other_class":
        return by_picture(others * (labels[:, None] != pool_labels[None, :]), drawn)
    return by_picture(others, drawn)


def by_picture(weights: Tensor, drawn: Tensor) -> Tensor:
    """For each draw of a row the pool's picture that it falls on, by weights [images, pool].

    Args:
        weights: zero where a picture is not allowed. In a row of zeros all others are.
        drawn: uniform numbers [images, draws].
    """
    n, pool = weights.shape
    others = 1 - torch.eye(n, pool, dtype=weights.dtype, device=weights.device)
    weights = torch.where(weights.sum(dim=1, keepdim=True) > 0, weights, others)
    reached = weights.cumsum(dim=1)
    found = torch.searchsorted(reached, drawn * reached[:, -1:], right=True)
    # Rounding may carry a draw next to 1 past the end; the last allowed picture is meant.
    last = (weights > 0).cumsum(dim=1).argmax(dim=1, keepdim=True)
    return torch.minimum(found, last)


def by_cell(allowed: Tensor, drawn: Tensor) -> Tensor:
    """For each cell of a picture one of the pool's that are allowed there, but never itself.

    Args:
        allowed: booleans [pool, cells]; the first pictures are those that are filled.
        drawn: uniform numbers [images, cells].
    """
    n, pool = len(drawn), len(allowed)
    order = allowed.int().argsort(dim=0, descending=True, stable=True)
    rank = allowed.cumsum(dim=0) - 1
    own = allowed[:n]
    suited = allowed.sum(dim=0) - own.long()
    # The draw counts the others alone, so from one's own place in the order on it steps over it.
    place = (drawn * suited).long()
    place = place + (own & (place >= rank[:n])).long()
    found = order.gather(0, place.clamp(max=pool - 1))
    other = (torch.arange(n, device=drawn.device)[:, None] + 1 + (drawn * (pool - 1)).long()) % pool
    return torch.where(suited > 0, found, other)


def _need_others(pictures: int) -> None:
    if pictures < 2:
        raise UserError(
            "filling masked parts needs a second picture, but the batch holds one.",
            hint="Take batch_size >= 2, or fill=none.",
        )


class Kept(NamedTuple):
    """Pictures to fill from, with their labels and where their objects are, if that is known."""

    pixels: Tensor
    labels: Tensor
    objects: Tensor | None


class Bank:
    """The last `size` pictures as uint8, with their labels and where their objects were."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pixels: Tensor | None = None
        self.labels: Tensor | None = None
        self.objects: Tensor | None = None

    def pool(self, pixels: Tensor, labels: Tensor, objects: Tensor | None) -> Kept:
        """The batch followed by what the bank holds."""
        if self.pixels is None or self.labels is None:
            return Kept(pixels, labels, objects)
        kept = self.pixels.to(pixels.device, pixels.dtype) / 255
        both = None
        if objects is not None and self.objects is not None:
            both = torch.cat([objects, self.objects.to(objects.device)])
        return Kept(
            torch.cat([pixels, kept]), torch.cat([labels, self.labels.to(labels.device)]), both
        )

    def add(self, pixels: Tensor, labels: Tensor, objects: Tensor | None) -> None:
        """Remember a batch; the oldest pictures go."""
        if not self.size:
            return
        new = (pixels.detach() * 255).round().clamp(0, 255).to(torch.uint8)
        self.pixels = self._last(self.pixels, new)
        self.labels = self._last(self.labels, labels)
        if objects is not None:
            self.objects = self._last(self.objects, objects)

    def _last(self, old: Tensor | None, new: Tensor) -> Tensor:
        joined = new if old is None else torch.cat([old.to(new.device), new])
        return joined[-self.size :]

    def state_dict(self) -> dict[str, Any]:
        """The pictures, for a run that is stopped."""
        return {"pixels": self.pixels, "labels": self.labels, "objects": self.objects}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with saved pictures."""
        self.pixels, self.labels = state["pixels"], state["labels"]
        self.objects = state["objects"]
