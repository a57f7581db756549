"""A classifier written as a file that others can run: ONNX, or a program of `torch.export`.

The file takes N x 3 x H x W pixels in [0, 1] at the model's size, any N, normalises them itself and
gives logits. How pictures come to that size, the class names and where it came from are stated
inside the file, so that nothing has to travel beside it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from stockpot.checkpoints.folder import staged_folder
from stockpot.checkpoints.record import Record, write_record
from stockpot.checkpoints.seen import Seen, write_seen
from stockpot.errors import MissingDependencyError, UserError
from stockpot.models.classifier import Classifier
from stockpot.models.shipped.answers import only_asked
from stockpot.models.shipped.onnx_file import METADATA
from stockpot.models.shipped.stated import PLAIN, stated

Format = Literal["onnx", "torch-export"]
FILES: dict[Format, str] = {"onnx": "model.onnx", "torch-export": "model.pt2"}


def write_shipped(
    model: Classifier, to: Format, out: Path, record: Record, seen: Seen | None = None
) -> Path:
    """Write the folder `out` with the file and its record; gives the file.

    Args:
        model: what is exported, as it is.
        to: the format.
        out: a folder that does not exist or is empty.
        record: what it was made from.
        seen: the images that it has seen.
    """
    if only_asked(model):
        raise UserError(
            f"{model.origin.source} can only be asked, so there is nothing to export.",
            hint="Export the model that it was made from.",
        )
    about = stated(model.preprocess, model.classes) | dict(PLAIN)
    # By its name: where it lay on this machine is nobody's business.
    called = model.origin.source.rstrip("/").rpartition("/")[2]
    about["made"] = {"from": called, "fingerprint": model.origin.fingerprint}
    with staged_folder(out) as folder:
        plain = Plain(model).eval()
        blank = torch.rand(2, 3, *model.preprocess.size, generator=torch.Generator().manual_seed(0))
        try:
            with _quiet():
                if to == "onnx":
                    _write_onnx(plain, blank, folder / FILES[to], about)
                else:
                    _write_program(plain, blank, folder / FILES[to], about)
        except (UserError, OSError):
            raise
        except Exception as problem:  # whatever the network does that cannot be exported
            reason = (str(problem).strip() or type(problem).__name__).splitlines()[0]
            raise UserError(
                f"{model.origin.source} cannot be exported to {to}: {reason[:200]}"
            ) from problem
        if seen:
            record = record.model_copy(update={"seen": write_seen(folder, seen)})
        write_record(folder, record)
    return out / FILES[to]


class Plain(nn.Module):
    """Pixels of the right size, normalised, through the network; nothing else is exported."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.network = model.network
        self.bgr = model.preprocess.bgr
        shape = (1, 3, 1, 1)
        self.register_buffer("mean", torch.tensor(model.preprocess.mean).view(shape))
        self.register_buffer("std", torch.tensor(model.preprocess.std).view(shape))
        self.to(model.device)

    def forward(self, pixels: Tensor) -> Tensor:
        mean, std = cast(Tensor, self.mean), cast(Tensor, self.std)
        if self.bgr:
            pixels = pixels.flip(1)
        return cast(Tensor, self.network((pixels - mean) / std)).float()


def _write_program(plain: nn.Module, blank: Tensor, file: Path, about: dict[str, Any]) -> None:
    any_number = torch.export.Dim("batch", min=1, max=1 << 16)
    with torch.no_grad():
        program = torch.export.export(plain, (blank,), dynamic_shapes=({0: any_number},))
    for node in program.graph.nodes:  # as for the name
        node.meta.pop("stack_trace", None)
    torch.export.save(program, file, extra_files={"stockpot.json": json.dumps(about)})


def _write_onnx(plain: nn.Module, blank: Tensor, file: Path, about: dict[str, Any]) -> None:
    try:
        import onnx
        import onnxscript  # noqa: F401
    except ImportError as problem:
        raise MissingDependencyError(
            f"writing ONNX needs {problem.name}.", hint="pip install 'stockpot[onnx]'"
        ) from None
    any_number = torch.export.Dim("batch", min=1, max=1 << 16)
    with torch.no_grad():
        made: Any = torch.onnx.export(
            plain, (blank,), dynamo=True, dynamic_shapes=({0: any_number},),
            input_names=["pixels"], output_names=["logits"], verbose=False,
        )  # fmt: skip
    made.model.metadata_props[METADATA] = json.dumps(about)
    for node in made.model.graph:  # as for the name
        node.metadata_props.clear()
    large = sum(value.numel() * value.element_size() for value in plain.parameters()) > 1 << 30
    made.save(str(file), external_data=large)
    if not large:
        onnx.checker.check_model(str(file))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Exporters print and warn of their own steps; what fails is raised and told in one line."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript")]
    before = [logger.level for logger in loggers]
    with (
        warnings.catch_warnings(),
        open(os.devnull, "w", encoding="utf-8") as nothing,
        contextlib.redirect_stdout(nothing),
    ):
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)
