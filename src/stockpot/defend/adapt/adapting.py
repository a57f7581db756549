"""The contract of test-time adaptation: `adapt` on the batches of a stream, `reset` to begin anew.

    model = defend(load_model("zoo:cifar10-nominal"), "tent")
    for pixels in stream:
        logits = model.adapt(pixels)   # answers this batch, and has learned from it
    fixed = model.held()               # a plain classifier: the model as it is now
    model.reset()                      # bit for bit the model that was given

The model that was given is copied and never changed. What a method remembers beside weights (an
optimiser's momentum, running means, a teacher) lives in a `Learner` that every reset makes anew,
so that nothing can be forgotten in resetting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import chain
from typing import Self

import torch
from torch import Generator, Tensor

from stockpot.defend.adapt.batch_statistics import BatchStatistics, mix_statistics
from stockpot.defend.adapt.learner import Learner
from stockpot.defend.wrapped import Wrapped
from stockpot.errors import UserError
from stockpot.models.classifier import Classifier
from stockpot.models.shipped.answers import only_asked

Make = Callable[[Classifier, Generator], Learner]
"""Makes what learns from one stream, for a model that is as it was given."""


class Adapting(Wrapped):
    """A classifier that changes while it is asked."""

    def __init__(self, model: Classifier, label: str, make: Make, prior: float | None = 0) -> None:
        """Copy a classifier and make it ready for streams.

        Args:
            model: the classifier; it stays as it is.
            label: the method with its parameters, for results.
            make: the method.
            prior: how many pictures the statistics of BatchNorm that the model brings are worth
                against those of a batch; with none they stay alone.
        """
        if prior is not None and only_asked(model):
            raise UserError(
                f"{label.partition('(')[0]}: {model.origin.source} can only be asked: it shows no "
                "weights to adapt and gives no gradients.",
                hint="zero and ten_crop need none; the model that it was exported from has them.",
            )
        inner = deepcopy(model).eval().requires_grad_(False)
        if prior is not None:
            mix_statistics(inner, prior)
        super().__init__(inner, label)
        self._make = make
        self._batch: Tensor | None = None
        self._given = {name: tensor.detach().clone() for name, tensor in self._tensors()}
        self.reset()

    def forward(self, pixels: Tensor) -> Tensor:
        return self.adapt(pixels)

    def adapt(self, pixels: Tensor) -> Tensor:
        """Answer a batch of a stream and learn from it; the outputs have no gradient."""
        with torch.inference_mode(False), torch.enable_grad():
            # A copy: pixels that were made in inference mode could not be learned from.
            batch = self._batch = pixels.detach().clone()
            return self.learner(batch).detach()

    def reset(self, seed: int = 0) -> None:
        """Begin a new stream with the model as it was given.

        Args:
            seed: of everything random in the next stream.
        """
        with torch.inference_mode(False), torch.no_grad():
            for name, tensor in self._tensors():
                tensor.copy_(self._given[name])
            self._batch = None
            self.learner = self._make(self.inner, torch.Generator().manual_seed(seed))

    def held(self) -> Classifier:
        """The model as it is now, as a plain classifier that adapts no more.

        Its weights are those of now, and the statistics of BatchNorm those that the last batch has
        under them, so that an answer depends on nothing but its picture.
        """
        found = deepcopy(self.learner.model).eval().requires_grad_(False)
        layers = [layer for layer in found.modules() if isinstance(layer, BatchStatistics)]
        for layer in layers:
            layer.last = None
        if layers and self._batch is not None:
            with torch.inference_mode(False), torch.no_grad():
                found(self._batch)
        for layer in layers:
            layer.hold = True
        return found

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # What a learner holds beside the model's weights does not move with them to a device.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.reset()
        return self

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        return chain(self.inner.named_parameters(), self.inner.named_buffers())
