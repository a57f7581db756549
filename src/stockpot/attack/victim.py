"""The model under attack: a function from pixels to logits, with gradients and a meter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn

from stockpot.attack.blocks import Blocks
from stockpot.attack.captured import Graphs, graphs_for
from stockpot.attack.copies import Copies, Forward, Precision, faster
from stockpot.attack.losses import Criterion
from stockpot.engine.lanes import LANES, part_size, side_by_side
from stockpot.errors import BadParameterError
from stockpot.models.forward.apart import CPU_PIECE, keeps_nothing
from stockpot.models.forward.folding import Model
from stockpot.models.shipped.answers import only_asked
from stockpot.score.predictions import predictions

_HALF = (torch.float16, torch.bfloat16)
_GPU_PIECE = 1024
_SMALL = 3 * 128 * 128
"""Values of a picture of which so many more at a time are no matter for the memory."""
T = TypeVar("T")


class Piece(NamedTuple):
    """Some images of a batch, and their places in it."""

    rows: slice
    pixels: Tensor


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
        self._counting = Lock()

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
            return torch.cat(self._each(self._answers, pixels))

    def _answers(self, piece: Piece) -> Tensor:
        seen = sum(self._forward(piece.pixels) for _ in range(self.eot))
        return cast(Tensor, seen) / self.eot

    def _logits(self, graph: Model, pixels: Tensor) -> Tensor:
        """By a frozen graph, which is the same in every pass and knows its own layout."""
        self.forwards += len(pixels) * self.eot
        parts = torch.split(pixels.contiguous(), self._size(pixels))
        return _joined([graph(part) for part in parts])

    def ascend(self, pixels: Tensor, criterion: Criterion, *fields: Tensor) -> Ascent:
        """Loss, its gradient with respect to the pixels, and the logits."""

        def look(piece: Piece) -> Ascent:
            rows, part = piece.rows, piece.pixels.detach().requires_grad_()
            with torch.enable_grad():
                seen = [self._forward(part) for _ in range(self.eot)]
                loss = sum(criterion(each, *(field[rows] for field in fields)) for each in seen)
            # All else is in the usual layout; operations on mixed layouts are slow.
            gradient = self._gradient(cast(Tensor, loss).sum(), part).contiguous()
            answers = cast(Tensor, sum(each.detach() for each in seen))
            return Ascent(cast(Tensor, loss).detach(), gradient, answers)

        looks = self._each(look, pixels)
        whole = Ascent(*(_joined(list(values)) for values in zip(*looks, strict=True)))
        return whole if self.eot == 1 else Ascent(*(value / self.eot for value in whole))

    def slopes(self, pixels: Tensor, labels: Tensor, classes: Tensor) -> Slopes:
        """Linearise the gaps between the true class and some others, `classes` being N x K."""

        def look(piece: Piece) -> Slopes:
            rows, part = piece.rows, piece.pixels.detach().requires_grad_()
            with torch.enable_grad():
                logits = self._answers(piece._replace(pixels=part))
                gap = logits.gather(1, classes[rows]) - logits.gather(1, labels[rows, None])
            count = gap.shape[1]
            columns = [
                self._gradient(gap[:, column].sum(), part, keep=column + 1 < count)
                for column in range(count)
            ]
            wrong = predictions(logits.detach()) != labels[rows]
            return Slopes(gap.detach(), torch.stack(columns, dim=1), wrong)

        looks = self._each(look, pixels)
        return Slopes(*(_joined(list(values)) for values in zip(*looks, strict=True)))

    def _gradient(self, loss: Tensor, pixels: Tensor, keep: bool = False) -> Tensor:
        if not loss.requires_grad:
            raise BadParameterError(
                "the model's output has no gradient with respect to its input.",
                hint="Use method='square', which needs none.",
            )
        (gradient,) = torch.autograd.grad(loss, pixels, retain_graph=keep, allow_unused=True)
        with self._counting:
            self.backwards += len(pixels)
        # A slope that is no number leads nowhere; followed, it would make a picture of NaNs.
        return torch.zeros_like(pixels) if gradient is None else gradient.nan_to_num(0, 0, 0)

    def _forward(self, pixels: Tensor) -> Tensor:
        n = len(pixels)
        with self._counting:
            self.forwards += n
        if self.forward == "compiled" and n < self._size(pixels):
            # One shape only: every new batch size would compile the model again.
            filler = pixels[-1:].detach().expand(self._size(pixels) - n, *pixels.shape[1:])
            pixels = torch.cat([pixels, filler])
        if self._door is not None:
            return _as_logits(self.model(pixels.to(self._door)), pixels)[:n].float()
        half = self.precision == "bf16"
        if half and self._run is not self.model and self.forward == "folded":
            return self._run(pixels.bfloat16())[:n].float()
        with torch.autocast(pixels.device.type, torch.bfloat16, enabled=half):
            outputs = _as_logits(self._run(pixels), pixels)[:n]
        return outputs.float() if outputs.dtype in _HALF else outputs

    def _size(self, pixels: Tensor) -> int:
        if self.piece or pixels.device.type != "cpu":
            return self.piece or _GPU_PIECE
        # Two pieces at a time: of large pictures they take the memory of one.
        return CPU_PIECE if pixels[:1].numel() <= _SMALL else CPU_PIECE // LANES

    def apart(self, pixels: Tensor) -> bool:
        """Whether two threads may look at a time."""
        plain = self._look is None and self._graphs is None and self.forward != "compiled"
        return plain and pixels.device.type == "cpu" and keeps_nothing(self._run)

    def _each(self, look: Callable[[Piece], T], pixels: Tensor) -> list[T]:
        """What every piece gives, two at a time where the model can be asked so."""
        most = self._size(pixels)
        apart = self.apart(pixels)
        size = part_size(len(pixels), most) if apart else most
        pieces, start = [], 0
        for part in torch.split(pixels, size):
            # NHWC spares convolutions on a processor a reorder.
            nhwc = part.device.type == "cpu" and part.ndim == 4
            layout = torch.channels_last if nhwc else torch.contiguous_format
            rows = slice(start, start + len(part))
            pieces.append(Piece(rows, part.contiguous(memory_format=layout)))
            start += len(part)
        return side_by_side(look, pieces) if apart else [look(piece) for piece in pieces]


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


def _as_logits(outputs: object, pixels: Tensor) -> Tensor:
    """Outputs, a row of numbers for each image; one row would be taken as that of all images."""
    is_table = isinstance(outputs, Tensor) and outputs.is_floating_point() and outputs.ndim == 2
    if isinstance(outputs, Tensor) and is_table and len(outputs) == len(pixels):
        return outputs
    what = type(outputs).__name__
    if isinstance(outputs, Tensor):
        what = f"{str(outputs.dtype).removeprefix('torch.')} of shape {tuple(outputs.shape)}"
    raise BadParameterError(
        f"expected a model that gives N x classes logits as floats, got {what} for {len(pixels)} "
        "images.",
        hint="Of an output with several parts give the logits: lambda pixels: model(pixels).logits"
        if hasattr(outputs, "logits")
        else "",
    )


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
