"""Sums over members, one member at a time, in the order of torch's own reduction.

`torch.stack(tensors).sum(dim=0)` adds rows up in blocks of sixteen and then the blocks. Adding in
the same order gives the same bits without holding all members at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

_BLOCK = 16


class RunningSum:
    """The sum of tensors that are added one by one."""

    def __init__(self) -> None:
        self._block: Tensor | None = None
        self._blocks: Tensor | None = None
        self._count = 0

    def add(self, values: Tensor) -> None:
        """Add a tensor; it is not kept."""
        self._block = values.clone() if self._block is None else self._block.add_(values)
        self._count += 1
        if self._count % _BLOCK == 0:
            done = self._block
            self._blocks = done if self._blocks is None else self._blocks.add_(done)
            self._block = None

    @property
    def value(self) -> Tensor:
        """The sum so far."""
        if self._block is None:
            if self._blocks is None:
                raise ValueError("nothing has been added")
            return self._blocks
        return self._block if self._blocks is None else self._block + self._blocks


def add_up(tensors: Iterable[Tensor]) -> Tensor:
    """The sum of some tensors."""
    total = RunningSum()
    for values in tensors:
        total.add(values)
    return total.value
