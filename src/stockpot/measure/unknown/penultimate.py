"""What the last linear layer of a model reads, and the layer itself.

The head is the linear layer whose output the model returns; it is found by looking which layers a
forward pass calls, so it does not matter who built the network. Dual encoders have class embeddings
in place of such a layer: their head multiplies unit-length image embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from stockpot.datasets.dataset import Dataset
from stockpot.measure.measurement import Context
from stockpot.models.classifier import Classifier, evaluating
from stockpot.models.zero_shot import ZeroShotNetwork


class Head(NamedTuple):
    """A linear map from features to logits."""

    weight: Tensor
    """Classes x features."""
    bias: Tensor
    words: str
    """Which features, for the convention."""

    def logits(self, features: Tensor) -> Tensor:
        """What it makes of features."""
        return features @ self.weight.T + self.bias


class Seen(NamedTuple):
    """One batch: what the model says, and what its head read."""

    logits: Tensor
    features: Tensor | None
    rows: Tensor


class Penultimate:
    """Looks at a model's logits and, where it has a linear head, at the features before it."""

    def __init__(self, model: Classifier, data: Dataset, context: Context) -> None:
        """Find the head by one batch.

        Args:
            model: the model.
            data: some images for it.
            context: how to run.
        """
        self.model, self.context = model, context
        self.layer: nn.Linear | None = None
        self.head: Head | None = None
        with evaluating(model):
            batch = next(data.batches(2, model.preprocess.fit))
            self._find(batch.images.to(context.device))

    def batches(self, data: Dataset, what: str) -> Iterator[Seen]:
        """All images in order, in float32 on the device."""
        done = 0
        with evaluating(self.model), self._listening() as heard:
            for batch in data.batches(self.context.batch_size, self.model.preprocess.fit):
                pixels = batch.images.to(self.context.device, non_blocking=True)
                heard.clear()
                logits = self.model(pixels).float()
                features = heard[-1].float() if heard else self._embeddings(pixels)
                done += len(batch.rows)
                self.context.progress(what, done, len(data))
                yield Seen(logits, features, batch.rows)

    def _find(self, pixels: Tensor) -> None:
        called: list[tuple[nn.Linear, Tensor, Tensor]] = []

        def note(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            assert isinstance(module, nn.Linear)
            called.append((module, inputs[0], output))

        linears = [module for module in self.model.modules() if isinstance(module, nn.Linear)]
        handles = [module.register_forward_hook(note) for module in linears]
        try:
            logits = self.model(pixels)
        finally:
            for handle in handles:
                handle.remove()
        for module, read, output in reversed(called):
            if read.ndim == 2 and output.shape == logits.shape and torch.equal(output, logits):
                weight = module.weight.detach().float()
                bias = torch.zeros(len(weight), device=weight.device)
                if module.bias is not None:
                    bias = module.bias.detach().float()
                words = f"input of the last linear layer, {weight.shape[1]} wide"
                self.layer, self.head = module, Head(weight, bias, words)
                return
        network = self.model.network
        if isinstance(network, ZeroShotNetwork) and type(self.model) is Classifier:
            scale = network.scale().detach().float()
            weight = scale * network.head.detach().float()
            told = getattr(network.model, "logit_bias", None)
            bias = torch.zeros(len(weight), device=weight.device)
            if isinstance(told, Tensor):
                bias = bias + told.detach().float()
            words = f"unit-length image embedding, {weight.shape[1]} wide"
            self.head = Head(weight, bias, words)

    def _embeddings(self, pixels: Tensor) -> Tensor | None:
        return self.model.features(pixels).float() if self.head else None

    @contextmanager
    def _listening(self) -> Iterator[list[Tensor]]:
        heard: list[Tensor] = []
        if self.layer is None:
            yield heard
            return
        handle = self.layer.register_forward_pre_hook(lambda _, inputs: heard.append(inputs[0]))
        try:
            yield heard
        finally:
            handle.remove()
