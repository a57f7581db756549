"""Lengths, cosines and kinship of a pool: one streamed walk over all weights, in fp64.

BatchNorm's running statistics are left out: they are no weights, and their variances are so large
that they would drown everything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from stockpot.checkpoints.alignment import Alignment, Row
from stockpot.checkpoints.layouts import is_batch_norm_statistic
from stockpot.fuse.fuser import Slab
from stockpot.fuse.similarity import Products, SimilarityReport, report_of, sums_of_tensors
from stockpot.fuse.stream import Stream


class Geometry(NamedTuple):
    """How the members lie around the base."""

    changes: SimilarityReport
    lengths: Tensor
    """Of the changes, as shares of the base's length."""
    kin: Tensor
    """Cosines of the members' weights and the base's."""
    relatives: Tensor
    """Cosines of the members' weights with one another."""
    distances: Tensor
    """Between members, as shares of the base's length; the diagonal is 0."""


@dataclass(frozen=True)
class BesideBase:
    """Per tensor: the base's inner product with itself, and with every change."""

    elementwise: bool = True

    def begin(self, count: int) -> dict[tuple[str, int], Tensor]:
        return {}

    def observe(self, seen: dict[tuple[str, int], Tensor], slab: Slab) -> None:
        base = slab.base.reshape(-1).double()
        products = [base @ base, *(base @ delta.reshape(-1).double() for delta in slab.deltas())]
        seen[slab.name, slab.start] = torch.stack(products).cpu()

    def finish(self, parts: Sequence[dict[tuple[str, int], Tensor]]) -> dict[str, Tensor]:
        return sums_of_tensors(parts)


def learned(alignment: Alignment) -> list[Row]:
    """The tensors that training changes by steps."""
    return [row for row in alignment.rows if not is_batch_norm_statistic(row.name)]


def geometry(stream: Stream, names: tuple[str, ...]) -> Geometry:
    """Look at all weights once."""
    rows = learned(stream.alignment)
    products, beside = stream.gather([Products(), BesideBase()], rows)
    # Vectors such as a norm's scale begin alike in every training; only matrices tell families.
    wide = [row.name for row in rows if len(row.info.shape) > 1] or [row.name for row in rows]
    inner = _sum({name: products[name][0] for name in wide})
    with_base = _sum({name: beside[name] for name in wide})
    weights = with_base[0] + with_base[1:, None] + with_base[None, 1:] + inner
    sizes = weights.diagonal().clamp(min=1e-300).sqrt()
    whole = _sum({row.name: products[row.name][0] for row in rows})
    length = _sum(beside)[0].clamp(min=1e-300).sqrt()
    squares = whole.diagonal()[:, None] + whole.diagonal() - 2 * whole
    return Geometry(
        changes=report_of(names, products),
        lengths=whole.diagonal().clamp(min=0).sqrt() / length,
        kin=(with_base[0] + with_base[1:]) / (with_base[0].clamp(min=1e-300).sqrt() * sizes),
        relatives=weights / torch.outer(sizes, sizes),
        distances=squares.clamp(min=0).sqrt().fill_diagonal_(0) / length,
    )


def _sum(parts: Mapping[str, Tensor]) -> Tensor:
    return torch.stack(list(parts.values())).sum(dim=0)
