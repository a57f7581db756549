"""Which axes of which tensors may be permuted together without changing what a network computes.

A group is a set of units that can change places, such as the hidden units of one MLP or the heads
of one attention layer. Each axis of each tensor belongs to a group or to none. A group with blocks
moves `block` neighbouring entries as one, as the dimensions of a head.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from stockpot.errors import BadCheckpointError

Shape = tuple[int, ...]


class Axis(NamedTuple):
    """One axis of a tensor that moves with a group."""

    tensor: str
    axis: int
    block: int = 1


@dataclass
class PermutationSpec:
    """Group name -> the axes that move together, and the number of units."""

    axes: dict[str, list[Axis]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def add(self, group: str, name: str, axis: int, shape: Shape, *, units: int = 0) -> None:
        """Let an axis move with a group of `units` (one per entry unless told)."""
        units = units or shape[axis]
        known = self.sizes.setdefault(group, units)
        if known != units or shape[axis] % units:
            raise BadCheckpointError(
                f"{name}: axis {axis} has {shape[axis]} entries, which do not fit the {known} "
                f"units of {group}."
            )
        self.axes.setdefault(group, []).append(Axis(name, axis, shape[axis] // units))

    def groups_of(self) -> dict[str, dict[int, tuple[str, int]]]:
        """Tensor name -> axis -> (group, block)."""
        table: dict[str, dict[int, tuple[str, int]]] = {}
        for group, axes in self.axes.items():
            for place in axes:
                table.setdefault(place.tensor, {})[place.axis] = (group, place.block)
        return table
