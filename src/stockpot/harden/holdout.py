"""A validation split of the training data, the same share of every class."""

from __future__ import annotations

import torch

from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadParameterError


def hold_out(data: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset]:
    """What is trained on, and what is held out: `share` of each class, drawn with the seed.

    A class gives at least one picture as soon as it has two, so that every class is validated.
    """
    if not 0 < share < 1:
        raise BadParameterError(f"holdout: expected a share between 0 and 1, got {share}.")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(data), generator=generator)
    labels = data.labels[order]
    chosen = torch.zeros(len(data), dtype=torch.bool)
    for label in range(len(data.classes)):
        members = order[labels == label]
        count = max(1, round(share * len(members))) if len(members) > 1 else 0
        chosen[members[:count]] = True
    return data.take((~chosen).nonzero()[:, 0]), data.take(chosen.nonzero()[:, 0])
