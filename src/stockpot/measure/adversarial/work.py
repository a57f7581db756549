"""What attacks cost and what they warned of, over all batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stockpot.attack.checks.flags import Flags, together
from stockpot.attack.run import AttackResult
from stockpot.attack.threat import Threat
from stockpot.results.schema import Flag


def at_once(count: int, size: int, device: torch.device) -> int:
    """Images that are attacked at a time on a processor: equal batches, a quarter larger at most.

    A short batch at the end takes as many steps as a full one, each for a few images, and the next
    step for others: much of that is what a pass costs whatever its size. A GPU may be full.
    """
    if device.type != "cpu" or not count:
        return size
    batches = -(-count // (size + size // 4))
    return max(min(size, count), -(-count // batches))


class Attacked(NamedTuple):
    """What an attack on one batch came to."""

    correct: Tensor
    robust: Tensor
    queries: int
    saved: int
    flags: Flags

    @staticmethod
    def of(result: AttackResult) -> Attacked:
        """In short."""
        queries = int(result.queries.sum())
        return Attacked(
            result.correct.cpu(), result.robust.cpu(), queries, result.saved, result.flags
        )

    @property
    def about(self) -> dict[str, Any]:
        """All but the tensors, as plain values."""
        return {"queries": self.queries, "saved": self.saved, "flags": asdict(self.flags)}

    @staticmethod
    def again(correct: Tensor, robust: Tensor, about: Mapping[str, Any]) -> Attacked:
        """The inverse."""
        flags = Flags(**about["flags"])
        return Attacked(correct, robust, about["queries"], about["saved"], flags)


class Work:
    """A running account, threat by threat."""

    def __init__(self) -> None:
        self.queries = 0
        self.saved = 0
        self._images: dict[Threat, int] = {}
        self._seen: dict[Threat, Flags] = {}

    def add(self, member: Threat, result: Attacked) -> None:
        """Count one batch."""
        self.queries += result.queries
        self.saved += result.saved
        self._images[member] = self._images.get(member, 0) + len(result.robust)
        self._seen[member] = together([self._seen.get(member, Flags()), result.flags])

    def flags(self) -> tuple[Flag, ...]:
        """What is up, by name; a flag of the whole model stands for all images."""
        return tuple(
            Flag(
                name=name,
                count=self._images[member] if value is True else int(value),
                of=self._images[member],
                condition={"norm": member.norm, "eps": member.eps},
            )
            for member, flags in self._seen.items()
            for name, value in flags.raised().items()
        )

    def warnings(self) -> list[str]:
        """One line per warning."""
        return [
            f"{member}: {sentence}"
            for member, flags in self._seen.items()
            for sentence in flags.warnings()
        ]

    def notes(self) -> list[str]:
        """The same, and the share of work that fallen images spared."""
        share = self.saved / max(1, self.saved + self.queries)
        spared = f"{share:.0%} of the forward passes were spared by images that had fallen"
        return [*self.warnings(), spared]
