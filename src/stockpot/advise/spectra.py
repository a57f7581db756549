"""How many directions a member changes: singular values of its changes to some of the matrices.

A few matrices, evenly spread over the depth, tell it: one at a time, member by member.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stockpot.advise.facts import Spectrum
from stockpot.advise.geometry import learned
from stockpot.checkpoints.alignment import Row
from stockpot.checkpoints.layouts import is_head, plain_name
from stockpot.fuse.fuser import Slab
from stockpot.fuse.spectral.decompose import RANK_TOLERANCE
from stockpot.fuse.stream import Stream

_MOST = 8
"""Matrices that are decomposed."""
_WIDEST = 4096
"""The shorter side of a matrix that is still decomposed."""
_ENERGY = 0.9


@dataclass(frozen=True)
class Spectra:
    """Of every member and matrix: rank, directions there are, and those of most of the energy."""

    elementwise: bool = False

    def begin(self, count: int) -> dict[str, list[tuple[int, int, int]]]:
        return {}

    def observe(self, seen: dict[str, list[tuple[int, int, int]]], slab: Slab) -> None:
        seen[slab.name] = [directions(delta) for delta in slab.deltas()]

    def finish(
        self, parts: Sequence[dict[str, list[tuple[int, int, int]]]]
    ) -> dict[str, list[tuple[int, int, int]]]:
        return {name: found for part in parts for name, found in sorted(part.items())}


def directions(change: Tensor) -> tuple[int, int, int]:
    """The rank of a change above rounding, its shorter side, and the directions of 90 % energy."""
    matrix = change.double()
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    energies = torch.linalg.eigvalsh(gram).clamp(min=0).flip(0)
    total = energies.sum()
    rank = int((energies > RANK_TOLERANCE**2 * total).sum()) if total > 0 else 0
    most = int((energies.cumsum(0) < _ENERGY * total).sum()) + 1 if rank else 0
    return rank, len(energies), min(most, rank)


def is_matrix(row: Row) -> bool:
    """Whether spectral methods treat a tensor as a matrix."""
    return len(row.info.shape) == 2 and min(row.info.shape) > 1


def spectra(stream: Stream) -> list[Spectrum | None]:
    """One for each member; none where the network has no matrices."""
    count = len(stream.alignment.members)
    rows = [
        row
        for row in learned(stream.alignment)
        if is_matrix(row) and min(row.info.shape) <= _WIDEST and not is_head(plain_name(row.name))
    ]
    if not rows:
        return [None] * count
    step = (len(rows) - 1) / max(min(_MOST, len(rows)) - 1, 1)
    chosen = [rows[round(k * step)] for k in range(min(_MOST, len(rows)))]
    (found,) = stream.gather([Spectra()], chosen)
    return [_of([parts[member] for parts in found.values()]) for member in range(count)]


def _of(found: Sequence[tuple[int, int, int]]) -> Spectrum:
    # An adapter leaves most matrices alone, which says nothing about those that it changes.
    changed = [each for each in found if each[0]] or found
    shares = torch.tensor([rank / side for rank, side, _ in changed], dtype=torch.float64)
    energy = torch.tensor([most / side for _, side, most in changed], dtype=torch.float64)
    return Spectrum(
        matrices=len(found),
        rank=max(rank for rank, _, _ in found),
        share=float(shares.median()),
        energy=float(energy.median()),
    )
