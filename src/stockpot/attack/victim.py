"""The model under attack: a function from pixels to logits, with gradients and a meter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from stockpot.attack.blocks import Blocks
from stockpot.attack.captured import Graphs, graphs_for
from stockpot.attack.copies import Copies, Forward, Precision, faster
from stockpot.attack.losses import Criterion
from stockpot.errors import BadParameterError
from stockpot.models.forward.folding import Model
from stockpot.models.shipped.answers import only_asked
from stockpot.score.predictions import predictions

_HALF = (torch.float16, torch.bfloat16)
# On a CPU activations of small pieces stay in the cache, and NHWC spares convolutions a reorder.
_CPU_PIECE = 64
_GPU_PIECE = 1024


class Ascent(NamedTuple):
    """What one look at the model gives a gradient attack."""

    loss: Tensor
    gradient: Tensor
    logits: Tensor


class Slopes(NamedTuple):
    """Some logits minus the true one (N x K), their gradients (N x K x C x H x W), and errors."""

    gaps: Tensor
    gradients: Tensor
    wrong: Tensor


@dataclass
class Victim:
    """A model, how to run it, and how many images it has seen."""

    model: Model
    eot: int = 1
    precision: Precision = "fp32"
    forward: Forward = "plain"
    piece: int | None = None
    forwards: int = 0
    backwards: int = 0

    def __post_init__(self) -> None:
        if self.eot < 1 or (self.piece is not None and self.piece < 1):
            raise BadParameterError(
                f"expected eot >= 1 and piece >= 1, got {self.eot} and {self.piece}."
            )
        self._run: Model = self.model
        self._look: Model | None = None
        self._door: torch.dtype | None = None
        self._graphs: Graphs | None = None

    def prepare(
        self,
        images: Tensor,
        given: torch.dtype = torch.float32,
        copies: Copies | None = None,
    ) -> None:
        """Make the faster model that `forward` asks for; to be called in evaluation mode.

        Args:
            images: what is to be attacked.
            given: the precision that the images came in, perhaps since the model wants it.
            copies: made for earlier attacks on it.
        """
        self._door = _door(self.model, images, given)
        self._graphs = None if self.forward == "compiled" else graphs_for(images.device)
        if self._door is not None:
            return  # a model in half precision is taken as it is
        if isinstance(self.model, nn.Module) and only_asked(self.model):
            return  # there is nothing inside that could be folded, recorded or compiled
        make = faster if copies is None else copies.faster
        self._run, self._look = make(self.model, images, self.forward, self.precision)

    @property
    def exact(self) -> bool:
        """Whether decisions are made in full precision by the model as it was given."""
        return self.precision == "fp32" and self._run is self.model

    def exactly(self) -> Victim:
        """The same model, run as it was given, on pixels in full precision."""
        exact = Victim(self.model, self.eot, piece=self.piece)
        exact._door = self._door
        if self._graphs is not None:  # of its own: another way to run the model is another graph
            exact._graphs = graphs_for(self._graphs.device)
        return exact

    def averaging(self, eot: int) -> Victim:
        """The same model, run in the same way, with other draws for every look."""
        other = replace(self, eot=eot)
        other._run, other._look, other._door = self._run, self._look, self._door
        other._graphs = self._graphs
        return other

    def blocks(self, every: int) -> Blocks:
        """How the images of a run on this model leave: where steps are captured, every so often."""
        return Blocks(self._graphs, every, None if self.exact else self._wrong, self.eot)

    def _wrong(self, images: Tensor, labels: Tensor) -> Tensor:
        return predictions(self.exactly().logits(images)) != labels

    def once(self, pixels: Tensor) -> Tensor:
        """One pass of the model as it was given, which is not counted."""
        return self.model(pixels if self._door is None else pixels.to(self._door))

    def logits(self, pixels: Tensor) -> Tensor:
        """Logits without gradients, averaged over `eot` passes."""
        with torch.no_grad():
            if self._look is not None:
                return self._logits(self._look, pixels)
            parts = [
                sum(self._forward(part) for _ in range(self.eot)) / self.eot
                for part in self._pieces(pixels)
            ]
        return torch.cat(cast("list[Tensor]", parts))

    def _logits(self, graph: Model, pixels: Tensor) -> Tensor:
        """By a frozen graph, which is the same in every pass and knows its own layout."""
        self.forwards += len(pixels) * self.eot
        parts = torch.split(pixels.contiguous(), self._size(pixels))
        return _joined([graph(part) for part in parts])

    def ascend(self, pixels: Tensor, criterion: Criterion, *fields: Tensor) -> Ascent:
        """Loss, its gradient with respect to the pixels, and the logits."""
        losses, gradients, logits = [], [], []
        start = 0
        for part in self._pieces(pixels):
            rows = slice(start, start + len(part))
            start += len(part)
            part = part.detach().requires_grad_()
            with torch.enable_grad():
                seen = [self._forward(part) for _ in range(self.eot)]
                loss = sum(criterion(each, *(field[rows] for field in fields)) for each in seen)
            # All else is in the usual layout; operations on mixed layouts are slow.
            gradients.append(self._gradient(cast(Tensor, loss).sum(), part).contiguous())
            losses.append(cast(Tensor, loss).detach())
            logits.append(cast(Tensor, sum(each.detach() for each in seen)))
        whole = Ascent(_joined(losses), _joined(gradients), _joined(logits))
        return whole if self.eot == 1 else Ascent(*(value / self.eot for value in whole))

    def slopes(self, pixels: Tensor, labels: Tensor, classes: Tensor) -> Slopes:
        """Linearise the gaps between the true class and some others, `classes` being N x K."""
        gaps, gradients, wrong = [], [], []
        start = 0
        for part in self._pieces(pixels):
            rows = slice(start, start + len(part))
            start += len(part)
            part = part.detach().requires_grad_()
            with torch.enable_grad():
                logits = cast(Tensor, sum(self._forward(part) for _ in range(self.eot))) / self.eot
                gap = logits.gather(1, classes[rows]) - logits.gather(1, labels[rows, None])
            count = gap.shape[1]
            columns = [
                self._gradient(gap[:, column].sum(), part, keep=column + 1 < count)
                for column in range(count)
            ]
            gaps.append(gap.detach())
            gradients.append(torch.stack(columns, dim=1))
            wrong.append(predictions(logits.detach()) != labels[rows])
        return Slopes(_joined(gaps), _joined(gradients), _joined(wrong))

    def _gradient(self, loss: Tensor, pixels: Tensor, keep: bool = False) -> Tensor:
        if not loss.requires_grad:
            raise BadParameterError(
                "the model's output has no gradient with respect to its input.",
                hint="Use method='square', which needs none.",
            )
        (gradient,) = torch.autograd.grad(loss, pixels, retain_graph=keep, allow_unused=True)
        self.backwards += len(pixels)
        # A slope that is no number leads nowhere; followed, it would make a picture of NaNs.
        return torch.zeros_like(pixels) if gradient is None else gradient.nan_to_num(0, 0, 0)

    def _forward(self, pixels: Tensor) -> Tensor:
        self.forwards += len(pixels)
        n = len(pixels)
        if self.forward == "compiled" and n < self._size(pixels):
            # One shape only: every new batch size would compile the model again.
            filler = pixels[-1:].detach().expand(self._size(pixels) - n, *pixels.shape[1:])
            pixels = torch.cat([pixels, filler])
        if self._door is not None:
            return self.model(pixels.to(self._door))[:n].float()
        half = self.precision == "bf16"
        if half and self._run is not self.model and self.forward == "folded":
            return self._run(pixels.bfloat16())[:n].float()
        with torch.autocast(pixels.device.type, torch.bfloat16, enabled=half):
            outputs = self._run(pixels)[:n]
        return outputs.float() if outputs.dtype in _HALF else outputs

    def _size(self, pixels: Tensor) -> int:
        return self.piece or (_CPU_PIECE if pixels.device.type == "cpu" else _GPU_PIECE)

    def _pieces(self, pixels: Tensor) -> Iterator[Tensor]:
        for part in torch.split(pixels, self._size(pixels)):
            nhwc = part.device.type == "cpu" and part.ndim == 4
            layout = torch.channels_last if nhwc else torch.contiguous_format
            yield part.contiguous(memory_format=layout)


def _door(model: Model, images: Tensor, given: torch.dtype) -> torch.dtype | None:
    """The half precision that pixels take at the model's door; none where it takes full precision.

    Searches and balls are in full precision: in bfloat16 a grey level of a light pixel is lost.
    """
    weights = model.parameters() if isinstance(model, nn.Module) else ()
    known = {given, *(weight.dtype for weight in weights)} & set(_HALF)
    if not known or not len(images):
        return None
    with torch.no_grad():
        try:
            model(images[:1])
        except RuntimeError:  # an operation that does not mix precisions
            return given if given in known else known.pop()
    return None


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


@contextmanager
def evaluation_mode(model: Model) -> Iterator[None]:
    """Evaluation mode for modules; every part gets its own mode back afterwards."""
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    modes = [module.training for module in modules]
    if isinstance(model, nn.Module):
        model.eval()
    try:
        yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
