"""Which loader a shipped model has, imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable

from stockpot.models.classifier import Classifier

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
