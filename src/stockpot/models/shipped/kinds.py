"""Which loader a shipped model has, imported when it is asked for, and who the model is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stockpot.models.classifier import Classifier
from stockpot.models.fingerprint import fingerprint_files

Loader = Callable[..., Classifier]


def _onnx() -> Loader:
    from stockpot.models.shipped.onnx_file import load_onnx

    return load_onnx


def _program() -> Loader:
    from stockpot.models.shipped.program import load_program

    return load_program


def _endpoint() -> Loader:
    from stockpot.models.shipped.endpoint import load_endpoint

    return load_endpoint


SHIPPED: dict[str, Callable[[], Loader]] = {
    "onnx": _onnx,
    "program": _program,
    "endpoint": _endpoint,
}


def fingerprint_shipped(file: Path) -> str:
    """The identity of a file, weights that lie beside it and what is said of it included."""
    # ONNX keeps large weights in files whose names begin, or are by custom, like its own.
    near = [each for each in file.parent.iterdir() if each.name.startswith(file.name)]
    near += [file.with_suffix(".data"), *(file.parent / name for name in _SAID)]
    return fingerprint_files({each for each in near if each.is_file()})


_SAID = ("preprocessor_config.json", "config.json")
