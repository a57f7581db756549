"""ESM: merge along the directions in which members move their outputs (arXiv:2602.20208)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from stockpot.checkpoints.layouts import plain_name
from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, TensorFuser
from stockpot.fuse.learning.learner import DataFuser, Learned
from stockpot.fuse.learning.memory import Held
from stockpot.fuse.learning.task_pool import TaskPool
from stockpot.fuse.spectral.decompose import (
    RANK_TOLERANCE,
    Triples,
    check_tolerance,
    leading_triples,
    rounding_floor,
)
from stockpot.fuse.spectral.tsv_m import running_mean, tsv_m
from stockpot.fuse.statistics.gram import grams, linear_layers, send
from stockpot.fuse.statistics.regmean import images
from stockpot.types import Count, NonNegative, Seed

_GAIN = 2.0
"""The authors double what their orthogonal factors give."""


@fusers.register(
    "esm",
    paper="arXiv:2602.20208",
    needs_base=True,
    symmetric=True,
    learns=True,
    needs_data=True,
)
def esm(
    *,
    examples: Count = 32,
    batch_size: Count = 32,
    scale: float = 1.0,
    power: NonNegative = 2.0,
    energy: NonNegative = 0.15,
    rank_tolerance: NonNegative = RANK_TOLERANCE,
    seed: Seed = 0,
) -> DataFuser:
    """Give members equal shares of each linear layer, along what moves its outputs on images.

    For a layer and member t with change D_t and inputs X_t, the principal directions P_t of the
    moved outputs X_t D_t' take the place of singular vectors: D_t = P_t A_t, cut to int(d / T) of
    the d outputs. All members' P and A, side by side, are replaced by the nearest orthonormal ones
    times their mean singular value. Before, members and input dimensions are weighed by
    their length relative to the mean, afterwards layers of one kind, each to `power`. Other
    matrices are merged as by `tsv_m`, everything else gets the mean change.

    Args:
        examples: images of each task; labels are not read.
        batch_size: images per forward pass.
        scale: multiplies the merged change before it is added to the base.
        power: of the relative lengths of members, dimensions and layers; 0 leaves them out.
        energy: of the relative energy of a direction, multiplied into both of its vectors, as the
            authors' program does; 0 leaves it out.
        rank_tolerance: directions up to this share of a layer's moved outputs count as rounding.
        seed: of the choice of images.
    """
    check_tolerance(rank_tolerance)

    def learn(pool: TaskPool) -> Learned:
        tasks = pool.need_tasks("esm")
        layers = linear_layers(pool)
        pool.load_base()
        base = {name: layer.weight.detach().double().clone() for name, layer in layers.items()}
        parts = {name: Parts(len(tasks), energy, power, rank_tolerance) for name in layers}
        for index, task in enumerate(tasks):
            pool.progress("measuring inputs", index, len(tasks))
            pool.load_member(index)
            pool.adopt(task)
            found = grams(layers, send(pool, images(pool, task, examples, batch_size, seed)))
            for name, gram in found.items():
                parts[name].add(layers[name].weight.detach().double() - base[name], gram)
        merged = {name: one.merged() for name, one in parts.items() if one}
        balanced = by_kind(merged, power)
        tensors = {plain_name(name): change.float().cpu() for name, change in balanced.items()}
        return Learned(tensors, {"layers": len(tensors), "examples": examples})

    def fuser(learned: Learned) -> TensorFuser:
        others = tsv_m(scale=scale, rank_tolerance=rank_tolerance)

        def merge(slab: Slab) -> Tensor:
            change = learned.tensors.get(plain_name(slab.name))
            if change is not None:
                own: Tensor = change.to(slab.base.device, slab.base.dtype)
                return slab.base + own * scale
            if slab.base.ndim == 2:
                shared: Tensor = others.merge(slab)
                return shared
            return slab.base + running_mean(slab) * scale

        return TensorFuser(merge)

    held = Held(batch_size, backward=False, copies=4, of_each=2, grams=1.5)
    return DataFuser(learn, fuser, (held,))


@dataclass
class Parts:
    """One layer: what has been seen of its members."""

    count: int
    energy: float
    power: float
    tolerance: float
    _left: list[Tensor] = field(default_factory=list)
    _right: list[Tensor] = field(default_factory=list)
    _lengths: list[Tensor] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._left)

    def add(self, change: Tensor, gram: Tensor) -> None:
        """Add a member: its change, and the mean of x x' over the inputs."""
        share = max(1, int(change.shape[0] * (1 / self.count)))
        directions, values, _ = _moved(change, gram, self.tolerance, share)
        factors = torch.ones_like(values)
        if len(values) and self.energy:
            squares = values.square()
            factors = (squares / squares.mean()) ** self.energy
            factors /= factors.mean()
        self._left.append(directions * factors)
        self._right.append((directions.T @ change) * factors[:, None])
        self._lengths.append(torch.linalg.matrix_norm(change))

    def merged(self) -> Tensor:
        """The merged change."""
        lengths = torch.stack(self._lengths)
        if not bool(lengths.any()):
            return self._left[0].new_zeros(self._left[0].shape[0], self._right[0].shape[1])
        weights = (lengths / lengths.mean()) ** self.power
        left = torch.cat(self._left, dim=1)
        right = torch.cat([a * w for a, w in zip(self._right, weights, strict=True)])
        columns = torch.linalg.vector_norm(right, dim=0)
        right = right * (columns / columns.mean()) ** self.power
        return _GAIN * _even(left, self.tolerance) @ _even(right, self.tolerance)


def _moved(change: Tensor, gram: Tensor, tolerance: float, share: int) -> Triples:
    """The principal directions of x D' over all inputs x, without centring, as the authors do."""
    squares, vectors = torch.linalg.eigh(gram.double())
    # The left singular vectors of D G^(1/2) are the eigenvectors of D G D', at twice the digits.
    moved = change @ (vectors * squares.clamp(min=0).sqrt())
    return leading_triples(moved, rounding_floor(moved, tolerance), share)


def _even(matrix: Tensor, tolerance: float) -> Tensor:
    """The nearest partial isometry times the mean singular value."""
    left, values, right = leading_triples(matrix, rounding_floor(matrix, tolerance))
    return left @ right * (values.mean() if len(values) else 0.0)


def by_kind(changes: Mapping[str, Tensor], power: float) -> dict[str, Tensor]:
    """Changes weighed by their length relative to those of the same place in other blocks."""
    lengths = {name: torch.linalg.matrix_norm(change) for name, change in changes.items()}
    kinds: dict[str, list[Tensor]] = {}
    for name, length in lengths.items():
        kinds.setdefault(_kind(name), []).append(length)
    found = {}
    for name, change in changes.items():
        usual = _mean(kinds[_kind(name)])
        factor = (lengths[name] / usual) ** power if bool(usual > 0) else 1.0
        found[name] = change * factor
    return found


def _kind(name: str) -> str:
    return re.sub(r"(?<=\.)\d+(?=\.)", "*", name)


def _mean(values: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(values)).mean()
