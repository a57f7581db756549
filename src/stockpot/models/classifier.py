"""A classifier: pixels in [0, 1] in, logits out, and everything needed to score it fairly.

It owns its resizing, normalisation, class names and feature space, so that corruptions and
attacks meet it in pixel units and an epsilon means what it says.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn

from stockpot.checkpoints.seen import Seen
from stockpot.errors import UserError
from stockpot.models.given_pictures import Pictures, as_batches
from stockpot.models.preprocess import Preprocess
from stockpot.notebook import facts_html


class Network(Protocol):
    """What a classifier wraps: a module from normalised pixels to logits."""

    def __call__(self, pixels: Tensor) -> Tensor: ...

    def features(self, pixels: Tensor) -> Tensor:
        """The representation the last linear layer reads, one row per image."""
        ...

    def save(self, folder: Path) -> None:
        """Write weights and configuration so that `load_model(folder)` brings them back."""
        ...


class Origin(NamedTuple):
    """Where a classifier came from."""

    source: str
    architecture: str
    fingerprint: str


class Prediction(NamedTuple):
    """What a picture is taken for."""

    name: str
    confidence: float
    """The softmax share of the class."""
    label: int


class Classifier(nn.Module):
    """Pixels (float in [0, 1] or uint8, NCHW, any size) to logits."""

    def __init__(
        self,
        network: nn.Module,
        preprocess: Preprocess,
        classes: tuple[str, ...],
        origin: Origin,
    ) -> None:
        super().__init__()
        self.network = network
        self.preprocess = preprocess
        self.classes = classes
        self.origin = origin
        self.history = Seen()
        """What it has seen since it was loaded; what it saw before is written where it lay."""
        self.behind = ""
        """The defences around it with their parameters: the same weights answer otherwise there."""

    def forward(self, pixels: Tensor) -> Tensor:
        return cast(Tensor, self.network(self.seen(pixels)))

    def features(self, pixels: Tensor) -> Tensor:
        """The representation before the head, one row per image."""
        if not hasattr(self.network, "features"):
            raise UserError(f"{self.origin.source} does not expose its features.")
        return cast(Network, self.network).features(self.seen(pixels))

    def save(self, folder: str | Path) -> Path:
        """Write a folder that `stockpot.load_model` reads back."""
        self.check_savable()
        target = Path(folder)
        cast(Network, self.network).save(target)
        return target

    def check_savable(self) -> None:
        """Raise where there is no folder for such a network."""
        if not hasattr(self.network, "save"):
            raise UserError(
                f"{self.origin.source} was made by a factory; save its state dict instead."
            )

    def predict(self, images: Pictures) -> list[Prediction]:
        """What each picture is taken for: its likeliest class.

        Args:
            images: a PIL image or a file, several of them, a batch of pixels, or a dataset.
        """
        found: list[Prediction] = []
        with evaluating(self):
            for pixels in as_batches(images, self.preprocess.fit):
                shares = self(pixels.to(self.device)).float().softmax(dim=-1)
                best = shares.max(dim=-1)
                pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
                for share, place in pairs:
                    name = self.classes[place] if self.classes else str(place)
                    found.append(Prediction(name, share, place))
        return found

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts().items())
        return f"{type(self).__name__}({self.origin.source}: {facts})"

    def _repr_html_(self) -> str:
        return facts_html(f"{type(self).__name__} {self.origin.source}", self._facts())

    def _facts(self) -> dict[str, str]:
        first = next(self.parameters(), None)
        return {
            "architecture": self.origin.architecture,
            "parameters": f"{self.parameter_count:,}",
            "classes": f"{len(self.classes):,}",
            "input": f"{self.preprocess.size} px",
            "device": str(first.device) if first is not None else "none",
        }

    @property
    def device(self) -> torch.device:
        """Where the weights are; of a model that can only be asked, where answers are wanted.

        A module that holds nothing answers wherever its pixels are.
        """
        first = next(chain(self.parameters(), self.buffers()), None)
        return torch.device("cpu") if first is None else first.device

    @property
    def parameter_count(self) -> int:
        """How many weights there are, tied ones counted once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def seen(self, pixels: Tensor) -> Tensor:
        """What the network is given for these pixels."""
        ours = not pixels.is_floating_point()
        if ours:
            pixels = pixels.float().div_(255)
        return self.preprocess.normalise(self.preprocess.fit_tensor(pixels), in_place=ours)


def seeing_all(model: Classifier) -> Classifier:
    """The same model for pictures that were cropped before: it takes all of each, at its size."""
    whole = copy.copy(model)
    whole.preprocess = replace(model.preprocess, resized=model.preprocess.size)
    return whole


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; the previous modes come back afterwards."""
    with in_evaluation(model), torch.inference_mode():
        yield


@contextmanager
def in_evaluation(model: nn.Module) -> Iterator[None]:
    """Evaluation mode; afterwards every module is in the mode in which it was.

    The modes of parts differ: a network that was loaded to answer may stand in a classifier that
    nobody has put into a mode yet, and layers of one that is trained may be frozen.
    """
    # Where the whole evaluates there is nothing to undo, and many modules would be gone through.
    before = [(part, part.training) for part in model.modules()] if model.training else []
    model.eval()
    try:
        yield
    finally:
        for part, training in before:
            part.training = training
