"""What a card measures, and how the time is shared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stockpot.models.classifier import Classifier
from stockpot.models.shipped.answers import only_asked

_SMALL = 64
"""Up to this side a picture is attacked with the radii of CIFAR, above with those of ImageNet."""
SQUARES = 500


@dataclass(frozen=True)
class Asked:
    """A measure with its parameters, and its share of the time."""

    measure: str
    share: float
    params: dict[str, Any] = field(default_factory=dict)
    timed: tuple[int, int] = (2, 6)
    """Images of the two timing passes; with two of the same there is one."""
    like: str = ""
    """Another measure that takes as long for an image; this one is then not timed."""
    least: int = 16
    """Fewer images are not worth a number; then the measure is left out, and the card says so."""
    most: int | None = None
    """More images would tell nothing more."""


def preset(model: Classifier) -> list[Asked]:
    """The measures of a card, in the order in which they run."""
    return [
        Asked("clean", 0.05, timed=(8, 32)),
        Asked("calibration", 0.05, {"held_out": "content"}, like="clean"),
        Asked("cost", 0.05, {"repeats": 5}, timed=(16, 16), most=16),
        Asked("corruption", 0.35, timed=(1, 3)),
        Asked("adversarial", 0.3, _attack(model), timed=(2, 4)),
        Asked("dynamic", 0.2, {"pictures": 4}, timed=(1, 2)),
    ]


def _attack(model: Classifier) -> dict[str, Any]:
    small = max(model.preprocess.size) <= _SMALL
    if only_asked(model):
        eps = "8/255" if small else "4/255"
        return {"method": "square", "steps": SQUARES, "norms": "linf", "eps": eps}
    return {"protocol": "soups-cifar" if small else "soups-imagenet"}
