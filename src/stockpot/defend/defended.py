"""A classifier that looks at changed pixels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
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


Wanted = str | Sequence[str] | Mapping[str, Mapping[str, Any] | None] | None
"""Defences as users name them."""


def defend(model: Classifier, name: str, **params: Any) -> Classifier:
    """Wrap a classifier in the defence of that name."""
    entry = defences.get(name)
    return cast(Classifier, entry.function(model, **entry.validate(params)))


def chosen_defences(wanted: Wanted) -> dict[str, dict[str, Any]]:
    """Names with all their parameters; the first stands nearest to the model.

    `clahe`, `[nlm, clahe]`, `{clahe: {clip: 3}}` and `none` are all understood.
    """
    if wanted in (None, "", "none"):
        return {}
    if isinstance(wanted, str):
        wanted = [wanted]
    if not isinstance(wanted, Mapping):
        wanted = {str(name): {} for name in wanted}
    return {
        str(name): dict(defences.get(str(name)).validate(dict(params or {})))
        for name, params in wanted.items()
    }


def behind(model: Classifier, wanted: Wanted) -> Classifier:
    """The classifier behind all these defences."""
    for name, params in chosen_defences(wanted).items():
        model = defend(model, name, **params)
    return model


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
        if self.views == 1:
            return cast(Tensor, self.inner(self.change(_as_float(pixels))))
        # Probabilities are averaged, as the paper does; their logarithms are logits again.
        chances = [self.inner(view).float().log_softmax(1) for view in self._views(pixels)]
        return torch.stack(chances).logsumexp(0) - torch.tensor(self.views).log()

    def seen(self, pixels: Tensor) -> Tensor:
        """What the network is given for these pixels, behind the change."""
        return self.inner.seen(self.change(_as_float(pixels)))

    def features(self, pixels: Tensor) -> Tensor:
        """The representation of the changed pixels, averaged over the views."""
        return torch.stack([self.inner.features(view) for view in self._views(pixels)]).mean(0)

    def _views(self, pixels: Tensor) -> tuple[Tensor, ...]:
        # One at a time, so that the network takes no more memory than for the pixels alone.
        return self.change(_as_float(pixels)).chunk(self.views)

    def save(self, folder: str | Path) -> Path:
        """A defence is not part of a checkpoint."""
        raise UserError(
            f"{self.origin.source}: expected a model without a defence to save.",
            hint="Save the model itself, and name the defence in the recipe.",
        )


def _as_float(pixels: Tensor) -> Tensor:
    return pixels if pixels.is_floating_point() else pixels.float() / 255
