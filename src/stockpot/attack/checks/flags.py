"""The signs as one value: what to know before believing a robust accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Flags:
    """A yes or no is about the model as a whole; a number counts images."""

    randomised: bool = False
    """The same image gave different outputs: use `eot`, or AutoAttack's `rand`."""
    softmax: bool = False
    """The outputs are probabilities, not logits: gradients of losses vanish."""
    few_classes: bool = False
    """Too few classes for the DLR loss, which fell back to the margin."""
    training: bool = False
    """A part of the model is in training mode, out of reach: dropout and batch norms act."""
    optimises: bool = False
    """The model takes gradients or steps of an optimiser in its forward pass."""
    non_finite: int = 0
    """Images whose outputs were NaN or infinite, as they are or attacked; they count as wrong."""
    zero_gradients: int = 0
    """Images whose gradient was zero everywhere at the start."""
    square_beats_gradients: int = 0
    """Images that fell to a random search after every gradient attack had failed."""
    disputed: int = 0
    """Images that a faster forward pass and the exact one judged differently."""

    def raised(self) -> dict[str, bool | int]:
        """The flags that are up, by name."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in values.items() if value}

    def warnings(self) -> tuple[str, ...]:
        """The flags that are up, one sentence each."""
        return tuple(_SENTENCES[name].format(count=value) for name, value in self.raised().items())


def together(several: Sequence[Flags]) -> Flags:
    """A yes stands if it does for any part; counts are added."""
    joined: dict[str, Any] = {}
    for item in fields(Flags):
        told = [getattr(flags, item.name) for flags in several]
        joined[item.name] = any(told) if isinstance(item.default, bool) else sum(told)
    return Flags(**joined)


_SENTENCES = {
    "randomised": "the model is randomised: average over draws with eot=20 or more",
    "softmax": "the model outputs probabilities, not logits: attacks on it are weak",
    "few_classes": "too few classes for DLR: the margin was used instead",
    "training": "a part of the model is in training mode: call eval() on it before the attack",
    "optimises": "the model optimises in its forward pass: gradients through it say little, and "
    "an adaptive attack is needed",
    "non_finite": "{count} images got NaN or infinite outputs, which count as wrong",
    "zero_gradients": "{count} images had a gradient of zero",
    "square_beats_gradients": "random search broke {count} images that gradients did not: "
    "gradients may be masked",
    "disputed": "{count} decisions were corrected in full precision",
}
