"""ONNX files, run by onnxruntime: `model.onnx`.

What a file does not say of itself (`stated.py`) has to be given. Layout, number type and a fixed
batch are read from its input: N x 3 x H x W or N x H x W x 3, float32, float16, or uint8 that holds
0 to 255.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stockpot.checkpoints.resolve import Resolved
from stockpot.datasets.stream.geometry import Interpolation
from stockpot.errors import BadCheckpointError, BadParameterError, MissingDependencyError
from stockpot.models.classifier import Classifier
from stockpot.models.fingerprint import fingerprint_shipped
from stockpot.models.shipped.answers import Pixels
from stockpot.models.shipped.functions import asking
from stockpot.models.shipped.stated import Said, beside, settled
from stockpot.types import ImageSize

METADATA = "stockpot"
"""The key of a file's own metadata under which its preprocessing is stated, as JSON."""
_USUAL = ("CUDAExecutionProvider", "CPUExecutionProvider")
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(uint8)": np.uint8}


def load_onnx(
    place: Resolved,
    *,
    classes: Sequence[str] | None = None,
    size: int | Sequence[int] | None = None,
    resize: int | None = None,
    squash: bool | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    interpolation: Interpolation | None = None,
    output: str = "",
    providers: Sequence[str] = (),
    name: str = "",
) -> Classifier:
    """An ONNX file as a classifier that can be asked.

    Args:
        place: the file.
        classes: class names in output order.
        size: the side of the square that it takes, or height and width; read from a fixed input.
        resize: the short side before the centre crop; `size` when left out.
        squash: resize straight to the size instead, losing the aspect ratio.
        mean: subtracted from pixels in [0, 1].
        std: divides the pixels after that.
        interpolation: how pictures are resized.
        output: the name of the output that holds logits; the first by default.
        providers: of onnxruntime; CUDA where it is there, else the CPU.
        name: the name under which the model appears in results.
    """
    file = place.local()
    session = Session(file, output, providers)
    given = {
        "classes": classes, "size": size, "resize": resize, "squash": squash,
        "mean": mean, "std": std, "interpolation": interpolation,
    }  # fmt: skip
    said = (given, *beside(file), session.said)
    named, preprocess = settled(str(file), *said, side=session.side, hub=file.parent)
    return asking(
        session, str(file), named, preprocess,
        kind="ONNX", source=name or place.text, fingerprint=fingerprint_shipped(file),
    )  # fmt: skip


class Session:
    """An opened file: asked with normalised pixels, it gives logits."""

    def __init__(self, file: Path, output: str = "", providers: Sequence[str] = ()) -> None:
        runtime = _runtime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        there = runtime.get_available_providers()
        if unknown := [each for each in providers if each not in there]:
            raise BadParameterError(
                f"providers: {unknown[0]} is not there; onnxruntime has {', '.join(there)}."
            )
        usual = [each for each in _USUAL if each in there]
        try:
            self._session = runtime.InferenceSession(
                str(file), options, providers=list(providers) or usual
            )
        except Exception as problem:  # the runtime's own kinds, of which none is an OSError
            reason = str(problem).strip().splitlines()[0]
            raise BadCheckpointError(f"{file}: onnxruntime cannot open it: {reason}") from problem
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        names = [each.name for each in outputs]
        shape = list(inputs[0].shape) if len(inputs) == 1 else []
        if len(shape) != 4 or 3 not in (shape[1], shape[3]) or inputs[0].type not in _TYPES:
            told = ", ".join(f"{each.name} {each.type} {each.shape}" for each in inputs)
            raise BadCheckpointError(
                f"{file}: expected one input of N x 3 x H x W (or N x H x W x 3) float or uint8 "
                f"pixels, got {told}."
            )
        if output and output not in names:
            raise BadParameterError(f"output: {file} has {', '.join(names)}, not {output!r}.")
        self._input, self._dtype = inputs[0].name, _TYPES[inputs[0].type]
        self._output = output or names[0]
        self._last = shape[1] != 3
        self._batch = shape[0] if isinstance(shape[0], int) and shape[0] > 0 else None
        sides = shape[1:3] if self._last else shape[2:]
        whole = all(isinstance(side, int) and side > 0 for side in sides)
        self.side = ImageSize(*sides) if whole else None
        """The size of a picture, where the input fixes it."""
        self.said = _metadata(file, self._session.get_modelmeta().custom_metadata_map)

    def __call__(self, pixels: Pixels) -> Any:
        given = pixels.transpose(0, 2, 3, 1) if self._last else pixels
        if self._dtype is np.uint8:
            given = np.rint(given * 255).clip(0, 255)
        given = np.ascontiguousarray(given, dtype=self._dtype)
        if self._batch is None:
            return self._run(given)
        parts = [
            self._run(_filled(given[start : start + self._batch], self._batch))
            for start in range(0, len(given), self._batch)
        ]
        return np.concatenate(parts)[: len(given)]

    def _run(self, given: Any) -> Any:
        return self._session.run([self._output], {self._input: given})[0]


def _filled(part: Any, count: int) -> Any:
    """As many pictures as the file takes; the last is repeated."""
    return np.concatenate([part, *[part[-1:]] * (count - len(part))])


def _metadata(file: Path, found: dict[str, str]) -> Said:
    if METADATA not in found:
        return {}
    try:
        said = json.loads(found[METADATA])
    except ValueError as problem:
        raise BadCheckpointError(
            f"{file}: its metadata {METADATA!r} is not JSON: {problem}."
        ) from problem
    return said if isinstance(said, dict) else {}


def _runtime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise MissingDependencyError(
            "ONNX files need onnxruntime.", hint="pip install 'stockpot[onnx]'"
        ) from None
    return onnxruntime
