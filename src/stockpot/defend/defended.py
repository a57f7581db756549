"""A classifier that looks at changed pixels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from stockpot.defend import defences
from stockpot.defend.wrapped import Wrapped
from stockpot.errors import BadParameterError
from stockpot.models.classifier import Classifier
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


def adapting(wanted: Wanted) -> str:
    """The name of the defence that adapts, or nothing.

    It copies and changes all that is behind it, so it must be the outermost and the only one.
    """
    names = list(chosen_defences(wanted))
    found = [name for name in names if defences.get(name).tags.adapts]
    if found and found != names[-1:]:
        raise BadParameterError(
            f"defend: expected {found[0]}, which adapts, as the last of the defences and the only "
            f"one of its kind, got {', '.join(names)}."
        )
    return found[0] if found else ""


def behind(model: Classifier, wanted: Wanted) -> Classifier:
    """The classifier behind all these defences."""
    adapting(wanted)
    for name, params in chosen_defences(wanted).items():
        model = defend(model, name, **params)
    return model


class Defended(Wrapped):
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
        super().__init__(inner, label, preprocess)
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


def _as_float(pixels: Tensor) -> Tensor:
    return pixels if pixels.is_floating_point() else pixels.float() / 255
