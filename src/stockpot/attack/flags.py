"""Signs that a robust accuracy may not be what it seems, as data that travel with the result."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from stockpot.attack.victim import Victim


@dataclass(frozen=True)
class Flags:
    """What to know before believing a number; counts are images."""

    randomised: bool = False
    """The same image gave different outputs: use `eot`, or AutoAttack's `rand`."""
    softmax: bool = False
    """The outputs are probabilities, not logits: gradients of losses vanish."""
    few_classes: bool = False
    """Too few classes for the DLR loss, which fell back to the margin."""
    zero_gradients: int = 0
    """Images whose gradient was zero everywhere at the start."""
    square_beats_gradients: int = 0
    """Images that fell to a random search after every gradient attack had failed."""
    disputed: int = 0
    """Images that a faster forward pass and the exact one judged differently."""

    def warnings(self) -> tuple[str, ...]:
        """The flags that are up, one sentence each."""
        lines = []
        if self.randomised:
            lines.append("the model is randomised: average over draws with eot=20 or more")
        if self.softmax:
            lines.append("the model outputs probabilities, not logits: attacks on it are weak")
        if self.few_classes:
            lines.append("too few classes for DLR: the margin was used instead")
        if self.zero_gradients:
            lines.append(f"{self.zero_gradients} images had a gradient of zero")
        if self.square_beats_gradients:
            lines.append(
                f"random search broke {self.square_beats_gradients} images that gradients did not:"
                " gradients may be masked"
            )
        if self.disputed:
            lines.append(f"{self.disputed} decisions were corrected in full precision")
        return tuple(lines)


def is_randomised(victim: Victim, images: Tensor) -> bool:
    """Whether a second look at the same few images differs by more than rounding."""
    few = images[:32]
    first, second = victim.logits(few), victim.logits(few)
    scale = first.abs().amax(dim=1, keepdim=True).clamp(min=1e-12)
    return bool(((first - second).abs() / scale).amax() > 1e-4) if len(few) else False


def is_softmax(logits: Tensor) -> bool:
    """Whether every row looks like a probability distribution."""
    if not len(logits):
        return False
    sums = (logits.sum(dim=1) - 1).abs().amax()
    return bool(logits.min() >= 0) and bool(logits.max() <= 1) and bool(sums < 1e-3)
