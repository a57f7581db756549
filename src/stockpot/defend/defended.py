"""A classifier that looks at changed pixels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from stockpot.defend import defences
from stockpot.errors import UserError
from stockpot.models.classifier import Classifier, Origin
from stockpot.models.preprocess import Preprocess

Change = Callable[[Tensor], Tensor]
"""Float pixels in [0, 1], N x 3 x H x W, to the same, or to k views of each, view by view."""


def defend(model: Classifier, name: str, **params: Any) -> Classifier:
    """Wrap a classifier in the defence of that name."""
    entry = defences.get(name)
    return cast(Classifier, entry.function(model, **entry.validate(params)))


class Defended(Classifier):
    """Another classifier behind a change of its pixels; defences can be stacked."""

    def __init__(
        self,
        inner: Classifier,
        label: str,
        change: Change,
        views: int = 1,
        preprocess: Preprocess | None = None,
    ) -> None:
        """Wrap a classifier.

        Args:
            inner: the classifier.
            label: the defence with its parameters, for results.
            change: what happens to the pixels.
            views: how many pictures the change makes of one.
            preprocess: how pictures come to the change, where not as they come to `inner`.
        """
        whole = f"{inner.origin.fingerprint}:{label}"
        origin = Origin(
            source=f"{inner.origin.source} + {label}",
            architecture=inner.origin.architecture,
            fingerprint=hashlib.sha256(whole.encode()).hexdigest(),
        )
        super().__init__(inner.network, preprocess or inner.preprocess, inner.classes, origin)
        self.inner = inner
        self.change = change
        self.views = views

    def forward(self, pixels: Tensor) -> Tensor:
        logits = cast(Tensor, self.inner(self.change(_as_float(pixels))))
        if self.views == 1:
            return logits
        # Probabilities are averaged, as the paper does; their logarithms are logits again.
        chances = logits.float().log_softmax(1).view(self.views, len(pixels), -1)
        return chances.logsumexp(0) - torch.tensor(self.views).log()

    def features(self, pixels: Tensor) -> Tensor:
        """The representation of the changed pixels, averaged over the views."""
        features = self.inner.features(self.change(_as_float(pixels)))
        return features.view(self.views, len(pixels), *features.shape[1:]).mean(0)

    def save(self, folder: str | Path) -> Path:
        """A defence is not part of a checkpoint."""
        raise UserError(
            f"{self.origin.source}: expected a model without a defence to save.",
            hint="Save the model itself, and name the defence in the recipe.",
        )


def _as_float(pixels: Tensor) -> Tensor:
    return pixels if pixels.is_floating_point() else pixels.float() / 255
