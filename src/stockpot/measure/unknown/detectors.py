"""Scores that are large where an image is of the model's world, in OpenOOD's settings.

Each has the form that OpenOOD v1.5 gives it (arXiv:2306.09301):

- `msp`: the highest softmax probability (arXiv:1610.02136);
- `max_logit`: the highest logit (arXiv:1911.11132);
- `energy`: log-sum-exp of the logits at temperature 1 (arXiv:2010.03759);
- `knn`: minus the squared distance to the k-th nearest training image, features at unit length
  (arXiv:2204.06507);
- `vim`: energy less the scaled length of the features outside the principal space of training
  features, whose origin is where all logits are equal to the bias's (arXiv:2203.10807);
- `ash_p`, `ash_b`, `ash_s`: energy after the smallest features of an image were removed (P), the
  others set to one value with the same sum (B), or sharpened (S) (arXiv:2209.09858).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stockpot.errors import BadParameterError
from stockpot.measure.unknown.penultimate import Head

Detector = Callable[[Tensor, Tensor | None], Tensor]
"""From logits and features of a batch to one score for each image."""

LOGITS_ALONE = ("msp", "max_logit", "energy")
WITH_TRAINING = ("knn", "vim")
SHAPED = ("ash_p", "ash_b", "ash_s")
ALL = (*LOGITS_ALONE, *WITH_TRAINING, *SHAPED)
_BANK_AT_ONCE = 32_000_000


class Settings(NamedTuple):
    """What the detectors are told."""

    k: int
    dim: int | None
    percentile: float


def detector(
    name: str, settings: Settings, head: Head | None, training: Tensor | None
) -> tuple[Detector, str]:
    """A detector and its settings in words.

    Args:
        name: one of `ALL`.
        settings: the parameters.
        head: the model's last layer, for all that look at features.
        training: features of training images, for those that need them.
    """
    if name in LOGITS_ALONE:
        return _OF_LOGITS[name], name
    assert head is not None
    if name in SHAPED:
        return _shaped(name, head, settings.percentile), f"{name} percentile {settings.percentile}"
    assert training is not None
    if name == "knn":
        return _knn(training, settings.k), f"knn k={settings.k}"
    width = training.shape[1]
    dim = principal_dimension(width) if settings.dim is None else settings.dim
    if not 0 <= dim < width:
        raise BadParameterError(
            f"dim: expected a principal space smaller than the {width} features, got {dim}."
        )
    return _vim(training, head, dim), f"vim dim={dim} of {width}"


def principal_dimension(width: int) -> int:
    """The dimension of ViM's principal space, by the rule that its authors and followers use."""
    if width >= 2048:
        return 1000
    return 512 if width >= 768 else width // 2


def _msp(logits: Tensor, features: Tensor | None) -> Tensor:
    return logits.softmax(dim=1).amax(dim=1)


def _max_logit(logits: Tensor, features: Tensor | None) -> Tensor:
    return logits.amax(dim=1)


def _energy(logits: Tensor, features: Tensor | None) -> Tensor:
    return logits.logsumexp(dim=1)


_OF_LOGITS: dict[str, Detector] = {"msp": _msp, "max_logit": _max_logit, "energy": _energy}


def _unit(features: Tensor) -> Tensor:
    # The small number is OpenOOD's; it is added to every value.
    length: Tensor = features.norm(dim=1, keepdim=True)
    return features / length + 1e-10


def _knn(training: Tensor, k: int) -> Detector:
    if k > len(training):
        raise BadParameterError(
            f"k: expected at most the {len(training)} training images, got {k}."
        )
    bank = _unit(training)
    squares = (bank**2).sum(dim=1)

    def score(logits: Tensor, features: Tensor | None) -> Tensor:
        assert features is not None
        asked = _unit(features)
        step = max(1, _BANK_AT_ONCE // len(bank))
        found = []
        for start in range(0, len(asked), step):
            part = asked[start : start + step]
            distances = (part**2).sum(dim=1, keepdim=True) + squares - 2 * part @ bank.T
            found.append(-distances.topk(k, dim=1, largest=False).values[:, -1])
        return torch.cat(found)

    return score


def _vim(training: Tensor, head: Head, dim: int) -> Detector:
    # In float64 on the CPU: eigenvectors of small variances decide, and numbers must not depend on
    # the device.
    weight, bias = head.weight.double().cpu().numpy(), head.bias.double().cpu().numpy()
    origin = torch.from_numpy(-np.linalg.pinv(weight) @ bias)
    known = training.double().cpu()
    centred = known - origin
    _, vectors = torch.linalg.eigh(centred.T @ centred / len(centred))
    residual = vectors[:, : vectors.shape[1] - dim]  # in ascending order: the largest come last
    lengths = (centred @ residual).norm(dim=1)
    best = (known @ head.weight.double().cpu().T + head.bias.double().cpu()).amax(dim=1)
    alpha = best.mean() / lengths.mean().clamp_min(1e-300)
    place = training.device
    residual, origin, scale = residual.float().to(place), origin.float().to(place), float(alpha)

    def score(logits: Tensor, features: Tensor | None) -> Tensor:
        assert features is not None
        own = head.logits(features).logsumexp(dim=1)
        length: Tensor = ((features - origin) @ residual).norm(dim=1)
        return own - scale * length

    return score


def _shaped(name: str, head: Head, percentile: float) -> Detector:
    def score(logits: Tensor, features: Tensor | None) -> Tensor:
        assert features is not None
        return head.logits(shaped(features, name, percentile)).logsumexp(dim=1)

    return score


def shaped(features: Tensor, how: str, percentile: float) -> Tensor:
    """Features of which only the largest are left, treated as ASH-P, -B or -S does."""
    width = features.shape[1]
    kept = width - int(np.round(width * percentile / 100.0))
    if kept < 1:
        raise BadParameterError(
            f"percentile: expected one that leaves a feature of {width}, got {percentile}."
        )
    values, places = features.topk(kept, dim=1)
    before = features.sum(dim=1, keepdim=True)
    if how == "ash_b":
        values = (before / kept).expand_as(values)
    elif how == "ash_s":
        values = values * (before / values.sum(dim=1, keepdim=True)).exp()
    return torch.zeros_like(features).scatter(1, places, values)
