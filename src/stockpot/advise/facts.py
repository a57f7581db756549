"""What was found when a pool was looked at: plain values, which rules judge and JSON holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Fits = Literal["whole", "other classes", "other head", "other architecture"]
KIN = 0.7
"""Weights whose cosine with the base's is at least this belong to its family. In the embedded
families it is 0.94 to 1.00 after fine-tuning, and 0.24 between two families of one architecture."""
ORTHOGONAL = 0.1
"""Changes whose cosines are below this in the mean have little in common."""


@dataclass(frozen=True)
class Spectrum:
    """The singular values of a member's changes to some matrices, in the median matrix."""

    matrices: int
    rank: int
    """Of the change with the highest."""
    share: float
    """Of the directions that a changed matrix has, those that change at all."""
    energy: float
    """Of these directions, those that hold nine tenths of the change's energy."""


@dataclass(frozen=True)
class Line:
    """Halfway between the base and a member, on a few images."""

    base: float
    member: float
    halfway: float
    barrier: float
    """The mean accuracy of both ends less that halfway; above 0 the way leads through a valley."""
    low: float
    high: float


@dataclass(frozen=True)
class Member:
    """One checkpoint of the pool."""

    name: str
    source: str
    """As it was given, for commands."""
    fits: Fits = "whole"
    why: str = ""
    """What does not fit."""
    same_as: str = ""
    """The base or an earlier member that holds the same weights."""
    adapter: int | None = None
    """The rank of a LoRA adapter; none for whole weights."""
    task: str = ""
    threat: str = ""
    """What its record says that it was trained on, and against."""
    length: float = 0.0
    """Of its change, as a share of the base's length."""
    kin: float = 1.0
    """The cosine of its weights and the base's."""
    spectrum: Spectrum | None = None
    line: Line | None = None

    @property
    def belongs(self) -> bool:
        """Whether it can be merged with the base as it is, but for its head."""
        return self.comparable and self.kin >= KIN

    @property
    def comparable(self) -> bool:
        """Whether its tensors line up with the base's, but for its head."""
        return self.fits != "other architecture"


@dataclass(frozen=True)
class Facts:
    """One pool."""

    base: str
    base_source: str
    members: tuple[Member, ...]
    base_threat: str = ""
    tensors: int = 0
    weights: int = 0
    matrices: float = 0.0
    """The share of the weights that stands in matrices, where spectral methods work."""
    batch_norm: bool = False
    text_head: bool = False
    """A dual encoder: heads are made of words, for any classes."""
    permutable: bool = False
    """Whether it is known how units of this architecture may change places."""
    cosines: dict[str, dict[str, float]] = field(default_factory=dict)
    """Of the changes of all that can be compared; what follows is of the usable members."""
    agreement: float = 1.0
    """The share of equal signs where two members change a weight, in the mean."""
    relatives: float = 1.0
    """The mean cosine of the weights of all that can be compared with one another."""
    layers: dict[str, float] = field(default_factory=dict)
    """Tensor -> mean cosine of the changes to it."""
    data: str = ""
    images: int = 0

    @property
    def usable(self) -> tuple[Member, ...]:
        """Members that belong together, each once, and none that changed nothing."""
        return tuple(m for m in self.members if m.belongs and not m.same_as)

    @property
    def own_heads(self) -> bool:
        """Whether some usable member answers other questions than the base."""
        return any(m.fits in ("other head", "other classes") for m in self.usable)

    @property
    def thin(self) -> tuple[Member, ...]:
        """Usable members that change few directions: adapters, and what was merged from them."""
        return tuple(
            m
            for m in self.usable
            if m.adapter is not None or (m.spectrum and 0 < m.spectrum.share <= 0.5)
        )

    @property
    def mean_cosine(self) -> float:
        """Over all pairs of usable members; 0 for a single one."""
        names = [member.name for member in self.usable]
        pairs = [self.cosines[a][b] for k, a in enumerate(names) for b in names[k + 1 :]]
        return sum(pairs) / len(pairs) if pairs else 0.0

    @property
    def tasks(self) -> tuple[str, ...]:
        """What the members were trained for, where their records say it."""
        return tuple(dict.fromkeys(m.task for m in self.usable if m.task))

    @property
    def threats(self) -> tuple[str, ...]:
        """Attacks that base and members were trained against."""
        found = [self.base_threat, *(member.threat for member in self.usable)]
        return tuple(dict.fromkeys(threat for threat in found if threat))
