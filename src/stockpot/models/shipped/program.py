"""Programs of `torch.export`: `model.pt2`. They have weights and gradients, and no code of ours."""

from __future__ import annotations

import inspect
import json
import logging
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from stockpot.checkpoints.resolve import Resolved
from stockpot.datasets.stream.geometry import Interpolation
from stockpot.errors import BadCheckpointError
from stockpot.models.classifier import Classifier
from stockpot.models.fingerprint import fingerprint_shipped
from stockpot.models.shipped.archive import check_archive
from stockpot.models.shipped.functions import asking
from stockpot.models.shipped.stated import Said, beside, settled
from stockpot.types import ImageSize


def load_program(
    place: Resolved,
    *,
    classes: Sequence[str] | None = None,
    size: int | Sequence[int] | None = None,
    resize: int | None = None,
    squash: bool | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    interpolation: Interpolation | None = None,
    name: str = "",
) -> Classifier:
    """A program that `torch.export.save` wrote, checked before anything of it is loaded.

    Args:
        place: the file.
        classes: class names in output order.
        size: the side of the square that it takes, or height and width; read from a fixed input.
        resize: the short side before the centre crop; `size` when left out.
        squash: resize straight to the size instead, losing the aspect ratio.
        mean: subtracted from pixels in [0, 1].
        std: divides the pixels after that.
        interpolation: how pictures are resized.
        name: the name under which the model appears in results.
    """
    file = place.local()
    inside = _said(file, check_archive(file))
    program = Program(file)
    given = {
        "classes": classes, "size": size, "resize": resize, "squash": squash,
        "mean": mean, "std": std, "interpolation": interpolation,
    }  # fmt: skip
    said = (given, *beside(file), inside)
    named, preprocess = settled(str(file), *said, side=program.side, hub=file.parent)
    model = asking(
        program, str(file), named, preprocess,
        source=name or place.text, fingerprint=fingerprint_shipped(file),
    )  # fmt: skip
    model.origin = model.origin._replace(architecture="torch.export")
    return model


class Program(nn.Module):
    """An exported graph as a module that can be switched between modes, which it does not heed."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        try:
            with warnings.catch_warnings(), _quiet("torch.export"):
                warnings.simplefilter("ignore")
                exported: Any = torch.export.load(file)
        except Exception as problem:  # of many kinds: another version, an unknown operator, ...
            reason = str(problem).strip().splitlines()[0] if str(problem).strip() else ""
            raise BadCheckpointError(
                f"{file}: torch {torch.__version__} cannot load it: {reason}"
            ) from problem
        # Guards are made by running text as code, and would complain of no more than shapes.
        takes = inspect.signature(exported.module).parameters
        graph: Any = exported.module(**({"check_guards": False} if "check_guards" in takes else {}))
        for mode in ("train", "eval"):  # put there to raise; the graph itself has one mode
            graph.__dict__.pop(mode, None)
        self.graph: nn.Module = graph
        inputs = [
            node.meta["val"]
            for node in exported.graph.nodes
            if node.op == "placeholder" and node.name in exported.graph_signature.user_inputs
        ]
        shape = list(inputs[0].shape) if inputs and isinstance(inputs[0], Tensor) else []
        if len(inputs) != 1 or len(shape) != 4:
            raise BadCheckpointError(
                f"{file}: expected a program of one input, N x 3 x H x W pixels, got "
                f"{[tuple(getattr(each, 'shape', ())) for each in inputs]}."
            )
        fixed = all(isinstance(side, int) for side in shape[2:])
        self.side = ImageSize(*(int(side) for side in shape[2:])) if fixed else None
        """The size of a picture, where the input fixes it."""
        first: Any = shape[0]  # a number, or a symbol where any number goes
        self.batch: int | None = first if isinstance(first, int) else None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        here = next((each.device for each in (*self.parameters(), *self.buffers())), None)
        # Where tensors are made inside, the device of the export is written into the graph.
        for module in self.graph.modules():
            if not isinstance(module, torch.fx.GraphModule):
                continue
            for node in module.graph.nodes:
                if node.kwargs.get("device") is not None:
                    node.kwargs = {**node.kwargs, "device": here}
            module.recompile()
        return self

    def forward(self, pixels: Tensor) -> Tensor:
        if self.batch is None:
            return _logits(self.graph(pixels))
        parts = []
        for part in torch.split(pixels, self.batch):
            filler = part[-1:].expand(self.batch - len(part), *part.shape[1:])
            parts.append(_logits(self.graph(torch.cat([part, filler])))[: len(part)])
        return torch.cat(parts) if parts else _logits(self.graph(pixels))


def _logits(found: Any) -> Tensor:
    """The first output; what came from transformers gives a mapping or a tuple."""
    while not isinstance(found, Tensor):
        found = next(iter(found.values())) if hasattr(found, "values") else found[0]
    return found


def _said(file: Path, text: str) -> Said:
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError as problem:
        raise BadCheckpointError(f"{file}: its stockpot.json is not JSON: {problem}.") from problem
    return found if isinstance(found, dict) else {}


class _quiet:  # noqa: N801
    """A logger that says nothing of what is said in one line afterwards."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def __enter__(self) -> None:
        self._before = self._logger.disabled
        self._logger.disabled = True

    def __exit__(self, *_: object) -> None:
        self._logger.disabled = self._before
